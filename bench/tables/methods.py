"""The methods of the tables: (first learning rate, flags) by name. Settings that tables share."""

# Arguments of Table that several tables share.
CIFAR10 = {"program": "train_resnet", "metric": "test_top1", "better": max, "factor": 100, "unit": "test accuracy, %",
           "data": "the binary files of CIFAR-10"}
TINY_IMAGENET = CIFAR10 | {"data": "tiny-imagenet-20"}
SST2 = {"program": "train_bert", "metric": "test_accuracy", "better": max, "factor": 100, "unit": "accuracy, %", "data": "SST-2"}
KING_JAMES = {"program": "train_bert", "metric": "mlm_loss", "better": min, "unit": "loss of masked words"}
# Learning rates of language models on tiny Shakespeare are not chosen.
TINY_SHAKESPEARE = {"program": "train_gpt", "metric": "val_loss", "better": min, "unit": "validation loss",
                    "data": "input.txt of tiny Shakespeare", "validation": None}
EXCHANGES = {"loco_4_bits": "loco", "ef_signsgd": "ef_signsgd", "powersgd": "powersgd"}


def options(text):
    """The words of text, with --set before each KEY=VALUE."""
    return [part for word in text.split() for part in (["--set", word] if "=" in word else [word])]


def headline(base, decay=None, sgdm_decay=None, beta=None, birder_beta_half=None, **rates):
    """The methods of rates, each with its first learning rate, and Birder with compensate_nodes. An exchange is used with the optimizer `base` and has its
    rate. decay: the weight decay of methods with Adam's updates, by default that of the program; sgdm_decay: that of SGDM. beta: β of the methods
    that have it, by default that of the program. birder_beta_half: first rate of Birder with β = 0.5."""
    adam = options(f"optimizer.weight_decay={decay}") if decay else []
    sgdm = options(f"optimizer.weight_decay={sgdm_decay}") if sgdm_decay else []
    of_beta = options(f"optimizer.beta={beta}") if beta else []
    flags = lambda optimizer: ["--optimizer", optimizer, *(sgdm if optimizer == "sgdm" else adam), *(of_beta if optimizer in ("birder", "softsignsgd") else [])]
    methods = {name: (rate, flags(name)) for name, rate in rates.items()}
    if "birder" in rates:
        methods["birder_compensated"] = rates["birder"], [*flags("birder"), *options("optimizer.compensate_nodes=true")]
    if birder_beta_half:
        methods["birder_beta_0.5"] = birder_beta_half, ["--optimizer", "birder", *adam, *options("optimizer.beta=0.5")]
    return methods | {name: (rates[base], [*flags(base), "--exchange", exchange]) for name, exchange in EXCHANGES.items()}


def language_models(**rates):
    """The optimizers of rates, Adam with 16 bits, and with AdamW the exchanges of LoCo's tables: 16, 4 and 8 bits. train_gpt would pick hybrid
    sharding for all methods except ZeRO++ and LoCo-Zero++."""
    unsharded = options("exchange.sharding=none")
    methods = {name: (rate, ["--optimizer", name, *unsharded]) for name, rate in rates.items()}
    bf16 = [*options("exchange.wire=bf16"), *unsharded]
    exchanges = {"adamw_bf16": bf16, "loco_4_bits": ["--exchange", "loco", *unsharded],
                 "loco_zeropp": ["--exchange", "loco_zeropp"], "zeropp": ["--exchange", "zeropp"]}
    methods["adam_bf16"] = (rates["adamw"], ["--optimizer", "adam", *bf16])
    return methods | {name: (rates["adamw"], ["--optimizer", "adamw", *flags]) for name, flags in exchanges.items()}


def variants(rate, flags, changes):
    """A method with the flags and options of each variant, all with one learning rate."""
    return {name: (rate, [*options(flags), *options(change)]) for name, change in changes.items()}


def birder_by_nodes(rate, batch, shapes):
    """Birder with n nodes of m workers for each n × m of shapes and `batch` samples in a step: with `rate`, with compensate_nodes, and with
    √n times the rate."""
    methods = {}
    for name, change in (("birder", ""), ("birder compensated", " optimizer.compensate_nodes=true"), ("birder rate·√n", "")):
        for n, m in shapes:
            if n > 1 or name == "birder":
                shape = f"--nodes {n} --workers-per-node {m} --batch {batch // (n * m)}"
                methods[f"{name} {n} × {m}"] = rate * n ** 0.5 if "√" in name else rate, options(f"--optimizer birder {shape}{change}")
    return methods
