#!/usr/bin/env python3
"""Measures how much memory hostile files make the programs allocate, as a multiple of their size.

  bench/file_memory.py [--mib 8]

Each file consists of the smallest pieces that its format allows, as empty lists. Prints the growth of the peak resident
memory over that of a run with a small file, divided by the size of the file. Runs that refuse the file count too.
"""
import argparse
import itertools
import os
import pathlib
import struct
import subprocess
import sys
import tempfile

root = pathlib.Path(__file__).resolve().parent.parent
SMALL = "the cat\n\nthe dog\n" * 200
QUESTION = '{"id":"%d","question":"w","answers":[{"text":"c","answer_start":4}]}'


def repeated(piece, size):
    """Pieces, numbered if they contain %d, with commas between them."""
    pieces = (piece % i if "%d" in piece else piece for i in itertools.count())
    taken, length = [], 0
    while length < size:
        taken.append(next(pieces))
        length += len(taken[-1]) + 1
    return ",".join(taken)


def safetensors(header):
    header = header.encode()
    return struct.pack("<Q", len(header)) + header


def squad(questions):
    return '{"data":[{"paragraphs":[{"context":"the cat","qas":[%s]}]}]}' % questions


def hostile(size):
    """For each name: program and flags, the file that is replaced, its content."""
    image = ["train_resnet", "--batch", "8", "--init-weights"]
    text = ["train_bert", "--model", "bert_tiny", "--length", "16"]
    weights, index = [*image, "a.safetensors"], [*image, "model.safetensors.index.json"]
    for piece in ("[]", "{}", "1"):
        yield f"safetensors, header of {piece}", weights, "a.safetensors", safetensors('{"a":[%s]}' % repeated(piece, size))
    empty = '"%d":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}'
    yield "safetensors, empty tensors", weights, "a.safetensors", safetensors("{%s}" % repeated(empty, size))
    yield "index, names", index, index[-1], '{"weight_map":{%s}}' % repeated('"%d":"x.safetensors"', size)
    questions = [*text, "--task", "squad", "--data", "squad"]
    yield "SQuAD, objects", questions, "squad/train-v1.1.json", '{"data":[%s]}' % repeated("{}", size)
    yield "SQuAD, questions", questions, "squad/train-v1.1.json", squad(repeated(QUESTION, size))
    yield "TSV, short rows", [*text, "--task", "classify", "--data", "tsv"], "tsv/train.tsv", "sentence\tlabel\n" + "a\t0\nb\t1\n" * (size // 8)
    for name, piece in (("lines", "a\n"), ("documents", "a\n\n")):
        yield f"text, {name}", [*text, "--task", "pretrain", "--data", "text.txt"], "text.txt", piece * (size // len(piece))


def peak_bytes(words, folder):
    # A process of its own measures its only child.
    code = "import resource,subprocess,sys; subprocess.run(sys.argv[1:],capture_output=True); print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)"
    program = [str(root / "build/release" / words[0]), *words[1:], "--max-steps", "1", "--threads", "1", "--run-dir", tempfile.mkdtemp(dir=folder)]
    return 1024 * int(subprocess.run([sys.executable, "-c", code, *program], cwd=folder, capture_output=True, text=True, check=True).stdout)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mib", type=int, default=8, help="size of the files")
    size = parser.parse_args().mib << 20
    subprocess.run([root / "scripts/build", "release", "train_resnet", "train_bert"], check=True, stdout=subprocess.DEVNULL)
    with tempfile.TemporaryDirectory() as folder:
        small = {"a.safetensors": safetensors("{}"), "text.txt": SMALL}
        small |= {f"squad/{part}-v1.1.json": squad(QUESTION % 1) for part in ("train", "dev")}
        small |= {f"tsv/{part}.tsv": "sentence\tlabel\na\t0\nb\t1\n" for part in ("train", "dev")}

        def write(name, content):
            path = pathlib.Path(folder, name)
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(content if isinstance(content, bytes) else content.encode())

        for name, content in small.items():
            write(name, content)
        for label, words, name, content in hostile(size):
            before = peak_bytes(words, folder)
            write(name, content)
            print(f"{label:28} {(peak_bytes(words, folder) - before) / os.path.getsize(pathlib.Path(folder, name)):5.1f} times its size", flush=True)
            if name in small:
                write(name, small[name])


if __name__ == "__main__":
    main()
