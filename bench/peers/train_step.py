#!/usr/bin/env python3
"""A ResNet training step in PyTorch, as bench_train_step runs it: same sizes, same optimizer, channels_last.

  python3 bench/peers/train_step.py [model=resnet50] [batch=16] [image=224] [threads=cores] [steps=7] [dtype=f32] [compile=0]

dtype=bf16 uses autocast. Needs torch and torchvision (PyPI), which nothing else here does.
"""
import os
import resource
import statistics
import sys
import time

import torch
import torchvision

settings = dict(model="resnet50", batch="16", image="224", threads="0", steps="7", dtype="f32", compile="0")
for argument in sys.argv[1:]:
    name, _, value = argument.partition("=")
    if name not in settings:
        sys.exit(f"train_step.py: '{argument}' is none of {' '.join(key + '=' for key in settings)}")
    settings[name] = value
batch, image, steps = int(settings["batch"]), int(settings["image"]), int(settings["steps"])
threads = int(settings["threads"]) or len(os.sched_getaffinity(0))
torch.set_num_threads(threads)
torch.manual_seed(1)
before_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024e-6

model = getattr(torchvision.models, settings["model"])(zero_init_residual=True)
model = model.to(memory_format=torch.channels_last).train()
optimizer = torch.optim.SGD(model.parameters(), lr=0.002, momentum=0.9, weight_decay=1e-4)
images = torch.randn(batch, 3, image, image).to(memory_format=torch.channels_last)
labels = torch.randint(0, 10, (batch,))
forward = torch.compile(model) if settings["compile"] == "1" else model


def step():
    optimizer.zero_grad(set_to_none=True)
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=settings["dtype"] == "bf16"):
        loss = torch.nn.functional.cross_entropy(forward(images), labels)
    loss.backward()
    optimizer.step()
    return loss.item()


losses = [step(), step()]
seconds, cores = [], []
for _ in range(steps):
    start, cpu_start = time.perf_counter(), time.process_time()
    losses.append(step())
    seconds.append(time.perf_counter() - start)
    cores.append(time.process_time() - cpu_start)
if not losses[-1] < losses[0]:
    sys.exit(f"train_step.py: the loss went from {losses[0]} to {losses[-1]}: this does not train")
median = statistics.median(seconds)
peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024e-6
print(f"pytorch {torch.__version__} {settings['model']} {settings['dtype']} batch {batch}, {image}x{image}, sgdm, "
      f"{threads} threads{', compiled' if settings['compile'] == '1' else ''}")
print(f"  {median:.3f} s/step (cores {statistics.median(cores):.3f} s)  {batch / median:.2f} images/s   "
      f"peak {peak_mb:.0f} MB resident, {before_mb:.0f} MB of them the libraries'   "
      f"loss {losses[0]:.4f} -> {losses[-1]:.4f}")
