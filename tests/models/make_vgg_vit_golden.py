#!/usr/bin/env python3
"""Writes golden/vgg16*.json, vit*.json, vgg_vit_names.json, timm.*: PyTorch's results for VGG-16 and ViT.

Needs torch, torchvision and timm (PyPI); run it as `python3 tests/models/make_vgg_vit_golden.py`. The networks are
torchvision's classes with fewer channels, so that the tests take seconds; dropout is 0. Weights and images are those of
make_golden.py.
"""
import json

import timm
import torch
from torch import nn
from torchvision.models import VisionTransformer, vgg, vgg16, vgg16_bn, vit_b_16

import make_golden
from make_golden import GOLDEN, compare, fill, names, unit, write_safetensors

NARROW = [8, 8, "M", 16, 16, "M", 16, 24, 24, "M", 24, 32, 32, "M", 32, 32, 32, "M"]
HIDDEN = 40


def narrow_vgg(batch_norm):
    model = vgg.VGG(vgg.make_layers(NARROW, batch_norm), num_classes=10, init_weights=False, dropout=0.0)
    model.classifier[0] = nn.Linear(NARROW[-2] * 49, HIDDEN)
    model.classifier[3] = nn.Linear(HIDDEN, HIDDEN)
    model.classifier[6] = nn.Linear(HIDDEN, 10)
    return model


class CifarVgg(nn.Module):
    """torchvision's features, the mean over the pixels, and one linear layer."""

    def __init__(self, channels, num_classes):
        super().__init__()
        self.features = vgg.make_layers(channels, batch_norm=True)
        self.classifier = nn.Linear(channels[-2], num_classes)

    def forward(self, x):
        return self.classifier(self.features(x).mean((2, 3)))


def vit(image_size, patch_size, layers, heads, width, classes):
    return VisionTransformer(image_size=image_size, patch_size=patch_size, num_layers=layers, num_heads=heads,
                             hidden_dim=width, mlp_dim=4 * width, num_classes=classes)


def biases_before_batch_norm(model):
    """Biases that batch norm removes: their gradients are 0 but for rounding."""
    layers = list(getattr(model, "features", []))
    pairs = zip(layers, layers[1:])
    return [f"features.{i}.bias" for i, (a, b) in enumerate(pairs)
            if isinstance(a, nn.Conv2d) and isinstance(b, nn.BatchNorm2d)]


def without_zero_gradients(train):
    """make_golden.train() without the gradients that are 0, whose relative errors have no meaning."""
    def run(model, *arguments):
        result = train(model, *arguments)
        for name in biases_before_batch_norm(model):
            result["gradients"].pop(name)
        return result
    return run


def timm_weights():
    """A small timm ViT: its weights as safetensors, and its logits for a batch of images."""
    model = timm.models.vision_transformer.VisionTransformer(
        img_size=8, patch_size=4, embed_dim=12, depth=2, num_heads=2, num_classes=5).eval()
    fill(model)
    write_safetensors(GOLDEN / "timm.safetensors", model.state_dict())
    x = torch.from_numpy(unit("images", 2 * 3 * 8 * 8).reshape(2, 3, 8, 8)).float()
    (GOLDEN / "timm.json").write_text(json.dumps({"logits": model(x).flatten().tolist()}) + "\n")


def main():
    torch.manual_seed(0)
    make_golden.train = without_zero_gradients(make_golden.train)
    common = {"classes": 10, "momentum": 0.9, "batch": 4, "label_smoothing": 0.0}
    cases = {
        "vgg16": (lambda: narrow_vgg(False), {**common, "image": 64, "lr": 0.01}),
        "vgg16_bn": (lambda: narrow_vgg(True), {**common, "image": 40, "lr": 0.001, "label_smoothing": 0.1}),
        "vgg16_cifar": (lambda: CifarVgg(NARROW, 10), {**common, "image": 32, "lr": 0.001}),
        "vit": (lambda: vit(16, 4, 2, 3, 24, 10), {**common, "image": 16, "lr": 0.01, "label_smoothing": 0.1}),
    }
    for name, (model, case) in cases.items():
        result = compare(model, case)
        print(name, result["losses"], result["float32_error"])
        (GOLDEN / f"{name}.json").write_text(json.dumps(result, separators=(",", ":")) + "\n")
    lists = {"vgg16": vgg16(), "vgg16_bn": vgg16_bn(), "vgg16_cifar": CifarVgg(vgg.cfgs["D"], 10),
             "vit_b_16": vit_b_16(), "vit_tiny": vit(224, 16, 12, 3, 192, 1000),
             "vit_small": vit(224, 16, 12, 6, 384, 1000)}
    lists = {name: names(model) for name, model in lists.items()}
    (GOLDEN / "vgg_vit_names.json").write_text(json.dumps(lists, indent=1) + "\n")
    timm_weights()


if __name__ == "__main__":
    main()
