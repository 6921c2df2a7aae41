#!/usr/bin/env python3
"""Measures how much memory hostile files make the programs allocate, as a multiple of their size.

  bench/file_memory.py [--mib 8] [--limit 60] [--build build/release]

Each file consists of the smallest pieces that its format allows, such as empty lists. Prints the growth of the peak
resident memory relative to a run with a file of a few pieces, divided by the size of the file. Runs that reject the
file also count. With --limit, a file that needs more than this multiple of its size is an error. With --build, the
programs of this folder are used without building them.
"""
import argparse
import itertools
import json
import pathlib
import struct
import subprocess
import sys
import tempfile

root = pathlib.Path(__file__).resolve().parent.parent
SMALL = "the cat\n\nthe dog\n" * 200
WORDS = "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nthe\ncat\ndog\n"
QUESTION = '{"id":"%d","question":"w","answers":[{"text":"c","answer_start":4}]}'
RUN = '{"nodes":1,"workers_per_node":1,"batch":8,"accumulation":1}'
WEIGHTS = struct.pack("<Q", 2) + b"{}"
HARMLESS = (SMALL, WORDS, RUN, WEIGHTS)  # contents of files that are not measured
# GPT-2's characters for the 256 bytes.
PRINTABLE = [*range(33, 127), *range(161, 173), *range(174, 256)]
BYTES = [chr(b) for b in PRINTABLE] + [chr(256 + i) for i in range(256 - len(PRINTABLE))]


def repeated(piece, size, between=","):
    """Pieces, numbered if they contain %d."""
    pieces = (piece.replace("%d", str(i)) for i in itertools.count())
    taken, length = [], 0
    while length < size:
        taken.append(next(pieces))
        length += len(taken[-1]) + len(between)
    return between.join(taken)


def safetensors(header):
    header = header.encode()
    return struct.pack("<Q", len(header)) + header


def squad(questions):
    return '{"data":[{"paragraphs":[{"context":"the cat","qas":[%s]}]}]}' % questions


def byte_pairs(size):
    """Vocabulary and merges of a byte-level BPE whose files have about `size` bytes together."""
    vocabulary, merges, length = {byte: i for i, byte in enumerate(BYTES)}, [], 0
    for left, right in itertools.product(list(BYTES), BYTES):
        if length >= size:
            break
        vocabulary[left + right] = len(vocabulary)
        merges.append(f"{left} {right}")
        length += 20
    for left in list(vocabulary)[256:]:  # all pairs of bytes are already tokens
        if length >= size:
            break
        for right in BYTES:
            vocabulary[left + right] = len(vocabulary)
            merges.append(f"{left} {right}")
            length += 28
    return vocabulary, merges


def bpe_json(vocabulary, merges):
    return json.dumps(
        {
            "added_tokens": [],
            "normalizer": None,
            "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "use_regex": True},
            "model": {"type": "BPE", "vocab": vocabulary, "merges": merges},
        },
        ensure_ascii=False,
        separators=(",", ":"),
    )


def hostile(size):
    """For each name: program and flags, and the files that are written. Files with other contents than HARMLESS are measured."""
    image = ["train_resnet", "--batch", "8"]
    text = ["train_bert", "--model", "bert_tiny", "--length", "16"]
    words = ["train_lm", "--data", "text.txt"]
    tokens = ["tokenize", "text.txt", "--out", "shards", "--tokenizer"]
    weights = [*image, "--init-weights", "a.safetensors"]
    for piece in ("[]", "{}", "1"):
        yield f"safetensors, header of {piece}", weights, {"a.safetensors": safetensors('{"a":[%s]}' % repeated(piece, size))}
    empty = '"%d":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}'
    yield "safetensors, empty tensors", weights, {"a.safetensors": safetensors("{%s}" % repeated(empty, size))}
    index = "model.safetensors.index.json"
    yield "index, names", [*image, "--init-weights", index], {index: '{"weight_map":{%s}}' % repeated('"%d":"x.safetensors"', size)}
    for label, content in (("lists", '{"version":[%s]}' % repeated("[]", size)), ("files", '{"version":3,"files":{%s}}' % repeated('"%d":{}', size))):
        yield f"manifest, {label}", [*image[:1], "--resume", "run"], {"run/checkpoints/step-1/manifest.json": content, "run/config.json": RUN}
    most = min(size, (1 << 20) - 100)  # larger files are rejected
    for label, content in (("lists", '{"a":[%s]}' % repeated("[]", most)), ("keys", "{%s}" % repeated('"%d":1', most))):
        yield f"configuration, {label}", [*image, "--config", "config.json"], {"config.json": content}
        yield f"config.json of a model, {label}", ["train_bert", "--length", "16", "--task", "pretrain", "--data", "text.txt", "--init-weights", "model"], {
            "model/config.json": content,
            "model/vocab.txt": WORDS,
            "model/model.safetensors": WEIGHTS,
            "text.txt": SMALL,
        }
    for label, content in (("objects", '{"data":[%s]}' % repeated("{}", size)), ("questions", squad(repeated(QUESTION, size)))):
        yield f"SQuAD, {label}", [*text, "--task", "squad", "--data", "squad"], {"squad/train-v1.1.json": content, "squad/dev-v1.1.json": squad(QUESTION % 1)}
    yield "TSV, short rows", [*text, "--task", "classify", "--data", "tsv"], {
        "tsv/train.tsv": "sentence\tlabel\n" + "a\t0\nb\t1\n" * (size // 8),
        "tsv/dev.tsv": "sentence\tlabel\na\t0\nb\t1\n",
    }
    for label, piece in (("lines", "a\n"), ("documents", "a\n\n")):
        yield f"text, {label}", [*text, "--task", "pretrain", "--data", "text.txt"], {"text.txt": piece * (size // len(piece))}
    # Lacks words that a vocabulary needs. Therefore, the file is rejected after it is read, and no model is built.
    numbers = repeated("%d", size, "\n") + "\n"
    yield "vocabulary, short words", [*text, "--task", "pretrain", "--data", "text.txt", "--vocab", "v.txt"], {"v.txt": numbers, "text.txt": SMALL}
    yield "vocabulary of train_lm", [*words, "--vocab", "v.txt"], {"v.txt": numbers, "text.txt": SMALL}
    wordpiece = '{"model":{"type":"WordPiece","vocab":{%s}}}' % repeated('"%d":%d', size)
    yield "tokenizer.json, WordPiece", [*text, "--task", "pretrain", "--data", "text.txt", "--vocab", "tokenizer.json"], {
        "tokenizer.json": wordpiece,
        "text.txt": SMALL,
    }
    for label, piece in (("lists", "[]"), ("objects", "{}")):
        yield f"tokenizer.json, {label}", [*tokens, "tokenizer.json"], {"tokenizer.json": '{"model":[%s]}' % repeated(piece, size), "text.txt": SMALL}
    yield "tokenizer.json, byte-level BPE", [*tokens, "tokenizer.json"], {"tokenizer.json": bpe_json(*byte_pairs(size)), "text.txt": SMALL}
    vocabulary, merges = byte_pairs(size)
    yield "vocab.json and merges.txt", [*tokens, "vocab.json"], {
        "vocab.json": json.dumps(vocabulary, ensure_ascii=False, separators=(",", ":")),
        "merges.txt": "\n".join(merges) + "\n",
        "text.txt": SMALL,
    }
    characters = [*tokens[:-1], "--tokenizer", "characters"]
    for label, line in (("documents", '{"text":"a"}\n'), ("objects", '{"a":{},"text":""}\n')):
        yield f"JSONL, {label}", ["tokenize", "x.jsonl", *characters[2:]], {"x.jsonl": line * (1 + size // len(line))}
    yield "JSONL, a line of lists", ["tokenize", "x.jsonl", *characters[2:]], {"x.jsonl": '{"a":[%s],"text":"a"}\n' % repeated("[]", size)}


def peak_bytes(build, words, files):
    """Peak resident memory of a run, and the exit code."""
    with tempfile.TemporaryDirectory() as folder:
        for name, content in files.items():
            path = pathlib.Path(folder, name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content if isinstance(content, bytes) else content.encode())
        command = [str(build / words[0]), *words[1:]]
        if words[0] != "tokenize":
            command += ["--max-steps", "1", "--threads", "1"] + (["--run-dir", "new"] if "--resume" not in words else [])
        # A separate process measures its only child.
        code = "import resource,subprocess,sys; r=subprocess.run(sys.argv[1:],capture_output=True); print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss, r.returncode, r.stderr[:200])"
        peak, exit_code, error = subprocess.run([sys.executable, "-c", code, *command], cwd=folder, capture_output=True, text=True, check=True).stdout.split(" ", 2)
        if "no such flag" in error or "unknown option" in error:
            sys.exit(f"{' '.join(command)}: {error.strip()}")
        return 1024 * int(peak), int(exit_code), error.strip()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mib", type=int, default=8, help="size of the files")
    parser.add_argument("--limit", type=float, help="largest allowed memory, as a multiple of the size")
    parser.add_argument("--build", type=pathlib.Path, help="folder of the programs, which are then not built")
    parser.add_argument("--only", default="", help="measure only files whose name contains this text")
    parser.add_argument("--verbose", action="store_true", help="also print the error of each run")
    arguments = parser.parse_args()
    build = (arguments.build or root / "build/release").resolve()
    if not arguments.build:
        subprocess.run([root / "scripts/build", "release", "train_resnet", "train_bert", "train_lm", "tokenize"], check=True, stdout=subprocess.DEVNULL)
    size, largest = arguments.mib << 20, ("", 0)
    for (label, words, files), (_, _, few) in zip(hostile(size), hostile(4000)):
        if arguments.only not in label:
            continue
        length = sum(len(content if isinstance(content, bytes) else content.encode()) for content in files.values() if content not in HARMLESS)
        peak, exit_code, error = peak_bytes(build, words, files)
        times = (peak - peak_bytes(build, words, few)[0]) / length
        print(f"{label:34} {length / 2**20:5.1f} MiB {times:5.1f} times its size{f'; exit code {exit_code} {error}' if arguments.verbose else ''}", flush=True)
        largest = max(largest, (label, times), key=lambda pair: pair[1])
    if arguments.limit and largest[1] > arguments.limit:
        sys.exit(f"{largest[0]}: {largest[1]:.1f} times its size in memory, the limit is {arguments.limit:g}")


if __name__ == "__main__":
    main()
