#!/usr/bin/env python3
"""bench_vocabulary beside the trainer of HuggingFace tokenizers: seconds, and how many tokens both have.
usage: vocabulary.py TEXT SIZE THREADS      needs: tokenizers; bench_vocabulary, built by scripts/build release bench_vocabulary
Pairs equally frequent are merged there in the order of a hash table, another one in each run; so the sets differ a little."""
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
