#!/usr/bin/env python3
"""Peer of bench_bpe: checks that ids and decoded text equal those of HuggingFace tokenizers on every text, then
measures the speed of both on one thread.

  python3 bench/peers/bpe.py TOKENIZER TEXTS [ROUNDS]

TOKENIZER: a folder with tokenizer.json, or with vocab.json and merges.txt (encoder.json and vocab.bpe)
TEXTS: FILE (one text), FILE:lines (a text per line), `hostile`, or `random:COUNT[:SEED]`
Requires tokenizers, and bench_bpe (scripts/build release bench_bpe)."""
import os
import random
import struct
import subprocess
import sys
import tempfile
import time

os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ["RAYON_NUM_THREADS"] = "1"
import numpy as np
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

here = os.path.dirname(os.path.abspath(__file__))
program = os.environ.get("BENCH_BPE") or os.path.join(here, "..", "..", "build", "release", "bench", "bench_bpe")
points = [c for c in range(0x110000) if not 0xD800 <= c < 0xE000]
odd = ["'s", "'S", "'\u017f", "'ll", "'LL", "'Ve", "'re", "'d", "''", "'", " ", "  ", "   ", "\n", "\r\n", "\t", "\u3000", "\xa0", "\x85",
       "\u2028", "\u200b", "\u00ad", "1", "12", "123", "12345", "\u0663", "\u00bd", "\u2167", "a", "B", "the", " the", "don't", "I'M",
       "\u00e9", "e\u0301", "\u4e2d\u6587", "\ud55c", "\u1100\u1161", "\U0001d15e", "\U00010400", "\U0001f468\u200d\U0001f469", "\U0001f1f3\U0001f1f1",
       ".", "...", "!?", "<|endoftext|>", "<|endoftext", "|>", "<|im_start|>", "<", "\0", "\x1b", "\ufffd", "\uffff", "\U0010ffff", "_", "-", "\U000e0061"]


def tokenizer_of(path):
    if os.path.isdir(path) and os.path.exists(os.path.join(path, "tokenizer.json")):
        path = os.path.join(path, "tokenizer.json")
    if path.endswith(".json"):
        return Tokenizer.from_file(path)
    names = ("vocab.json", "merges.txt") if os.path.exists(os.path.join(path, "vocab.json")) else ("encoder.json", "vocab.bpe")
    tokenizer = Tokenizer(models.BPE.from_file(*(os.path.join(path, name) for name in names)))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    if tokenizer.token_to_id("<|endoftext|>") is not None:
        tokenizer.add_special_tokens([AddedToken("<|endoftext|>", normalized=False)])
    return tokenizer


def hostile():
    """Texts that are hard for tokenizers: long words, every code point in several contexts, white space, special tokens."""
    yield from ("", " ", "\0", "a" * 300_000, " a" * 100_000, "é" * 100_000, "中" * 50_000, "." * 300_000, " " * 300_000, "ab" * 100_000, "1" * 100_000)
    for n in (15, 16, 17, 47, 48, 49, 63, 64, 65):
        yield from (c * n for c in ("a", "é", "中", "ab", " ", "\n", "!", "7", "\U0001d15e"))
    text = "".join(map(chr, points))
    yield text
    for between in (" ", "a", "1", ".", "\n", "'", "  ", "\r"):
        yield between.join(map(chr, points))
    yield "".join("'" + chr(c) for c in points)
    shuffled = points[:]
    random.Random(1).shuffle(shuffled)
    yield "".join(map(chr, shuffled))
    yield from (a + b for a in odd for b in odd)


def random_texts(count, seed):
    rng = random.Random(seed)
    common = [chr(c) for c in range(32, 127)] + list("éüñçßøжыщ中文字한국어αβγあい") + ["\n", " ", " ", "\t"]
    words = [line for line in open(__file__, encoding="utf-8").read().split(" ") if line]
    for _ in range(count):
        kind = rng.randrange(4)
        size = rng.randrange(1, 60)
        if kind == 0:
            yield "".join(chr(rng.choice(points)) for _ in range(size))
        elif kind == 1:
            yield "".join(rng.choice(odd) for _ in range(size))
        elif kind == 2:
            yield "".join(rng.choice(common) for _ in range(size))
        else:
            yield "".join(rng.choice((rng.choice(words), rng.choice(odd), rng.choice(common), " ")) for _ in range(size))


def texts_of(source):
    if source == "hostile":
        return list(hostile())
    if source.startswith("random:"):
        count, seed = (source.split(":")[1:] + ["1"])[:2]
        return list(random_texts(int(count), int(seed)))
    if source.endswith(":lines"):
        return open(source[:-6], encoding="utf-8").read().split("\n")
    return [open(source, encoding="utf-8").read()]


def compare(ours, peer, texts):
    """Compares the ids and the decoded text of each text. ours: the file OUT of bench_bpe. Decoded texts are normalized
    first, because tokenizers decode a `normalized` added token to its normalized content, and Godwit to its content."""
    normalize = peer.normalizer.normalize_str if peer.normalizer else lambda text: text
    at = different = decoded_differently = tokens = 0
    for text in texts:
        count = int.from_bytes(ours[at:at + 4], "little")
        found = np.frombuffer(ours, np.int32, count, at + 4).tolist()
        at += 4 + 4 * count
        length = int.from_bytes(ours[at:at + 4], "little")
        decoded = normalize(ours[at + 4:at + 4 + length].decode(errors="replace"))
        at += 4 + length
        tokens += count
        expected = peer.encode(text, add_special_tokens=False).ids
        expected_text = normalize(peer.decode(found, skip_special_tokens=False))
        if decoded != expected_text:
            decoded_differently += 1
            if decoded_differently <= 5:
                print(f"{text[:60]!r}: decoded text: ours {decoded[:60]!r}, theirs {expected_text[:60]!r}")
        if found != expected:
            different += 1
            if different <= 5:
                k = next((k for k in range(min(len(found), len(expected))) if found[k] != expected[k]), min(len(found), len(expected)))
                print(f"{text[:60]!r}: token {k}: ours {found[k:k + 4]}, theirs {expected[k:k + 4]}")
    print(f"{len(texts)} texts, {sum(len(t.encode()) for t in texts)} bytes, {tokens} tokens: "
          f"{different} texts differ, {decoded_differently} decoded texts differ", flush=True)
    return different + decoded_differently, tokens


def main():
    path, source, rounds = sys.argv[1], sys.argv[2], int(sys.argv[3]) if len(sys.argv) > 3 else 0
    texts, peer = texts_of(source), tokenizer_of(sys.argv[1])
    raw = [text.encode() for text in texts]
    with tempfile.TemporaryDirectory() as folder:
        with open(folder + "/texts", "wb") as out:
            out.writelines(struct.pack("<I", len(text)) + text for text in raw)
        subprocess.run([program, path, folder + "/texts", "0", folder + "/out"], check=True, stdout=subprocess.DEVNULL)
        with open(folder + "/out", "rb") as file:
            different, tokens = compare(file.read(), peer, texts)
        if different:
            sys.exit(1)
        for _ in range(rounds):
            subprocess.run([program, path, folder + "/texts", "3"], check=True)
            for name, encode in (("encode", lambda: [peer.encode(text, add_special_tokens=False) for text in texts]),
                                 ("encode_batch", lambda: peer.encode_batch(texts, add_special_tokens=False)),
                                 ("encode_batch_fast", lambda: peer.encode_batch_fast(texts, add_special_tokens=False))):
                start = time.process_time()
                encode()
                seconds = time.process_time() - start
                print(f"peer, {name}: {sum(map(len, raw)) / seconds / 1e6:.1f} MB/s, {tokens / seconds / 1e6:.2f} million tokens/s of one thread's time",
                      flush=True)


main()
