#!/usr/bin/env python3
"""Peer of bench_train_step: the same training step (network, sizes, optimizer) in PyTorch, with channels_last.

  python3 bench/peers/train_step.py [model=resnet50] [batch=16] [image=224] [threads=cores] [steps=7] [dtype=f32] [compile=0]
                                    [device=cpu] [json=0]

dtype=bf16 uses autocast. The optimizer is the fused SGD. Requires torch and torchvision (PyPI).
"""
import torch
import torchvision

import peer

settings = peer.parse("train_step.py", dict(model="resnet50", batch="16", image="224"))
batch, image, device = int(settings["batch"]), int(settings["image"]), settings["device"]


def vgg16_cifar():
    """torchvision's features, the mean over the pixels, and one linear layer, as in models/vgg.h."""
    layers = torchvision.models.vgg.make_layers(torchvision.models.vgg.cfgs["D"], batch_norm=True)
    return torch.nn.Sequential(layers, torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten(), torch.nn.Linear(512, 1000))


def vit(width, heads):
    """torchvision's ViT with the patch sizes of models/image_model.h."""
    patch_size = 4 if image < 64 else 8 if image < 128 else 16
    return torchvision.models.VisionTransformer(image_size=image, patch_size=patch_size, num_layers=12, num_heads=heads,
                                                hidden_dim=width, mlp_dim=4 * width)


networks = {"vgg16_cifar": vgg16_cifar, "vit_tiny": lambda: vit(192, 3), "vit_small": lambda: vit(384, 6),
            "vit_b_16": lambda: vit(768, 12)}
options = {"zero_init_residual": True} if settings["model"].startswith("resnet") else {}
model = networks.get(settings["model"]) or (lambda: getattr(torchvision.models, settings["model"])(**options))
model = model().to(device)
model = model.to(memory_format=torch.channels_last).train()
optimizer = torch.optim.SGD(model.parameters(), lr=0.002, momentum=0.9, weight_decay=1e-4,
                            fused=True)
images = torch.randn(batch, 3, image, image).to(device, memory_format=torch.channels_last)
labels = torch.randint(0, 10, (batch,)).to(device)
forward = torch.compile(model) if settings["compile"] == "1" else model


def step():
    optimizer.zero_grad(set_to_none=True)
    with peer.autocast(settings):
        loss = torch.nn.functional.cross_entropy(forward(images), labels)
    loss.backward()
    optimizer.step()
    return loss.detach()


peer.time_steps("train_step.py", settings, f"pytorch {torch.__version__} {settings['model']} {settings['dtype']} "
                f"batch {batch}, {image}x{image}, sgdm", "images", step)
