#!/usr/bin/env python3
"""Peer of bench_tokenizer: checks that ids and offsets equal those of HuggingFace tokenizers on every text, then
measures the speed of both on one thread.

  python3 bench/peers/tokenizer.py VOCAB TEXTS [ROUNDS] [KEY=VALUE…]

TEXTS: a SQuAD file (.json, .json.gz: contexts and questions), any other file (one text per line), or `hostile`
KEY: lower, strip, cjk or max, as in bench_tokenizer
Requires tokenizers, and bench_tokenizer (scripts/build release bench_tokenizer)."""
import codecs
import gzip
import json
import os
import random
import struct
import subprocess
import sys
import tempfile
import time

os.environ["TOKENIZERS_PARALLELISM"] = "false"
import numpy as np
from tokenizers import BertWordPieceTokenizer

here = os.path.dirname(os.path.abspath(__file__))
program = os.path.join(here, "..", "..", "build", "release", "bench", "bench_tokenizer")


def squad(path):
    with (gzip.open if path.endswith(".gz") else open)(path, "rb") as file:
        articles = json.load(file)["data"]
    for paragraph in (p for article in articles for p in article["paragraphs"]):
        yield paragraph["context"].encode()
        yield from (question["question"].encode() for question in paragraph["qas"])


def hostile():
    """Texts that are hard for tokenizers: long words, every code point, combining marks in any order, invalid UTF-8."""
    rng = random.Random(1)
    points = [c for c in range(0x110000) if not 0xD800 <= c < 0xE000]
    yield from (b"", b" ", b"\0", b"a" * 1_000_000, "é".encode() * 500_000, "中".encode() * 300_000, b"." * 1_000_000)
    for n in (99, 100, 101):
        yield from ((c * n).encode() for c in ("a", "é", "ß", "中", "a\u0301", "한", "\U0001d15e", "\U00010400"))
    text = "".join(map(chr, points))
    yield text.encode()
    yield " ".join(map(chr, points)).encode()
    yield "a".join(map(chr, points)).encode()
    shuffled = points[:]
    rng.shuffle(shuffled)
    yield "".join(map(chr, shuffled)).encode()
    yield "".join(map(chr, points)).encode("utf-16-le")
    for special in ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "[mask]", "[[MASK]]", "a[MASK]b", "[MASK", "[MASK]\u0301"):
        yield from (special.encode(), ("x " + special * 3 + "é").encode())
    import unicodedata
    marks = [c for c in points if unicodedata.combining(chr(c))] + [0x302E, 0x302F, 0x1D165, 0x1D16D]
    odd = [c for c in points if len(unicodedata.normalize("NFD", chr(c))) > 1][:: 7] + [0x130, 0x3A3, 0xDF, 0x1E9E]
    pools = [marks, odd, [ord(c) for c in "aB1 .中é\t\u3000\u200b[]"], [0x302E, 0x302F, 0x1D165, 0x1D15E, 0x16FF0, 0x1C37]]
    for _ in range(30000):
        yield "".join(chr(rng.choice(rng.choice(pools))) for _ in range(rng.randrange(1, 24))).encode()
    emoji = "👩‍👩‍👧‍👦 🏳️‍🌈 👍🏽 🇳🇱 1️⃣ é́ ﷽ Z͑ͫ̓ͪ̂ͫ̽͏̴̙̤̞͉͚̯̞̠͍A̴̵̜̰͔ͫ͗͢L̠ͨͧͩ͘G̴̻͈͍͔̹̑͗̎̅͛́Ǫ̵̹̻̝̳͂̌̌͘!͖̬̰̙̗̿̋ͥͥ̂ͣ̐́́͜͞ ﬁne Ⅷ ½ ㎏ ｆｕｌｌ　ｗｉｄｔｈ"
    yield emoji.encode()
    good = (emoji + " The quick brown naïve fox; 中文字符 [MASK] l'été").encode()
    for _ in range(20000):
        damaged = bytearray(good[rng.randrange(len(good)):][: rng.randrange(1, 60)])
        for _ in range(rng.randrange(6)):
            if damaged:
                damaged[rng.randrange(len(damaged))] = rng.randrange(256)
        yield bytes(damaged)
    for _ in range(3000):
        yield bytes(rng.randrange(256) for _ in range(rng.randrange(1, 40)))


def byte_starts(raw):
    """The offsets of the first byte of each code point of raw.decode("utf-8", "replace"), and the length of raw."""
    damage = {}
    codecs.register_error("note", lambda error: (damage.__setitem__(error.start, error.end), ("\ufffd", error.end))[1])
    raw.decode("utf-8", "note")
    starts, at = [], 0
    while at < len(raw):
        starts.append(at)
        at = damage.get(at) or at + (1 if raw[at] < 0x80 else 2 if raw[at] < 0xE0 else 3 if raw[at] < 0xF0 else 4)
    return np.array(starts + [len(raw)])


def main():
    plain = [a for a in sys.argv[1:] if "=" not in a]
    settings = dict(a.split("=") for a in sys.argv[1:] if "=" in a)
    vocab, source, rounds = plain[0], plain[1], int(plain[2]) if len(plain) > 2 else 3
    if source == "hostile":
        texts = list(hostile())
    elif source.endswith((".json", ".json.gz")):
        texts = list(squad(source))
    else:
        texts = open(source, "rb").read().split(b"\n")
    strip = settings.get("strip")
    peer = BertWordPieceTokenizer(vocab, lowercase=settings.get("lower", "1") == "1", handle_chinese_chars=settings.get("cjk", "1") == "1",
                                  strip_accents=None if strip is None else strip == "1")
    if "max" in settings:
        peer._tokenizer.model.max_input_chars_per_word = int(settings["max"])

    with tempfile.TemporaryDirectory() as folder:
        with open(folder + "/texts", "wb") as out:
            out.writelines(struct.pack("<I", len(t)) + t for t in texts)
        run = [program, vocab, folder + "/texts"]
        extra = [f"{k}={v}" for k, v in settings.items()]
        subprocess.run(run + ["0", folder + "/out"] + extra, check=True)
        found = np.fromfile(folder + "/out", np.int32)
        at = different = tokens = 0
        for i, raw in enumerate(texts):
            text = raw.decode("utf-8", "replace")
            encoding = peer.encode(text, add_special_tokens=False)
            count = int(found[at])
            ours = found[at + 1:at + 1 + 3 * count].reshape(-1, 3)
            at += 1 + 3 * count
            tokens += count
            starts = np.arange(len(raw) + 1) if text.isascii() else byte_starts(raw)
            assert len(starts) == len(text) + 1
            offsets = np.array(encoding.offsets, np.int64).reshape(-1, 2)
            ids = np.array(encoding.ids, np.int64)
            # A token ends at the end of its last code point.
            theirs = np.stack([ids, starts[offsets[:, 0]], starts[offsets[:, 1]]], 1)
            if theirs.shape != ours.shape or (theirs != ours).any():
                different += 1
                if different <= 5:
                    k = next((k for k in range(min(len(ours), len(theirs))) if (ours[k] != theirs[k]).any()), min(len(ours), len(theirs)))
                    print(f"text {i}: {raw[:80]!r}\n  token {k}: ours {ours[k:k + 4].tolist()}, theirs {theirs[k:k + 4].tolist()}")
        print(f"{len(texts)} texts, {sum(map(len, texts))} bytes, {tokens} tokens: {different} texts differ")
        if different:
            sys.exit(1)
        decoded = [t.decode("utf-8", "replace") for t in texts]
        for _ in range(rounds):
            subprocess.run(run + ["1"] + extra, check=True)
            start = time.thread_time()
            peer.encode_batch(decoded, add_special_tokens=False)
            seconds = time.thread_time() - start
            print(f"peer: {len(texts)} texts, {sum(map(len, texts)) / seconds / 1e6:.1f} MB/s, {tokens / seconds / 1e6:.2f} million tokens/s of one thread's time",
                  flush=True)


main()
