"""Models for tools/predict: operations, and parameters in the order in which the engine's models register them.

A model is a list of layers in order of the forward pass. Forward operations are counted for one sample: two per
multiply-add of convolutions, matrix products and attention. Other operations are not counted.
"""
import gzip
import json
import math
import pathlib
from collections import namedtuple

Layer = namedtuple("Layer", "shapes flops")  # shapes of its parameters; forward operations per sample


def numel(shape):
    return math.prod(shape)


def parameters(layers):
    return sum(numel(shape) for layer in layers for shape in layer.shapes)


def conv(inputs, outputs, kernel, side, bias=False):
    """side: height and width of the output. Throws if the output is empty."""
    if side < 1:
        raise ValueError("needs larger images")
    weight = (outputs, kernel, kernel, inputs)
    return Layer([weight] + [(outputs,)] * bias, 2 * numel(weight) * side * side)


def norm(width):
    return Layer([(width,), (width,)], 0)


def linear(inputs, outputs, tokens=1, bias=True):
    return Layer([(outputs, inputs)] + [(outputs,)] * bias, 2 * inputs * outputs * tokens)


def attention(width, tokens):
    return Layer([], 4 * width * tokens * tokens)


def half(side):
    """Side after a convolution or a pooling with padding and a stride of 2."""
    return (side + 1) // 2


def resnet(side, classes, blocks, bottleneck=False, cifar=False, colors=3, stem=7):
    """He et al. 2015, table 1; the CIFAR form of section 4.2 has shortcuts without parameters. stem: kernel of the first layer; 3: no pooling."""
    width = channels = 16 if cifar else 64
    small = cifar or stem == 3
    if side < (1 if small else 4) << (len(blocks) - 1):
        raise ValueError("needs larger images")
    side = side if small else half(side)
    layers = [conv(colors, width, 3 if small else 7, side), norm(width)]
    side = side if small else half(side)
    for stage, count in enumerate(blocks):
        for block in range(count):
            stride = 2 if stage > 0 and block == 0 else 1
            before, side, outputs = side, half(side) if stride == 2 else side, 4 * width if bottleneck else width
            if bottleneck:
                layers += [conv(channels, width, 1, before), norm(width), conv(width, width, 3, side), norm(width)]
                layers += [conv(width, outputs, 1, side), norm(outputs)]
            else:
                layers += [conv(channels, width, 3, side), norm(width), conv(width, width, 3, side), norm(width)]
            if not cifar and (stride > 1 or channels != outputs):
                layers += [conv(channels, outputs, 1, side), norm(outputs)]
            channels = outputs
        width *= 2
    return layers + [linear(channels, classes)]


def vgg16(side, classes, batch_norm=False, cifar=False, colors=3):
    """Simonyan and Zisserman 2014, table 1, column D."""
    layers, channels = [], colors
    for width, count in ((64, 2), (128, 2), (256, 3), (512, 3), (512, 3)):
        for _ in range(count):
            layers += [conv(channels, width, 3, side, bias=True)] + [norm(width)] * batch_norm
            channels = width
        side //= 2
    if cifar:
        return layers + [linear(channels, classes)]
    return layers + [linear(channels * 49, 4096), linear(4096, 4096), linear(4096, classes)]


def vit(side, classes, width, depth=12, patch=16, colors=3):
    """Dosovitskiy et al. 2020, table 1: 12 layers, patches of 16 × 16."""
    if side < patch:
        raise ValueError("needs larger images")
    if side % patch:
        raise ValueError(f"needs images with a multiple of {patch} pixels per side")
    patches = (side // patch) ** 2
    tokens = patches + 1
    layers = [Layer([(1, 1, width)], 0), conv(colors, width, patch, side // patch, bias=True), Layer([(1, tokens, width)], 0)]
    for _ in range(depth):
        layers += [norm(width), linear(width, 3 * width, tokens), attention(width, tokens), linear(width, width, tokens)]
        layers += [norm(width), linear(width, 4 * width, tokens), linear(4 * width, width, tokens)]
    return layers + [norm(width), linear(width, classes)]


def bert(tokens, words, depth, width, pretraining=False, labels=0):
    """Devlin et al. 2018, section 3; sizes below base: Turc et al. 2019. With the head of SQuAD, of pre-training, or of classification if labels > 0."""
    if tokens > 512:
        raise ValueError("has 512 positions")
    layers = [Layer([(words, width), (512, width), (2, width)], 0), norm(width)]
    for _ in range(depth):
        layers += [linear(width, width, tokens)] * 3 + [attention(width, tokens), linear(width, width, tokens), norm(width)]
        layers += [linear(width, 4 * width, tokens), linear(4 * width, width, tokens), norm(width)]
    if labels:
        return layers + [linear(width, width), linear(width, labels)]
    if not pretraining:
        return layers + [linear(width, 2, tokens)]
    masked = round(0.15 * tokens)  # the decoder of masked words uses the weights of the embedding
    layers += [linear(width, width), Layer([(words,)], 2 * words * width * masked), linear(width, width, masked)]
    return layers + [norm(width), linear(width, 2)]


def lstm(tokens, words, embedding, widths, tied=False):
    """Zaremba et al. 2014, section 4.1; Merity et al. 2017, section 5."""
    layers, inputs = [Layer([(words, embedding)], 0)], embedding
    for width in widths:
        shapes = [(4 * width, inputs), (4 * width, width), (4 * width,), (4 * width,)]
        layers.append(Layer(shapes, 8 * width * (inputs + width) * tokens))
        inputs = width
    shapes = [(words,)] if tied else [(words, inputs), (words,)]
    return layers + [Layer(shapes, 2 * words * inputs * tokens)]


def gpt(tokens, words, depth, width, positions=1024):
    """Radford et al. 2019, table 2; the output layer shares the weights of the embedding. `positions` None stands for the
    number of tokens."""
    positions = positions or tokens
    if tokens > positions:
        raise ValueError(f"has {positions} positions")
    layers = [Layer([(words, width)], 0), Layer([(positions, width)], 0)]
    for _ in range(depth):
        layers += [norm(width), linear(width, 3 * width, tokens), attention(width, tokens), linear(width, width, tokens)]
        layers += [norm(width), linear(width, 4 * width, tokens), linear(4 * width, width, tokens)]
    return layers + [norm(width), Layer([], 2 * words * width * tokens)]


def llama(tokens, words, depth, width, inner, heads, kv_heads, head_width=None, tied=False, qkv_bias=False, output_bias=False, mlp_bias=False,
          experts=0, used=2):
    """Touvron et al. 2023 with grouped-query attention; Jiang et al. 2024 with experts, of which a token uses `used`."""
    head_width = head_width or width // heads
    queries, keys, rms_norm = heads * head_width, kv_heads * head_width, Layer([(width,)], 0)
    layers = [Layer([(words, width)], 0)]
    for _ in range(depth):
        layers += [linear(width, outputs, tokens, qkv_bias) for outputs in (queries, keys, keys)]
        layers += [attention(queries, tokens), linear(queries, width, tokens, output_bias)]
        if experts:
            layers.append(linear(width, experts, tokens, bias=False))
            layers += [linear(*sides, tokens * used / experts, bias=False) for _ in range(experts) for sides in ((width, inner), (inner, width), (width, inner))]
        else:
            layers += [linear(*sides, tokens, mlp_bias) for sides in ((width, inner), (width, inner), (inner, width))]
        layers += [rms_norm, rms_norm]
    return layers + [rms_norm, Layer([] if tied else [(words, width)], 2 * words * width * tokens)]


# For each name: builder, size of an input (side of an image, tokens of a text), classes or words, further arguments.
TABLE = {
    "resnet18": (resnet, 224, 1000, [2, 2, 2, 2]),
    "resnet34": (resnet, 224, 1000, [3, 4, 6, 3]),
    "resnet50": (resnet, 224, 1000, [3, 4, 6, 3], True),
    "resnet101": (resnet, 224, 1000, [3, 4, 23, 3], True),
    "resnet20": (resnet, 32, 10, [3, 3, 3], False, True),
    "resnet32": (resnet, 32, 10, [5, 5, 5], False, True),
    "resnet56": (resnet, 32, 10, [9, 9, 9], False, True),
    "vgg16": (vgg16, 224, 1000),
    "vgg16_bn": (vgg16, 224, 1000, True),
    "vgg16_cifar": (vgg16, 32, 10, True, True),
    "vit_tiny": (vit, 224, 1000, 192),
    "vit_small": (vit, 224, 1000, 384),
    "vit_b_16": (vit, 224, 1000, 768),
    "lstm_small": (lstm, 35, 10000, 200, [200] * 2),
    "lstm_medium": (lstm, 35, 10000, 650, [650] * 2),
    "lstm_large": (lstm, 35, 10000, 1500, [1500] * 2),
    "lstm_awd": (lstm, 70, 10000, 400, [1150, 1150, 400], True),
    "gpt2_nano": (gpt, 64, 65, 4, 128, None),
    "gpt2_micro": (gpt, 256, 65, 6, 384, None),
    "gpt2": (gpt, 1024, 50257, 12, 768),
    "gpt2_medium": (gpt, 1024, 50257, 24, 1024),
    "gpt2_large": (gpt, 1024, 50257, 36, 1280),
    "gpt2_xl": (gpt, 1024, 50257, 48, 1600),
    "llama_nano": (llama, 64, 65, 4, 128, 344, 4, 2, None, True),
    "llama_micro": (llama, 256, 65, 6, 384, 1024, 6, 2, None, True),
    "mixtral_nano": (llama, 64, 65, 4, 128, 256, 4, 2, None, True, False, False, False, 4),
    "llama3_1b": (llama, 8192, 128256, 16, 2048, 8192, 32, 8, None, True),
    "llama3_8b": (llama, 8192, 128256, 32, 4096, 14336, 32, 8),
    "mistral_7b": (llama, 8192, 32000, 32, 4096, 14336, 32, 8),
    "qwen2_0_5b": (llama, 8192, 151936, 24, 896, 4864, 14, 2, None, True, True),
    "mixtral_8x7b": (llama, 8192, 32000, 32, 4096, 14336, 32, 8, None, False, False, False, False, 8),
}
BERT_SIZES = {"tiny": (2, 128), "mini": (4, 256), "small": (4, 512), "medium": (8, 512), "base": (12, 768), "large": (24, 1024)}
for size, shape in BERT_SIZES.items():
    TABLE[f"bert_{size}"] = (bert, 384, 30522, *shape)
    TABLE[f"bert_{size}_pretraining"] = (bert, 128, 30522, *shape, True)


def add_saved(folder, tokens):
    """The name in TABLE of the network in a HuggingFace folder. Adds language models to TABLE. Other names may be
    missing."""
    config = json.loads((folder / "config.json").read_text())
    kind = config["model_type"]
    if kind == "gpt2":
        name = f"gpt2 of {config['n_layer']} layers of {config['n_embd']}"
        TABLE[name] = (gpt, tokens, *(config[key] for key in ("vocab_size", "n_layer", "n_embd", "n_positions")))
        return name
    depth, width = config.get("num_hidden_layers"), config.get("hidden_size")
    name = f"{kind} of {depth} layers of {width}"
    if kind in ("llama", "mistral", "qwen2", "mixtral"):
        heads, bias = config["num_attention_heads"], config.get("attention_bias", False)
        TABLE[name] = (llama, tokens, config["vocab_size"], depth, width, config["intermediate_size"], heads, config.get("num_key_value_heads") or heads,
                       config.get("head_dim"), config["tie_word_embeddings"], bias or kind == "qwen2", bias, config.get("mlp_bias", False),
                       config.get("num_local_experts", 0), config.get("num_experts_per_tok", 2))
    names = [f"bert_{size}" for size in BERT_SIZES if kind == "bert" and BERT_SIZES[size] == (depth, width)]
    return names[0] if names else name


def set_saved(name, folder, config):
    """Replaces the sizes of a model in TABLE, except the number of classes or words, by the sizes of the run in a
    folder. Returns the size of an input. If the images of the run cannot be read, returns None, and TABLE keeps its
    input size."""
    builder, usual, classes, *rest = TABLE[name]
    network, data = config["model"], config["data"]
    size = saved_side(data) if builder in (resnet, vgg16) else data.get("length") or usual
    if builder is lstm:
        embedding, hidden, tied = network["embedding"], network["hidden"], network["tied"]
        rest = [embedding, [hidden] * (network["layers"] - 1) + [embedding if tied else hidden], tied]
    elif builder is bert and config.get("task") == "classify":
        rest = [*rest[:2], False, saved_shapes(folder / "model" / "model.safetensors")["classifier.bias"][0]]
    elif builder in (resnet, vgg16, vit):
        shapes = saved_shapes(folder / "weights.safetensors")
        if builder is vit:
            width, colors, patch, _ = shapes["conv_proj.weight"]
            depth = sum(shape == [3 * width, width] for shape in shapes.values())
            size, rest = patch * math.isqrt(shapes["encoder.pos_embedding"][1] - 1), [width, depth, patch, colors]
        elif builder is vgg16:
            rest = [*(rest + [False, False])[:2], shapes["features.0.weight"][1]]
        elif builder is resnet:
            rest = [*(rest + [False, False])[:3], shapes["conv1.weight"][1], shapes["conv1.weight"][2]]
    TABLE[name] = (builder, size or usual, classes, *rest)
    return size


def saved_side(data):
    """The side of the images of a run, as data/image reads its data folder; None if the folder cannot be read."""
    if data.get("crop"):
        return data["crop"]
    try:
        paths = list(pathlib.Path(data.get("path") or "/usr/share/datasets/fashion-mnist").iterdir())
        for path in paths:
            if path.name.startswith("train-images"):
                with (gzip.open if path.suffix == ".gz" else open)(path, "rb") as file:
                    header = file.read(16)
                height, width = (int.from_bytes(header[begin : begin + 4], "big") for begin in (8, 12))
                return round(math.sqrt(height * width)) or None
    except (OSError, EOFError):
        return None
    cifar = any(path.name.startswith(("data_batch_", "test_batch.bin", "train.bin", "test.bin")) for path in paths)
    return 32 if cifar else 224  # 224: the default of data.crop


def saved_shapes(path):
    """The shapes of the tensors in a safetensors file, by name."""
    with open(path, "rb") as file:
        header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
    return {name: tensor["shape"] for name, tensor in header.items() if name != "__metadata__"}


def model(name, size=None, classes=None):
    """The layers of a named model. size and classes (or words) replace the values of TABLE."""
    builder, usual_size, usual_classes, *rest = TABLE[name]
    return builder(size or usual_size, usual_classes if classes is None else classes, *rest)


def classes_for(name, count):
    """The number of classes (or words) with which a model has `count` parameters; None if there is none."""
    none, each = (parameters(model(name, classes=n)) for n in (0, 1))
    classes, remainder = divmod(count - none, each - none)
    return classes if classes > 0 and remainder == 0 else None
