#!/usr/bin/env python3
"""Makes tests/data/golden/bpe with HuggingFace tokenizers: vocabularies trained on train.txt there, tokenizers with the
patterns of GPT-2, LLaMA 3 and Qwen 2, one with NFC and added tokens, and the ids of hostile texts.

  python3 tests/data/text/make_bpe_golden.py      (tokenizers 0.23.3)"""
import json
import os
import random

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

folder = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "golden", "bpe")
llama3 = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
qwen2 = llama3.replace(r"\p{N}{1,3}", r"\p{N}")
odd = ["'s", "'S", "'\u017f", "'ll", "'LL", "'Ve", "'re", "''", " ", "  ", "   ", "\n", "\r\n", "\t", "\u3000", "\xa0", "\x85", "\u2028",
       "\u200b", "\u00ad", "1", "12", "12345", "\u0663", "\u00bd", "\u2167", "a", "B", "the", " the", "don't", "\u00e9", "e\u0301",
       "\u4e2d\u6587", "\ud55c", "\u1100\u1161", "\U0001d15e", "\U00010400", "\U0001f468\u200d\U0001f469", ".", "...", "!?", "<|endoftext|>",
       "<|endoftext", "<|im_start|>", "<|im_end|>", "<", "\0", "\ufffd", "\uffff", "\U0010ffff", "_",
       "\U00010d4a", "\U00010d40", "\U0002ebf0", "\u1c89", "\u0378", "\U000116d0",
       "\u0485\U00011839", "a\u0301\u0323", "\u081c\U00010f50"]  # letters and numbers of new versions


def split(regex):
    return pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(regex), "isolated"), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


def trained(pre_tokenizer, size, text):
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizer
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=size, min_frequency=2, special_tokens=["<|endoftext|>"], show_progress=False,
                                  initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    tokenizer.train_from_iterator([text], trainer)
    return tokenizer


def save(tokenizer, name):
    with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
        json.dump(json.loads(tokenizer.to_str()), file, ensure_ascii=False, separators=(",", ":"))


rng = random.Random(1)
texts = ["", *odd] + ["".join(rng.choice(odd) for _ in range(rng.randrange(2, 30))) for _ in range(150)]
texts += [c * n for c in ("a", "ab", "\u00e9", " ", "!") for n in (16, 17, 48, 49, 65, 200)]
train = open(os.path.join(folder, "train.txt"), encoding="utf-8").read()
gpt2 = trained(pre_tokenizers.ByteLevel(add_prefix_space=False), 500, train)
gpt2.model.save(folder)
third = trained(split(llama3), 450, train)
third.model = models.BPE.from_file(os.path.join(folder, "vocab.json"), os.path.join(folder, "merges.txt"), ignore_merges=True)
third.add_special_tokens([AddedToken("<|im_start|>", rstrip=True), AddedToken("<|im_end|>", lstrip=True)])
third.add_tokens([AddedToken("...", normalized=True), AddedToken("\u4e2d\u6587", normalized=True, lstrip=True, rstrip=True), AddedToken("..", normalized=False)])
second = trained(split(qwen2), 450, train)
second.normalizer = normalizers.NFC()
save(third, "llama3.json")
save(second, "qwen2.json")
# Added tokens: matched after NFC, matched in white space that another token includes, and a merge of bytes that is not
# a word.
added = trained(pre_tokenizers.ByteLevel(add_prefix_space=False), 450, train)
added.model = models.BPE.from_file(os.path.join(folder, "vocab.json"), os.path.join(folder, "merges.txt"), ignore_merges=True)
added.normalizer = normalizers.NFC()
added.add_tokens([AddedToken("q\u0301e\u0301", normalized=True), AddedToken("\u1100\u1161", normalized=True), AddedToken("e\u0301q", normalized=False),
                  AddedToken("END", normalized=False, rstrip=True), AddedToken("  ", normalized=False), AddedToken("\n", normalized=False, lstrip=True),
                  AddedToken("zq\u0120", normalized=False)])
added.add_special_tokens([AddedToken("\u212b\u0301", normalized=True)])
save(added, "added.json")
texts += ["xq\u0301\u00e9y", "q\u0301e\u0301", "q\u0301e\u0301q", "a \uac00 \uac01 \u1100\u1161\u11a8 \u1100\u1161", "\u00c5\u0301 \u212b\u0301 \u01fa A\u030a\u0301 A\u0301\u030a",
          "END   x", "END  END", "END  \nx", "END\nzq", "xEND    \n\n", "END     the", "END", "  END\u3000  a", "zq\u0120 zq zq "]
with open(os.path.join(folder, "expected.json"), "w", encoding="utf-8") as file:
    json.dump([{"text": text, **{name: tokenizer.encode(text, add_special_tokens=False).ids
                                 for name, tokenizer in (("gpt2", gpt2), ("llama3", third), ("qwen2", second), ("added", added))}} for text in texts],
              file, separators=(",", ":"))
    file.write("\n")
