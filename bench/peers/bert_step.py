#!/usr/bin/env python3
"""A BERT training step in HuggingFace transformers on PyTorch, as bench_bert_step runs it: same sizes, dropout, AdamW.

  python3 bench/peers/bert_step.py [model=bert_base] [batch=8] [length=128] [task=squad] [threads=cores] [steps=7]
                                   [dtype=f32] [attention=sdpa] [compile=0]

attention: sdpa (scaled_dot_product_attention, HuggingFace's default) or eager (products and softmax one by one).
dtype=bf16 uses autocast. Needs torch and transformers (PyPI), which nothing else here does.
"""
import os
import resource
import statistics
import sys
import time

import torch
import transformers

settings = dict(model="bert_base", batch="8", length="128", task="squad", threads="0", steps="7", dtype="f32",
                attention="sdpa", compile="0")
for argument in sys.argv[1:]:
    name, _, value = argument.partition("=")
    if name not in settings:
        sys.exit(f"bert_step.py: '{argument}' is none of {' '.join(key + '=' for key in settings)}")
    settings[name] = value
batch, length, steps = int(settings["batch"]), int(settings["length"]), int(settings["steps"])
threads = int(settings["threads"]) or len(os.sched_getaffinity(0))
torch.set_num_threads(threads)
torch.manual_seed(1)
before_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024e-6

layers, hidden = dict(bert_tiny=(2, 128), bert_mini=(4, 256), bert_small=(4, 512), bert_medium=(8, 512),
                      bert_base=(12, 768), bert_large=(24, 1024))[settings["model"]]
config = transformers.BertConfig(num_hidden_layers=layers, hidden_size=hidden, num_attention_heads=hidden // 64,
                                 intermediate_size=4 * hidden)
heads = dict(squad=transformers.BertForQuestionAnswering, pretrain=transformers.BertForPreTraining)
model = heads[settings["task"]]._from_config(config, attn_implementation=settings["attention"]).train()
decayed = [p for p in model.parameters() if p.dim() > 1]
rest = [p for p in model.parameters() if p.dim() == 1]
optimizer = torch.optim.AdamW([{"params": decayed, "weight_decay": 1e-4}, {"params": rest, "weight_decay": 0.0}],
                              lr=5e-5, fused=True)
inputs = dict(input_ids=torch.randint(0, config.vocab_size, (batch, length)),
              token_type_ids=torch.randint(0, 2, (batch, length)),
              attention_mask=torch.ones(batch, length, dtype=torch.long))
if settings["task"] == "squad":
    inputs |= dict(start_positions=torch.randint(0, length, (batch,)), end_positions=torch.randint(0, length, (batch,)))
else:
    masked = max(1, batch * length * 15 // 100)
    labels = torch.full((batch * length,), -100)
    labels[torch.arange(masked) * batch * length // masked] = torch.randint(0, config.vocab_size, (masked,))
    inputs |= dict(labels=labels.reshape(batch, length), next_sentence_label=torch.randint(0, 2, (batch,)))
forward = torch.compile(model) if settings["compile"] == "1" else model


def step():
    optimizer.zero_grad(set_to_none=True)
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=settings["dtype"] == "bf16"):
        loss = forward(**inputs).loss
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
    sys.exit(f"bert_step.py: the loss went from {losses[0]} to {losses[-1]}: this does not train")
median = statistics.median(seconds)
peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024e-6
print(f"transformers {transformers.__version__}, pytorch {torch.__version__} {settings['model']} {settings['dtype']} "
      f"{settings['task']} batch {batch}, {length} tokens, adamw, {settings['attention']} attention, {threads} threads"
      f"{', compiled' if settings['compile'] == '1' else ''}")
print(f"  {median:.3f} s/step (cores {statistics.median(cores):.3f} s)  {batch / median:.2f} texts/s   "
      f"peak {peak_mb:.0f} MB resident, {before_mb:.0f} MB of them the libraries'   "
      f"loss {losses[0]:.4f} -> {losses[-1]:.4f}")
