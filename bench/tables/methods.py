"""The methods of the headline tables: flags by name."""


def optimizer(name, *settings):
    return ["--optimizer", name, *(part for setting in settings for part in ("--set", setting))]


def exchange(name, base, *settings):
    return ["--optimizer", base, "--exchange", name, *(part for setting in settings for part in ("--set", setting))]


def headline(rates, base, decay=None):
    """Nine methods by name: (first learning rate, flags). rates: by kind of method; base: the optimizer behind exchanges;
    decay: the weight decay of methods with Adam's updates, by default that of the program."""
    adam = [f"optimizer.weight_decay={decay}"] if decay else []
    return {
        "sgdm": (rates["sgdm"], optimizer("sgdm")),
        "adamw": (rates["adam"], optimizer("adamw", *adam)),
        "softsignsgd": (rates["sign"], optimizer("softsignsgd", *adam)),
        "birder": (rates["sign"], optimizer("birder", *adam)),
        "one_bit_adam": (rates["adam"], optimizer("one_bit_adam", *adam)),
        "zero_one_adam": (rates["adam"], optimizer("zero_one_adam", *adam)),
        "loco_4_bits": (rates["sgdm" if base == "sgdm" else "adam"], exchange("loco", base)),
        "ef_signsgd": (rates["sgdm" if base == "sgdm" else "adam"], exchange("ef_signsgd", base)),
        "powersgd": (rates["sgdm" if base == "sgdm" else "adam"], exchange("powersgd", base)),
    }
