#!/usr/bin/env python3
"""Writes golden/: small synthetic JPEGs, and the results of PIL and torchvision for them.
usage: make_golden.py      needs: numpy, Pillow, torch, torchvision; cjpeg (Debian: libjpeg-turbo-progs)"""
import json
import os
import subprocess

import numpy as np
import torch
from PIL import Image
from torchvision.transforms import v2
from torchvision.transforms.v2 import functional as F

folder = os.path.join(os.path.dirname(os.path.abspath(__file__)), "golden")
os.makedirs(folder, exist_ok=True)


def picture(height, width):
    """Smooth waves, sharp edges and a gradient, different in each channel."""
    y, x = np.mgrid[0:height, 0:width].astype(np.float64)
    red = 127 + 100 * np.sin(x / 7) * np.cos(y / 11)
    green = 255 * (x + y) / (height + width)
    blue = np.where((x // 16 + y // 12) % 2 == 0, 220.0, 40.0)
    return np.clip(np.stack([red, green, blue], -1), 0, 255).astype(np.uint8)


def pixels(image):
    return np.asarray(image.convert("RGB")).astype(int).reshape(-1).tolist()


rgb = Image.fromarray(picture(90, 134))
rgb.save(f"{folder}/colour.jpg", quality=90, subsampling=2)
rgb.save(f"{folder}/progressive.jpg", quality=90, subsampling=1, progressive=True)
rgb.convert("L").save(f"{folder}/grey.jpg", quality=90)
rgb.convert("CMYK").save(f"{folder}/cmyk.jpg", quality=90)  # Pillow writes Adobe's inverted inks
Image.fromarray(picture(300, 400)).save(f"{folder}/large.jpg", quality=80, subsampling=2)
# 4:1:0: color at a quarter of the width and half the height, which Pillow cannot write.
rgb.save(f"{folder}/colour.ppm")
subprocess.run(["cjpeg", "-quality", "90", "-sample", "4x2", "-outfile", f"{folder}/colour_410.jpg",
                f"{folder}/colour.ppm"], check=True)
os.remove(f"{folder}/colour.ppm")

golden = {}
for name in ("colour", "progressive", "grey", "cmyk"):
    image = Image.open(f"{folder}/{name}.jpg")
    golden[name] = {"rows": [pixels(image.crop((0, y, image.width, y + 1))) for y in (0, 37, 89)]}
    image = image.convert("RGB")
    golden[name]["centre"] = pixels(F.center_crop(F.resize(image, 36), [32, 32]))  # shrunk
    golden[name]["enlarged"] = pixels(F.center_crop(F.resize(image, 120), [105, 105]).crop((0, 50, 105, 51)))
    golden[name]["part"] = pixels(F.resized_crop(image, 13, 21, 57, 66, [24, 24]))  # top, left, height, width
    golden[name]["part_enlarged"] = pixels(F.resized_crop(image, 40, 30, 9, 12, [24, 24]))

large = Image.open(f"{folder}/large.jpg").convert("RGB")
golden["large"] = {"centre": pixels(F.center_crop(F.resize(large, 36), [32, 32]))}

# RandomResizedCrop: mean and standard deviation of position and size over 20,000 crops.
torch.manual_seed(1)
golden["crops"] = []
for width, height in ((500, 375), (400, 533), (64, 64), (1000, 90)):
    draws = np.array([v2.RandomResizedCrop.make_params(v2.RandomResizedCrop(8), [torch.empty(3, height, width)])[k]
                      for _ in range(20000) for k in ("left", "top", "width", "height")]).reshape(-1, 4)
    golden["crops"].append({"width": width, "height": height, "mean": draws.mean(0).tolist(), "std": draws.std(0).tolist()})

# Brightness, contrast and saturation, one at a time.
small = rgb.resize((16, 12))
golden["jitter"] = {"image": pixels(small), "brightness": pixels(F.adjust_brightness(small, 1.3)),
                    "contrast": pixels(F.adjust_contrast(small, 0.6)), "saturation": pixels(F.adjust_saturation(small, 1.4))}

with open(f"{folder}/expected.json", "w") as out:
    json.dump(golden, out, separators=(",", ":"))
    out.write("\n")
