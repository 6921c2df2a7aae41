#!/usr/bin/env python3
"""Peer of bench_decode: decodes and augments images with PIL and torchvision on one thread. Prints images per second
of the thread's processor time.

  python3 bench/peers/decode.py FOLDER [CROP] [ROUNDS]

Requires torch, torchvision and Pillow."""
import glob
import os
import sys
import time

import torch
from PIL import Image
from torchvision import transforms as T

torch.set_num_threads(1)
root = sys.argv[1]
crop = int(sys.argv[2]) if len(sys.argv) > 2 else 224
rounds = int(sys.argv[3]) if len(sys.argv) > 3 else 3
base = os.path.join(root, "train") if os.path.isdir(os.path.join(root, "train")) else root
paths = sorted(p for p in glob.glob(base + "/**/*", recursive=True) if p.lower().endswith((".jpg", ".jpeg")))
finish = [T.ToTensor(), T.Normalize([0.485, 0.456, 0.406], [0.229, 0.224, 0.225])]
train = T.Compose([T.RandomResizedCrop(crop), T.RandomHorizontalFlip()] + finish)
test = T.Compose([T.Resize((crop * 8 + 3) // 7), T.CenterCrop(crop)] + finish)


def rate(transform):
    start = time.thread_time()
    for path in paths:
        with open(path, "rb") as file:
            transform(Image.open(file).convert("RGB"))
    return len(paths) / (time.thread_time() - start)


rate(test)
for _ in range(rounds):
    print(f"training {rate(train):.1f} evaluation {rate(test):.1f} images/s of one thread's time", flush=True)
