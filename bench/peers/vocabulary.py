#!/usr/bin/env python3
"""Peer of bench_vocabulary: trains a vocabulary with HuggingFace tokenizers. Prints the seconds and the number of tokens
that both vocabularies contain.

  python3 bench/peers/vocabulary.py TEXT SIZE THREADS

HuggingFace's trainer merges equally frequent pairs in the order of a hash table, which changes from run to run.
Vocabularies of two runs therefore differ slightly.
Requires tokenizers, and bench_vocabulary (scripts/build release bench_vocabulary)."""
import os
import subprocess
import sys
import tempfile
import time

text, size, threads = sys.argv[1], int(sys.argv[2]), sys.argv[3]
os.environ["RAYON_NUM_THREADS"] = threads
from tokenizers import BertWordPieceTokenizer

program = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "build", "release", "bench", "bench_vocabulary")
with tempfile.TemporaryDirectory() as folder:
    subprocess.run([program, text, str(size), threads, folder + "/vocab.txt"], check=True)
    ours = open(folder + "/vocab.txt", encoding="utf-8").read().splitlines()


def train():
    tokenizer = BertWordPieceTokenizer()
    with open(text, encoding="utf-8", errors="replace", newline="\n") as file:
        lines = file.read().split("\n")
    start = time.perf_counter()
    tokenizer.train_from_iterator(lines, vocab_size=size, min_frequency=2, limit_alphabet=1000, show_progress=False)
    return tokenizer.get_vocab(), time.perf_counter() - start


first, seconds = train()
second, _ = train()
print(f"peer: {len(first)} tokens in {seconds:.2f} s")
print(f"tokens in both: {len(set(ours) & set(first))} of {len(ours)}; of two runs of the peer: {len(set(first) & set(second))}")
