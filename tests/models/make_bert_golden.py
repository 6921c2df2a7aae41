#!/usr/bin/env python3
"""Writes golden/bert.json and golden/bert: the results of HuggingFace transformers for small BERTs, and a saved BERT.

Needs torch, torchvision and transformers; run it as `python3 tests/models/make_bert_golden.py`. Weights and inputs come
from the integer hash of make_golden.py. Per head: outputs, every parameter's gradient and, after ten steps of AdamW,
every parameter, each as norm, dot product with a hashed vector and eight elements; and the ten losses.

  python3 tests/models/make_bert_golden.py FOLDER FILE    writes the hidden states that transformers computes with the
      weights of FOLDER, as safetensors; GODWIT_BERT_FOLDER and GODWIT_BERT_HIDDEN enable the test that uses them
"""
import json
import sys

import torch
import transformers
from make_golden import GOLDEN
from transformer_golden import ADAMW, NOTHING, compare, fill, table, train

CONFIG = dict(vocab_size=97, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64,
              max_position_embeddings=16, type_vocab_size=2, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
LENGTHS, LENGTH, LABELS = (12, 9, 4), 12, 3
MASKED = (1, 5, 11, 14, 20, 27)  # of 36 positions
HEADS = {
    "BertForPreTraining": "gelu",
    "BertForMaskedLM": "tanh",
    "BertForQuestionAnswering": "gelu_new",
    "BertForSequenceClassification": "relu",
}


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


def run(head, dtype, number):
    config = transformers.BertConfig(**CONFIG, hidden_act=HEADS[head], num_labels=LABELS)
    if head == "BertForQuestionAnswering":
        config.num_labels = 2
    model = getattr(transformers, head)._from_config(config, attn_implementation="eager").to(dtype)
    fill(model.named_parameters())

    def step():
        result = model(**inputs(), **labels(head))
        with torch.no_grad():
            hidden = model.bert(**inputs()).last_hidden_state
        return result.loss, outputs(head, result) | {"hidden": hidden}
    return train(model, number, step)


def write_golden():
    golden = {"config": CONFIG, "lengths": LENGTHS, "length": LENGTH, "labels": LABELS, "masked": MASKED,
              "adamw": ADAMW, "nothing": NOTHING,
              "made by": f"transformers {transformers.__version__}, torch {torch.__version__}", "heads": {}}
    for head, activation in HEADS.items():
        exact = compare(head, lambda dtype, number: run(head, dtype, number))
        golden["heads"][head] = {"hidden_act": activation, **exact}
    (GOLDEN / "bert.json").write_text(json.dumps(golden, separators=(",", ":")) + "\n")


def write_folder():
    config = transformers.BertConfig(vocab_size=11, hidden_size=8, num_hidden_layers=1, num_attention_heads=2,
                                     intermediate_size=12, max_position_embeddings=6, hidden_act="gelu_new")
    model = transformers.BertForPreTraining(config)
    fill(model.named_parameters())
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
