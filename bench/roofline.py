#!/usr/bin/env python3
"""Estimates the time of a training step on a GPU from the bytes and operations of each kernel. No GPU is needed.

  bench/roofline.py [MODEL…] [--batch N] [--kernels] [--check PAGE…]

Models: resnet18, resnet50, vgg16_bn, vit_b_16, bert_base, lstm_large, gpt2, llama3_1b. Prints Markdown: for each model,
the time of a step on each GPU; with --kernels, also every group of kernels. With --check, prints nothing, and fails
unless each line is in one of the pages (docs/results_gpu.md and docs/gpu_roofline.md).

All times are estimates. A kernel takes the longer of its memory traffic and its arithmetic, at assumed fractions of the
published peaks, plus a pause until the next kernel starts. Memory traffic counts each array once per kernel.
Activations are bfloat16; parameters, their gradients and the optimizer's state are float32.

The numbers of parameters and forward operations are compared with tools/predict_models.py before anything is printed.
"""
import argparse
import collections
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "tools"))
import predict_models  # noqa: E402

# Published peaks of the SXM modules: dense bfloat16 tensor-core operations and bytes per second. NVIDIA's data sheets:
# A100 80GB (June 2021), H100 (2023), H200 (2024).
GPUS = {"A100": (312e12, 2.039e12), "H100": (989.4e12, 3.35e12), "H200": (989.4e12, 4.8e12)}
MOMENTUM, ADAMW, SGD = 20, 28, 12  # bytes per parameter that an update reads and writes: x, g, and the states m and v
# Assumed fractions of the peaks. Attention on Hopper: measured by bench_attention on an H200. On an A100: scaled by the
# number and clock of the multiprocessors.
LIBRARY, MEMORY, PAUSE = 0.6, 0.8, 2e-6
ATTENTION = {"A100": 0.35, "H100": 0.17, "H200": 0.17}
HALF, FULL = 2, 4  # bytes per element

Kernel = collections.namedtuple("Kernel", "group operations bytes launches attention forward")


class Step:
    """The kernels of one training step."""

    def __init__(self):
        self.kernels, self.parameters = [], 0

    def add(self, group, bytes_, operations=0, launches=1, attention=False, forward=False):
        self.kernels.append(Kernel(group, operations, bytes_, launches, attention, forward))

    def seconds(self, gpu):
        operations, bytes_ = GPUS[gpu]
        return sum(max(k.operations / (operations * (ATTENTION[gpu] if k.attention else LIBRARY)), k.bytes / (bytes_ * MEMORY))
                   + k.launches * PAUSE for k in self.kernels)

    def bound(self, gpu):
        """Seconds at the published peaks, without pauses."""
        operations, bytes_ = GPUS[gpu]
        return sum(max(k.operations / operations, k.bytes / bytes_) for k in self.kernels)

    def product(self, name, m, inputs, outputs, weights=None, data=True, adds=False):
        """y [m, outputs] = x [m, inputs] · wᵀ, and its gradients. adds: the gradient of x is added to an existing gradient."""
        weights = inputs * outputs if weights is None else weights
        x, y, operations = HALF * m * inputs, HALF * m * outputs, 2 * m * inputs * outputs
        self.add(f"{name} forward", x + y + HALF * weights, operations, forward=True)
        if data:
            self.add(f"{name} gradient of the input", x + y + HALF * weights + (x if adds else 0), operations)
        self.add(f"{name} gradient of the weights", x + y + FULL * weights, operations)

    def traffic(self, group, elements, arrays, launches=1):
        """A kernel that reads or writes `arrays` bfloat16 arrays."""
        self.add(group, HALF * elements * arrays, launches=launches)

    def layer_norm(self, elements, residual):
        self.traffic("layer norm forward", elements, 4 if residual else 2)
        self.traffic("layer norm gradients of the parameters", elements, 2, launches=2)
        self.traffic("layer norm gradient of the input", elements, 3)

    def batch_norm(self, elements, residual):
        self.traffic("batch norm statistics", elements, 1, launches=3)
        self.traffic("batch norm forward", elements, 3 if residual else 2)
        self.traffic("batch norm gradients of the parameters", elements, 4 if residual else 2, launches=2)
        self.traffic("batch norm gradient of the input", elements, 3)

    def attention(self, batch, tokens, width, causal=False, heads=12, dropout=False, keys=None):
        """Forward has two products, backward seven: the scores are computed three times and never written. With
        dropout, a kernel draws one bit per probability, which the kernels with products read. keys: width of the keys
        and of the values, if they have fewer heads."""
        product, rows = 2 * batch * tokens * tokens * width / (2 if causal else 1), HALF * batch * tokens * width
        shared = rows * (keys or width) / width
        sums = FULL * batch * heads * tokens  # log sums; the kernel per query writes two values per query
        bits = batch * heads * tokens * tokens / 8 / (2 if causal else 1) if dropout else 0
        if dropout:
            self.add("attention dropout", bits)
        self.add("attention forward", 2 * rows + 2 * shared + sums + bits, 2 * product, attention=True, forward=True)
        self.add("attention values per query", 2 * rows + 3 * sums)
        self.add("attention gradient of the queries", 3 * rows + 2 * shared + 2 * sums + bits, 3 * product, attention=True)
        self.add("attention gradients of keys and values", 2 * rows + 4 * shared + 2 * sums + bits, 4 * product, attention=True)

    def optimizer(self, bytes_per_parameter):
        """One kernel per bucket of 25 MiB, which also writes the parameters in bfloat16."""
        self.add("optimizer", (bytes_per_parameter + HALF) * self.parameters, launches=-(-FULL * self.parameters // (25 << 20)))


def conv(step, batch, inputs, outputs, kernel, side, stride=1, residual=False, data=True, bias=False, norm=True):
    """A convolution to side × side pixels, and its batch norm."""
    weights, x, y = outputs * kernel**2 * inputs, batch * (side * stride) ** 2 * inputs, batch * side**2 * outputs
    operations = 2 * batch * side**2 * weights
    step.parameters += weights + (bias + 2 * norm) * outputs
    step.add("convolution forward", HALF * (x + y + weights), operations, forward=True)
    if data:
        step.add("convolution gradient of the input", HALF * (x + y + weights), operations)
    step.add("convolution gradient of the filters", HALF * (x + y) + FULL * weights, operations)
    if bias:
        step.traffic("convolution bias", y, 2)
        step.traffic("convolution gradient of the bias", y, 1, launches=2)
    if norm:
        step.batch_norm(y, residual)


def resnet(name, blocks, bottleneck, batch):
    step = Step()
    conv(step, batch, 3, 64, 7, 112, 2, data=False)
    step.traffic("max pooling", batch * 64 * (112 * 112 + 1.5 * 56 * 56), 2, launches=2)
    channels, side = 64, 56
    for stage, count in enumerate(blocks):
        width = 64 << stage
        outputs = 4 * width if bottleneck else width
        for block in range(count):
            stride = 2 if stage > 0 and block == 0 else 1
            before, side = side, side // stride
            if bottleneck:
                conv(step, batch, channels, width, 1, before)
                conv(step, batch, width, width, 3, side, stride)
                conv(step, batch, width, outputs, 1, side, residual=True)
            else:
                conv(step, batch, channels, width, 3, side, stride)
                conv(step, batch, width, width, 3, side, residual=True)
            if channels != outputs or stride > 1:
                conv(step, batch, channels, outputs, 1, side, stride)
            step.traffic("sums of two gradients", batch * before**2 * channels, 3)
            channels = outputs
    step.traffic("average pooling", batch * channels * side * side, 1, launches=2)
    linear(step, batch, channels, 1000)
    step.optimizer(MOMENTUM)
    return step, predict_models.model(name), batch


def resnet18(batch):
    return resnet("resnet18", (2, 2, 2, 2), False, batch)


def resnet50(batch):
    return resnet("resnet50", (3, 4, 6, 3), True, batch)


def vgg16_bn(batch):
    step, channels, side = Step(), 3, 224
    for width, count in ((64, 2), (128, 2), (256, 3), (512, 3), (512, 3)):
        for _ in range(count):
            conv(step, batch, channels, width, 3, side, data=channels > 3, bias=True)
            channels = width
        step.traffic("max pooling", batch * channels * 1.375 * side**2, 2, launches=2)
        side //= 2
    features = channels * side**2
    step.traffic("average pooling and transposition", batch * features, 4, launches=4)
    for inputs, outputs in ((features, 4096), (4096, 4096)):
        linear(step, batch, inputs, outputs)
        step.traffic("ReLU", batch * outputs, 4, launches=2)
        step.traffic("dropout", batch * outputs, 4, launches=2)
    linear(step, batch, 4096, 1000)
    step.optimizer(MOMENTUM)
    return step, predict_models.model("vgg16_bn"), batch


def linear(step, m, inputs, outputs, adds=False, bias=True):
    step.product("linear", m, inputs, outputs, adds=adds)
    step.parameters += (inputs + bias) * outputs


def mlp(step, m, width, adds=False):
    linear(step, m, width, 4 * width, adds)
    step.traffic("GELU forward", 4 * m * width, 2)
    step.traffic("GELU gradient", 4 * m * width, 3)
    linear(step, m, 4 * width, width)


def bert_base(batch, tokens=384, width=768):
    """SQuAD, with dropout."""
    step, m = Step(), batch * tokens
    step.parameters = (30522 + 512 + 2) * width + 2 * width
    step.add("embedding", FULL * m * width * 16, launches=16)
    for _ in range(12):
        linear(step, m, width, 3 * width, adds=True)  # three weights, joined for the gradient of the input
        step.add("copies of weights", 2 * HALF * 3 * width * width)
        step.attention(batch, tokens, width, dropout=True)
        linear(step, m, width, width)
        mlp(step, m, width, adds=True)
        for _ in range(2):
            step.traffic("dropout", m * width, 4, launches=2)
            step.layer_norm(m * width, residual=True)
            step.parameters += 2 * width
    linear(step, m, width, 2)
    step.optimizer(ADAMW)
    return step, predict_models.model("bert_base"), batch


def pre_norm_layer(step, batch, tokens, width, causal=False):
    """A transformer layer that normalizes before attention and before the perceptron, as in ViT and GPT-2."""
    m = batch * tokens
    for _ in range(2):
        step.layer_norm(m * width, residual=False)
        step.parameters += 2 * width
        step.traffic("residual sums", m * width, 3)
        step.traffic("sums of two gradients", m * width, 3)
    linear(step, m, width, 3 * width)
    step.attention(batch, tokens, width, causal=causal)
    linear(step, m, width, width)
    mlp(step, m, width)


def vit_b_16(batch, width=768):
    step, m = Step(), batch * 197
    conv(step, batch, 3, width, 16, 14, 16, data=False, bias=True, norm=False)
    step.parameters += 198 * width + 2 * width
    step.traffic("class token and positions", m * width, 4, launches=4)
    for _ in range(12):
        pre_norm_layer(step, batch, 197, width)
    step.traffic("selection of the class token", m * width, 1, launches=2)
    step.layer_norm(batch * width, residual=False)
    linear(step, batch, width, 1000)
    step.optimizer(ADAMW)
    return step, predict_models.model("vit_b_16"), batch


def lstm_large(batch, time=35, width=1500, words=10000):
    """Two layers, with dropout before, between and after them. The products of a step follow each other."""
    step, m, cells = Step(), batch * time, batch * width
    step.parameters = words * width
    step.add("embedding", FULL * m * width * 2 + FULL * words * width, launches=3)
    for _ in range(2):
        linear(step, m, width, 4 * width)
        recurrent, operations = HALF * (5 * cells + 4 * width * width), 8 * cells * width
        for _ in range(time):
            step.add("recurrent product forward", recurrent, operations, forward=True)
            step.add("cells forward", (13 * HALF + 2 * FULL) * cells)
            step.add("cells backward", (10 * HALF + 4 * FULL) * cells)
        for _ in range(time - 1):
            step.add("recurrent product gradient of h", recurrent, operations)
        step.add("recurrent product gradient of the weights", HALF * 5 * m * width + FULL * 4 * width * width, 8 * m * width * width)
        step.parameters += 4 * width * (width + 1)  # a second bias
    step.traffic("dropout", m * width, 12, launches=6)
    linear(step, m, width, words)
    step.add("cross entropy", (HALF + 3 * FULL) * m * words + (FULL + HALF) * m * words, launches=4)  # with casts to float32
    step.optimizer(SGD)
    return step, predict_models.model("lstm_large"), batch


def gpt2(batch, tokens=1024, width=768, words=50257):
    """124 million parameters, without dropout."""
    step, m = Step(), batch * tokens
    step.parameters = (words + tokens) * width + 2 * width
    step.add("embedding", FULL * m * width * 9, launches=9)
    step.layer_norm(m * width, residual=False)
    for _ in range(12):
        pre_norm_layer(step, batch, tokens, width, causal=True)
    output_layer(step, m, width, words)
    step.optimizer(ADAMW)
    return step, predict_models.model("gpt2"), batch


def output_layer(step, m, width, words):
    """The logits are computed in parts, and a second time for the gradients (autograd/ops/linear_cross_entropy.h)."""
    parts, logits, operations = 14, m * words, 2 * m * width * words
    step.product("output layer", m, width, words)
    step.add("output layer logits, again", HALF * logits, operations, launches=parts)
    step.add("output layer sums of the parts", 2 * FULL * parts * m * width, launches=0)  # of the gradient of its input
    step.add("cross entropy", HALF * 3 * logits, launches=2 * parts)


def llama3_1b(batch, tokens=2048, width=2048, inner=8192, heads=32, kv_heads=8, words=128256):
    """RMSNorm moves the bytes of layer norm without a residual."""
    step, m, keys = Step(), batch * tokens, width * kv_heads // heads
    step.parameters = words * width + width
    step.add("embedding", FULL * m * width * 4, launches=4)
    for _ in range(16):
        for _ in range(2):
            step.layer_norm(m * width, residual=False)
            step.parameters += width
            step.traffic("residual sums", m * width, 3)
            step.traffic("sums of two gradients", m * width, 3)
        for i, outputs in enumerate((width, keys, keys)):
            linear(step, m, width, outputs, adds=i > 0, bias=False)
        step.traffic("rotary positions", m * (width + keys), 4, launches=4)
        step.attention(batch, tokens, width, causal=True, heads=heads, keys=keys)
        linear(step, m, width, width, bias=False)
        for i in range(2):
            linear(step, m, width, inner, adds=i > 0, bias=False)
        step.traffic("SwiGLU forward", m * inner, 3)
        step.traffic("SwiGLU gradients", m * inner, 7, launches=2)
        linear(step, m, inner, width, bias=False)
    step.layer_norm(m * width, residual=False)
    output_layer(step, m, width, words)
    step.optimizer(ADAMW)
    return step, predict_models.model("llama3_1b", tokens), batch


IMAGES = "images of 224 × 224"
MODELS = {"resnet18": (resnet18, 256, IMAGES), "resnet50": (resnet50, 256, IMAGES), "vgg16_bn": (vgg16_bn, 64, IMAGES),
          "vit_b_16": (vit_b_16, 128, IMAGES), "bert_base": (bert_base, 32, "texts of 384 tokens"),
          "lstm_large": (lstm_large, 20, "windows of 35 words"), "gpt2": (gpt2, 8, "texts of 1,024 tokens"),
          "llama3_1b": (llama3_1b, 4, "texts of 2,048 tokens")}
CAUSAL = ("gpt2", "llama3_1b")


def check(name, step, layers, batch):
    """Checks that tools/predict_models.py has the same number of parameters and of forward operations."""
    parameters = predict_models.parameters(layers)
    operations = sum(layer.flops for layer in layers) * batch
    ours = sum(k.operations for k in step.kernels if k.forward)
    if name in CAUSAL:  # tools/predict_models.py counts masked scores
        ours += sum(k.operations for k in step.kernels if k.forward and k.attention)
    if step.parameters != parameters or abs(ours / operations - 1) > 1e-9:
        sys.exit(f"roofline: {name} has {step.parameters} parameters and {ours:.0f} forward operations; "
                 f"tools/predict_models.py counts {parameters} and {operations:.0f}")


def kernels_table(step):
    groups = {}
    for kernel in step.kernels:
        count, operations, bytes_ = groups.get(kernel.group, (0, 0, 0))
        groups[kernel.group] = (count + kernel.launches, operations + kernel.operations, bytes_ + kernel.bytes)
    lines = ["| kernels | launches | TFLOP | GB | " + " | ".join(f"{gpu}, ms" for gpu in GPUS) + " |",
             "| --- |" + " ---: |" * (3 + len(GPUS))]
    for group, (count, operations, bytes_) in groups.items():
        part = Step()
        part.kernels = [kernel for kernel in step.kernels if kernel.group == group]
        times = " | ".join(f"{1000 * part.seconds(gpu):.2f}" for gpu in GPUS)
        lines.append(f"| {group} | {count} | {operations / 1e12:.2f} | {bytes_ / 1e9:.2f} | {times} |")
    return lines


def check_pages(pages, rows, tables):
    """Checks that the pages contain the rows of the steps, with a column of measured times before the last, and the tables."""
    there = [line for page in pages for line in page.read_text().splitlines()]

    def found(row):
        estimates, _, bounds = row.rpartition(" | ")
        return any(line.startswith(f"{estimates} | ") and line.endswith(f" | {bounds}") for line in there)

    wrong = [row for row in rows if not found(row)] + [line for line in tables if line not in there]
    if wrong:
        sys.exit("\n".join([f"roofline: {', '.join(map(str, pages))} must contain these lines, from bench/roofline.py --kernels:", *wrong]))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", metavar="MODEL", default=list(MODELS))
    parser.add_argument("--batch", type=int, help="samples in a step (default: by model)")
    parser.add_argument("--kernels", action="store_true", help="also print every group of kernels")
    parser.add_argument("--check", nargs="+", metavar="PAGE", type=pathlib.Path, help="check that these pages contain the figures")
    options = parser.parse_args()
    for name in options.models:
        if name not in MODELS:
            parser.error(f"no such model: {name}; expected one of {', '.join(MODELS)}")
    if options.batch is not None and options.batch < 1:
        parser.error(f"--batch {options.batch}; expected at least 1")
    lines = ["| step | kernels | TFLOP | GB | " + " | ".join(f"{gpu}, ms" for gpu in GPUS) + " | at the peaks, ms |",
             "| --- |" + " ---: |" * (4 + len(GPUS))]
    tables = []
    for name in options.models:
        build, batch, unit = MODELS[name]
        step, layers, batch = build(options.batch or batch)
        check(name, step, layers, batch)
        operations, bytes_ = (sum(getattr(k, field) for k in step.kernels) for field in ("operations", "bytes"))
        times = " | ".join(f"{1000 * step.seconds(gpu):.0f}" for gpu in GPUS)
        bounds = ", ".join(f"{1000 * step.bound(gpu):.0f}" for gpu in GPUS)
        lines.append(f"| `{name}`, {batch} {unit} | {sum(k.launches for k in step.kernels)} | {operations / 1e12:.1f} | "
                     f"{bytes_ / 1e9:.0f} | {times} | {bounds} |")
        if options.kernels:
            tables += ["", f"## `{name}`, {batch} {unit}", "", *kernels_table(step)]
    if options.check:
        return check_pages(options.check, lines[2:], tables)
    print("\n".join(lines + tables))


main()
