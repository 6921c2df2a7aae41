#!/usr/bin/env python3
"""Writes golden/squad_metrics.json: Python's classes of letters, spaces and word characters, normalized hostile
answers, and the scores of squad_evaluate.py for pairs of answers. Covers the code points of Python's Unicode version.
usage: make_squad_golden.py"""
import json
import os
import random
import unicodedata

import squad_evaluate

codes = [c for c in range(0x110000) if unicodedata.category(chr(c)) not in ("Cn", "Cs")]


def ranges(which):
    found = []
    for c in codes:
        if not which(chr(c)):
            continue
        if found and found[-1][1] + 1 == c:
            found[-1][1] = c
        else:
            found.append([c, c])
    return found


golden = {
    "known": ranges(lambda c: True),
    "spaces": ranges(lambda c: c.isspace()),
    "words": ranges(lambda c: c.isalnum() or c == "_"),
    # [code point, ("x" + character + "x").lower() without the x]
    "lower": [[c, ("x" + chr(c) + "x").lower()[1:-1]] for c in codes if ("x" + chr(c) + "x").lower() != "x" + chr(c) + "x"],
}

pieces = ["a", "an", "the", "A", "THE", "An", "THEM", "ab", "a_b", "cat", "CAT", "o'clock", "U.S.", "1,000", "42", "²", "½", "٣",
          "-", "–", "'", "\"", "“", "_", ".", "…", "$", "€", "\u0301", "é", "E\u0301", "İ", "ı", "ß", "ẞ", "Σ", "ΟΔΟΣ", "ΣΑΣ.", "σ",
          "ΑΣ'Α", "ΑΣ'", "\u1e9e", "ǅ", "Ⅷ", "ⓐ", "漢", "字a", "the漢", "😀", "a😀the", "ª", "ʰ", "Ⱥ", "K", "\u00ad", "\u200b",
          "\u200d", "\ufeff", "\x00", "\x1c", "\x85", "\xa0", "\u2003", "\u3000", "\u180e", "\t", "\n", " ", "  ", "\u0345", "Σ\u0345"]
random.seed(1)
texts = pieces + ["", "the", "the the", " the a ", "a.n", "t-h-e cat", "an-the", "(The) cat!", "a a a cat a", "cat the", "the cat"]
for _ in range(400):
    texts.append("".join(random.choice(pieces) + random.choice(["", "", " ", " "]) for _ in range(random.randint(1, 6))))
golden["normalised"] = [[text, squad_evaluate.normalise(text)] for text in texts]

golden["scores"] = []  # datasets of one question
for _ in range(300):
    words = [random.choice(pieces) for _ in range(random.randint(0, 5))]
    truths = [" ".join(random.sample(words, random.randint(0, len(words))) + random.choices(pieces, k=random.randint(0, 2)))
              for _ in range(random.randint(1, 3))]
    prediction = " ".join(words)
    articles = [{"paragraphs": [{"qas": [{"id": "x", "answers": [{"text": truth} for truth in truths]}]}]}]
    score = squad_evaluate.evaluate(articles, {"x": prediction})
    golden["scores"].append([prediction, truths, score["exact_match"], score["f1"]])

folder = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "golden")
with open(f"{folder}/squad_metrics.json", "w") as out:
    json.dump(golden, out, separators=(",", ":"))
    out.write("\n")
