#!/usr/bin/env python3
"""Peer of bench_train_step: the same ResNet training step (sizes, optimizer) in PyTorch, with channels_last.

  python3 bench/peers/train_step.py [model=resnet50] [batch=16] [image=224] [threads=cores] [steps=7] [dtype=f32] [compile=0]
                                    [device=cpu] [json=0]

dtype=bf16 uses autocast. On a GPU the optimizer is the fused SGD. Requires torch and torchvision (PyPI).
"""
import torch
import torchvision

import peer

settings = peer.parse("train_step.py", dict(model="resnet50", batch="16", image="224"))
batch, image, device = int(settings["batch"]), int(settings["image"]), settings["device"]
model = getattr(torchvision.models, settings["model"])(zero_init_residual=True).to(device)
model = model.to(memory_format=torch.channels_last).train()
optimizer = torch.optim.SGD(model.parameters(), lr=0.002, momentum=0.9, weight_decay=1e-4,
                            fused=True if device != "cpu" else None)
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
