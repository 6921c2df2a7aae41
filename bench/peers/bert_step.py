#!/usr/bin/env python3
"""Peer of bench_bert_step: the same BERT training step (sizes, dropout, AdamW) with HuggingFace transformers on PyTorch.

  python3 bench/peers/bert_step.py [model=bert_base] [batch=8] [length=128] [task=squad] [threads=cores] [steps=7]
                                   [dtype=f32] [attention=sdpa] [compile=0] [source=transformers] [device=cpu] [json=0]

attention: sdpa (scaled_dot_product_attention, HuggingFace's default) or eager (separate products and softmax).
source: transformers, or torch (the torch.nn network of torch_bert.py; supports task=squad and attention=sdpa only).
dtype=bf16 uses autocast. Requires torch and, unless source=torch, transformers (both from PyPI).
"""
import sys

import torch

import peer

settings = peer.parse("bert_step.py", dict(model="bert_base", batch="8", length="128", task="squad", attention="sdpa",
                                           source="transformers"))
batch, length, device, task = int(settings["batch"]), int(settings["length"]), settings["device"], settings["task"]
layers, hidden = dict(bert_tiny=(2, 128), bert_mini=(4, 256), bert_small=(4, 512), bert_medium=(8, 512),
                      bert_base=(12, 768), bert_large=(24, 1024))[settings["model"]]
vocabulary = 30522
if settings["source"] == "torch":
    import torch_bert
    if (task, settings["attention"]) != ("squad", "sdpa"):
        sys.exit("bert_step.py: source=torch has task=squad and attention=sdpa only")
    model = torch_bert.Bert(layers, hidden, vocabulary)
    source = "torch.nn"
else:
    import transformers
    config = transformers.BertConfig(num_hidden_layers=layers, hidden_size=hidden, num_attention_heads=hidden // 64,
                                     intermediate_size=4 * hidden, vocab_size=vocabulary)
    heads = dict(squad=transformers.BertForQuestionAnswering, pretrain=transformers.BertForPreTraining)
    model = heads[task]._from_config(config, attn_implementation=settings["attention"])
    source = f"transformers {transformers.__version__}"
model = model.to(device).train()
decayed = [p for p in model.parameters() if p.dim() > 1]
rest = [p for p in model.parameters() if p.dim() == 1]
optimizer = torch.optim.AdamW([{"params": decayed, "weight_decay": 1e-4}, {"params": rest, "weight_decay": 0.0}],
                              lr=5e-5, fused=True)
inputs = dict(input_ids=torch.randint(0, vocabulary, (batch, length)),
              token_type_ids=torch.randint(0, 2, (batch, length)),
              attention_mask=torch.ones(batch, length, dtype=torch.long))
if task == "squad":
    inputs |= dict(start_positions=torch.randint(0, length, (batch,)), end_positions=torch.randint(0, length, (batch,)))
else:
    masked = max(1, batch * length * 15 // 100)
    labels = torch.full((batch * length,), -100)
    labels[torch.arange(masked) * batch * length // masked] = torch.randint(0, vocabulary, (masked,))
    inputs |= dict(labels=labels.reshape(batch, length), next_sentence_label=torch.randint(0, 2, (batch,)))
inputs = {name: value.to(device) for name, value in inputs.items()}
if settings["source"] == "torch":
    inputs["attention_mask"] = None  # nothing is masked; HuggingFace's model detects this itself
forward = torch.compile(model) if settings["compile"] == "1" else model


def step():
    optimizer.zero_grad(set_to_none=True)
    with peer.autocast(settings):
        loss = forward(**inputs).loss
    loss.backward()
    optimizer.step()
    return loss.detach()


peer.time_steps("bert_step.py", settings, f"{source}, pytorch {torch.__version__} {settings['model']} "
                f"{settings['dtype']} {task} batch {batch}, {length} tokens, adamw, {settings['attention']} attention",
                "texts", step)
