#!/usr/bin/env python3
"""Writes golden/tokenizer.json: results of HuggingFace tokenizers for hostile text, every code point, SQuAD dev.
usage: make_tokenizer_golden.py DATA      DATA has squad/dev-v1.1.json.gz and bert-vocab/vocab.txt
needs: tokenizers (the committed file is from 0.23.3)"""
import codecs
import gzip
import json
import os
import random
import sys
import tempfile

from tokenizers import BertWordPieceTokenizer, PreTokenizedString
from tokenizers.normalizers import BertNormalizer
from tokenizers.pre_tokenizers import BertPreTokenizer

folder = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "golden")
letters = "abcdefghijklmnopqrstuvwxyz0123456789"
vocabulary = (["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"] + list(letters) + ["##" + c for c in letters]
              + list("!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~") + ["A", "##Z", "##", "###", "the", "##ing", "unable", "un", "##able",
              "##ab", "abc", "##bcd", "é", "##é", "ß", "##ß", "中", "文", "##文", "σ", "##σ", "i\u0307", "한", "##한", "\u1112\u1161\u11ab", "##\u11ab",
              "😀", "##😀", "\u200d", "–", "「", "。", "x\u0301"])
variants = [{}, {"lower_case": False}, {"strip_accents": False}, {"lower_case": False, "strip_accents": True}, {"split_cjk": False},
            {"max_word": 5}]


def options(variant):
    return {"lowercase": variant.get("lower_case", True), "strip_accents": variant.get("strip_accents"),
            "handle_chinese_chars": variant.get("split_cjk", True)}


def widths(raw):
    """The byte length of each code point of raw.decode("utf-8", "replace")."""
    damage = {}
    codecs.register_error("note", lambda error: (damage.__setitem__(error.start, error.end), ("\ufffd", error.end))[1])
    raw.decode("utf-8", "note")
    starts, at = [], 0
    while at < len(raw):
        starts.append(at)
        at = damage.get(at) or at + (1 if raw[at] < 0x80 else 2 if raw[at] < 0xE0 else 3 if raw[at] < 0xF0 else 4)
    return starts + [len(raw)]


def hostile():
    rng = random.Random(3)
    emoji = "👩‍👩‍👧‍👦 😀😀 a😀 🏳️‍🌈 👍🏽 🇳🇱 1️⃣"
    texts = ["", " ", "\0", "The UNABLE abcd;unabled", "a\0b\tc\nd\re\u000bf\u0085g\u00a0h\u2028i\u3000j\u200bk\ufeffl", emoji,
             "ÉÈe\u0301 É ß ẞ Σ ΣΑΣ İ i\u0307 ﬁ", "中文 a中b文 \uf900\U0002f800", "한 한글 \u1112\u1161\u11ab", "x\u0301\u0323 X\u0323\u0301",
             "\u037e \u1fef \u226e \u2adc", "– 「a」。", "[MASK] [CLS][SEP]x[PAD]y[UNK] [mask] [MASK [[MASK]] [MASK]\u0301 [MA\0SK]", "## ### #a un##able",
             "Z͑ͫ̓ͪ̂ͫ̽͏̴̙̤̞͉͚̯̞̠͍A̴̵̜̰͔ͫ͗͢L̠ͨͧͩ͘G̴̻͈͍͔̹̑͗̎̅͛́Ǫ̵̹̻̝̳͂̌̌͘!͖̬̰̙̗̿̋ͥͥ̂ͣ̐́́͜͞", "\u1885\u1886\ua9bd\u1734\u166d\U000111c9"]
    texts += [c * n for n in (99, 100, 101) for c in ("a", "é", "中", "a\u0301", "한", "😀")]
    texts += [c * n for n in (63, 64, 65) for c in ("a", "aé")]
    marks = [0x301, 0x323, 0x327, 0x345, 0x302E, 0x302F, 0x1D165, 0x1D15E, 0x16FF0, 0x1C37, 0x10F50, 0x1DFB, 0x1DF6, 0xF73, 0x344]
    pools = [marks, [ord(c) for c in "aB1 .中é\t\u3000\u200b["], [0xC9, 0x1E69, 0x130, 0xD55C, 0x9CB, 0x226E, 0x1FEE]]
    texts += ["".join(chr(rng.choice(rng.choice(pools))) for _ in range(rng.randrange(1, 14))) for _ in range(60)]
    raw = [text.encode() for text in texts]
    raw += [b"a\xffb", b"\xc3", b"a\xc3 b", b"\xe2\x82", b"\xe2\x82 \xe2\x82\xac", b"\xed\xa0\x80a", b"\xf0\x80\x80\x80", b"\xf4\x90\x80\x80", b"\xc0\x80x",
            b"x\xf0\x9f\x98y\xf0\x9f\x98\x80", b"\x80\x80ab\xbf", b"\xf5\xfe\xff"]
    good = (emoji + " naïve; 中文 [MASK] été").encode()
    for _ in range(60):
        damaged = bytearray(good[rng.randrange(len(good)):][:rng.randrange(2, 24)])
        for _ in range(3):
            damaged[rng.randrange(len(damaged))] = rng.randrange(256)
        raw.append(bytes(damaged))
    return raw


def cases():
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
        file.write("".join(token + "\n" for token in vocabulary))
        file.flush()
        for variant in variants:
            tokenizer = BertWordPieceTokenizer(file.name, **options(variant))
            tokenizer._tokenizer.model.max_input_chars_per_word = variant.get("max_word", 100)
            texts = []
            for raw in hostile():
                starts, encoding = widths(raw), tokenizer.encode(raw.decode("utf-8", "replace"), add_special_tokens=False)
                texts.append([raw.hex(), [x for i, (b, e) in zip(encoding.ids, encoding.offsets) for x in (i, starts[b], starts[e])]])
            yield {"options": variant, "texts": texts}


def fnv(words, state=0xCBF29CE484222325):
    for word in words:
        state = (state ^ word) * 0x100000001B3 & (1 << 64) - 1
    return state


def code_points(variant):
    """Hashes of the words and their byte ranges, for blocks of 0x4000 code points c in lines "acb"."""
    normalizer = BertNormalizer(True, **{"handle_chinese_chars": True, **options(variant)})
    for first in range(0, 0x110000, 0x4000):
        if 0xD800 <= first < 0xE000:
            first = 0xE000
        text = "\n".join("a" + chr(c) + "b" for c in range(first, first // 0x4000 * 0x4000 + 0x4000) if not 0xD800 <= c < 0xE000)
        starts, at = [], 0
        for c in text:
            starts.append(at)
            at += len(c.encode())
        starts.append(at)
        split = PreTokenizedString(text)
        split.normalize(normalizer.normalize)
        BertPreTokenizer().pre_tokenize(split)
        state = fnv([])
        for word, (begin, end), _ in split.get_splits("original", "char"):
            state = fnv([*word.encode(), starts[begin], starts[end]], state)
        yield str(state)


def squad(data):
    """A hash of all tokens and their byte ranges: first the contexts, then the questions."""
    tokenizer = BertWordPieceTokenizer(data + "/bert-vocab/vocab.txt")
    paragraphs = [p for article in json.load(gzip.open(data + "/squad/dev-v1.1.json.gz"))["data"] for p in article["paragraphs"]]
    texts = [p["context"] for p in paragraphs] + [q["question"] for p in paragraphs for q in p["qas"]]
    state, count = fnv([]), 0
    for text in texts:
        starts, encoding = widths(text.encode()), tokenizer.encode(text, add_special_tokens=False)
        count += len(encoding.ids)
        for i, (begin, end) in zip(encoding.ids, encoding.offsets):
            state = fnv([i, starts[begin], starts[end]], state)
    return {"tokens": count, "hash": str(state)}


golden = {"vocabulary": vocabulary, "cases": list(cases()),
          "code_points": [{"options": v, "hashes": list(code_points(v))} for v in variants[:5]],
          "squad_dev": squad(sys.argv[1])}
with open(f"{folder}/tokenizer.json", "w") as out:
    json.dump(golden, out, separators=(",", ":"), ensure_ascii=False)
    out.write("\n")
