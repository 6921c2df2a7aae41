#!/usr/bin/env python3
"""Writes llm.c's checkpoint (version 3, float32) from a HuggingFace folder of a GPT-2.

  python3 bench/peers/llmc_checkpoint.py FOLDER OUTPUT

The file is a header of 256 int32 (magic, version, sizes), then the parameters by kind, each for all layers, with
matrices as [out, in] and the token embedding padded to a multiple of 128 rows. Requires numpy and safetensors.
"""
import json
import sys

import numpy
from safetensors.numpy import load_file

folder, output = sys.argv[1:]
with open(f"{folder}/config.json") as file:
    config = json.load(file)
tensors = load_file(f"{folder}/model.safetensors")
layers, vocabulary = config["n_layer"], config["vocab_size"]
padded = (vocabulary + 127) // 128 * 128
header = numpy.zeros(256, numpy.int32)
header[:8] = [20240326, 3, config["n_positions"], vocabulary, layers, config["n_head"], config["n_embd"], padded]
with open(output, "wb") as file:
    def write(tensor):
        numpy.ascontiguousarray(tensor, numpy.float32).tofile(file)

    header.tofile(file)
    write(tensors["transformer.wte.weight"])
    write(numpy.zeros((padded - vocabulary, config["n_embd"])))
    write(tensors["transformer.wpe.weight"])
    for part in ["ln_1", "attn.c_attn", "attn.c_proj", "ln_2", "mlp.c_fc", "mlp.c_proj"]:
        for kind in ["weight", "bias"]:
            for layer in range(layers):
                write(tensors[f"transformer.h.{layer}.{part}.{kind}"].T)
    write(tensors["transformer.ln_f.weight"])
    write(tensors["transformer.ln_f.bias"])
