#!/usr/bin/env python3
"""Writes golden/bert.json and golden/bert: the results of HuggingFace transformers for small BERTs, and a saved BERT.

Needs torch, torchvision and transformers; run it as `python3 tests/models/make_bert_golden.py`. Weights and inputs come
from the integer hash of make_golden.py. Per head: outputs, every parameter's gradient and, after ten steps of AdamW,
every parameter, each as norm, dot product with a hashed vector and eight elements; and the ten losses.

  python3 tests/models/make_bert_golden.py FOLDER FILE    writes the hidden states that transformers computes with the
      weights of FOLDER, as safetensors; GODWIT_BERT_FOLDER and GODWIT_BERT_HIDDEN enable the test that uses them
"""
import json
import pathlib
import sys

import numpy as np
import torch
import transformers
from make_golden import GOLDEN, STEPS, formula, jiggle, summary, words, worst

SINGLES = 12
CONFIG = dict(vocab_size=97, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64,
              max_position_embeddings=16, type_vocab_size=2, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
LENGTHS, LENGTH, LABELS = (12, 9, 4), 12, 3
MASKED = (1, 5, 11, 14, 20, 27)  # of 36 positions
ADAMW = dict(lr=2e-3, betas=(0.9, 0.999), eps=1e-6, weight_decay=0.1)
# Smaller gradients consist only of rounding, e.g. of key.bias, which shifts all scores of a softmax equally.
NOTHING = 1e-12
HEADS = {
    "BertForPreTraining": "gelu",
    "BertForMaskedLM": "tanh",
    "BertForQuestionAnswering": "gelu_new",
    "BertForSequenceClassification": "relu",
}


def fill(model):
    for name, p in model.named_parameters():
        p.data.copy_(formula(name, p.shape))


def table(name, count, limit):
    return torch.from_numpy((words(name, count) % np.uint32(limit)).astype(np.int64))


def inputs():
    batch = len(LENGTHS)
    mask = torch.tensor([[int(i < length) for i in range(LENGTH)] for length in LENGTHS])
    ids = (1 + table("ids", batch * LENGTH, CONFIG["vocab_size"] - 1)).reshape(batch, LENGTH) * mask
    types = table("types", batch * LENGTH, 2).reshape(batch, LENGTH) * mask
    return dict(input_ids=ids, token_type_ids=types, attention_mask=mask)


def labels(head):
    batch = len(LENGTHS)
    masked = torch.full((batch * LENGTH,), -100)
    masked[list(MASKED)] = table("masked", len(MASKED), CONFIG["vocab_size"])
    masked = masked.reshape(batch, LENGTH)
    return {
        "BertForPreTraining": dict(labels=masked, next_sentence_label=table("next", batch, 2)),
        "BertForMaskedLM": dict(labels=masked),
        "BertForQuestionAnswering": dict(start_positions=table("starts", batch, LENGTH),
                                         end_positions=table("ends", batch, LENGTH)),
        "BertForSequenceClassification": dict(labels=table("labels", batch, LABELS)),
    }[head]


def outputs(head, result):
    """Outputs with Godwit's names; word scores of the masked positions only."""
    def masked(logits):
        return logits.reshape(-1, logits.shape[-1])[list(MASKED)]
    if head == "BertForPreTraining":
        return {"prediction_logits": masked(result.prediction_logits),
                "next_sentence_logits": result.seq_relationship_logits}
    if head == "BertForMaskedLM":
        return {"prediction_logits": masked(result.logits)}
    if head == "BertForQuestionAnswering":
        return {"logits": torch.stack((result.start_logits, result.end_logits), -1)}
    return {"logits": result.logits}


def train(head, dtype, run=0):
    config = transformers.BertConfig(**CONFIG, hidden_act=HEADS[head], num_labels=LABELS)
    if head == "BertForQuestionAnswering":
        config.num_labels = 2
    model = getattr(transformers, head)._from_config(config, attn_implementation="eager").to(dtype)
    fill(model)
    jiggle(model, run)
    model.train()
    named = list(model.named_parameters())
    groups = [{"params": [p for _, p in named if p.dim() > 1]},
              {"params": [p for _, p in named if p.dim() == 1], "weight_decay": 0.0}]
    adamw = torch.optim.AdamW(groups, **ADAMW)
    golden = {"losses": []}
    for step in range(STEPS):
        adamw.zero_grad()
        result = model(**inputs(), **labels(head))
        result.loss.backward()
        golden["losses"].append(result.loss.item())
        if step == 0:
            golden["outputs"] = {name: summary(name, t) for name, t in outputs(head, result).items()}
            hidden = model.bert(**inputs()).last_hidden_state
            golden["outputs"]["hidden"] = summary("hidden", hidden)
            golden["gradients"] = {name: summary(name, p.grad) for name, p in named}
        adamw.step()
    golden["parameters"] = {name: summary(name, p) for name, p in named}
    golden["shapes"] = [f"{name} {list(p.shape)}" for name, p in named]
    count = {name: p.numel() for name, p in named} | {name: t.numel() for name, t in outputs(head, result).items()}
    return golden, count | {"hidden": hidden.numel()}


def distance(exact, single, count):
    result = {"losses": max(abs(p - q) for p, q in zip(exact["losses"], single["losses"])) / exact["losses"][0]}
    for key in ("outputs", "gradients", "parameters"):
        names = [name for name in exact[key] if exact[key][name][0] > NOTHING]
        result |= {f"{key}_{k}": v for k, v in worst({n: exact[key][n] for n in names}, single[key], count).items()}
    return result


def write_golden():
    golden = {"config": CONFIG, "lengths": LENGTHS, "length": LENGTH, "labels": LABELS, "masked": MASKED,
              "adamw": ADAMW, "nothing": NOTHING,
              "made by": f"transformers {transformers.__version__}, torch {torch.__version__}", "heads": {}}
    for head, activation in HEADS.items():
        exact, count = train(head, torch.float64)
        runs = [distance(exact, train(head, torch.float32, run)[0], count) for run in range(SINGLES)]
        exact["float32_error"] = {key: max(run[key] for run in runs) for key in runs[0]}
        print(head, exact["losses"], {key: f"{value:.1e}" for key, value in exact["float32_error"].items()})
        golden["heads"][head] = {"hidden_act": activation, **exact}
    (GOLDEN / "bert.json").write_text(json.dumps(golden, separators=(",", ":")) + "\n")


def write_folder():
    config = transformers.BertConfig(vocab_size=11, hidden_size=8, num_hidden_layers=1, num_attention_heads=2,
                                     intermediate_size=12, max_position_embeddings=6, hidden_act="gelu_new")
    model = transformers.BertForPreTraining(config)
    fill(model)
    model.save_pretrained(GOLDEN / "bert")
    (GOLDEN / "bert" / "generation_config.json").unlink(missing_ok=True)


def write_hidden(folder, file):
    from safetensors.torch import save_file
    model = transformers.BertModel.from_pretrained(folder, attn_implementation="eager").eval()
    batch, length = 4, 48
    mask = torch.tensor([[int(i < length - 13 * row) for i in range(length)] for row in range(batch)])
    ids = (1 + table("ids", batch * length, model.config.vocab_size - 1)).reshape(batch, length) * mask
    types = table("types", batch * length, 2).reshape(batch, length) * mask
    with torch.no_grad():
        out = model(input_ids=ids, token_type_ids=types, attention_mask=mask)
    save_file({"ids": ids.int(), "types": types.int(), "mask": mask.to(torch.uint8),
               "hidden": out.last_hidden_state.contiguous(), "pooled": out.pooler_output.contiguous()}, file)


if __name__ == "__main__":
    if len(sys.argv) == 3:
        write_hidden(sys.argv[1], sys.argv[2])
    elif len(sys.argv) == 1:
        write_golden()
        write_folder()
    else:
        sys.exit(__doc__)
