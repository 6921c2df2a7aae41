#!/usr/bin/env python3
"""Tiny Shakespeare, fine-tuning of a LLaMA that was trained on the Bible, 500 steps, one learning rate for all methods. 0.3 core-hours.

These commands make the weights, bible/model:
  tools/tokenize input.txt --out shakespeare --train-bpe 512
  ./train_gpt --tokenizer shakespeare --model llama_nano --context 64 --batch 16 --optimizer adamw --lr 1e-3 --max-steps 2000 \\
    --set schedule.warmup_steps=100 --run-dir bible
"""
from methods import TINY_SHAKESPEARE, language_models
from series import Table

Table(
    name="shakespeare_finetuned",
    title="Tiny Shakespeare in 512 tokens, LLaMA with 4 layers of width 128 that was trained on the King James Bible, 500 steps, "
          "4 nodes × 2 workers with 2 blocks of 64 tokens each.",
    flags="--batch 2 --context 64 --nodes 4 --workers-per-node 2 --max-steps 500 --set schedule.warmup_steps=25 --set generate.tokens=0",
    methods=language_models(adamw=2e-3, one_bit_adam=2e-3, zero_one_adam=2e-3, birder=2e-3),
    weights="LLaMA trained on the Bible: --help has the commands",
    **TINY_SHAKESPEARE,
).main()
