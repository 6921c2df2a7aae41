#!/usr/bin/env python3
"""Writes golden/bert_tokenizer: a folder saved by transformers, and its ids of some texts (ids.json).
needs: transformers (the committed files are from 5.23.0)"""
import json
import os
import tempfile

from transformers import BertTokenizer

folder = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "golden", "bert_tokenizer")
vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "good", "bad", "Good", "un", "##able", "##ly", "é", "É", "e", "中", "文", "中文", ",", "[", "]"]
texts = ["good, bad", "Good BAD", "unable unably UNABLE", "é É e\u0301", "中文 中a", "[MASK] good [mask]", "a\0good", "x" * 101]

with tempfile.TemporaryDirectory() as source:
    with open(source + "/vocab.txt", "w", encoding="utf-8") as out:
        out.write("".join(token + "\n" for token in vocabulary))
    tokenizer = BertTokenizer.from_pretrained(source, do_lower_case=False, tokenize_chinese_chars=False)
tokenizer.save_pretrained(folder)
with open(folder + "/ids.json", "w", encoding="utf-8") as out:
    json.dump([[text, tokenizer(text, add_special_tokens=False).input_ids] for text in texts], out, ensure_ascii=False)
    out.write("\n")
