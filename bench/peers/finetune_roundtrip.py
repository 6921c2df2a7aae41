#!/usr/bin/env python3
"""Fine-tunes folders of transformers with hybrid sharding and LoCo over 2 × 2 workers, and generates from the results.

  python3 bench/peers/finetune_roundtrip.py [TEXT [STEPS]]

transformers writes a small random GPT-2 and a small random LLaMA, each with a byte-level BPE tokenizer of the text.
train_gpt fine-tunes them. transformers loads the resulting folder `model/`, and its greedy continuations are compared
with those of `train_gpt --generate PROMPT --temperature 0`. Ends with an error if names, weights or a text differ.

TEXT: a text file in ASCII [tests/data/golden/bpe/train.txt]
STEPS: number of training steps [200]
Requires torch and transformers, and train_gpt (scripts/build release train_gpt). The environment variable PROGRAMS names
another folder with the program."""
import json
import os
import pathlib
import subprocess
import sys
import tempfile

import tokenizers
import torch
import transformers

root = pathlib.Path(__file__).resolve().parent.parent.parent
program = pathlib.Path(os.environ.get("PROGRAMS", root / "build" / "release")).resolve() / "train_gpt"
VOCABULARY, POSITIONS, NEW_TOKENS = 384, 64, 40
END = "<|endoftext|>"
PROMPTS = ("First Citizen:\n", "We are", "the people", "O", "All:\nSpeak, speak.\n\n")


def tokenizer_of(text):
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE())
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    alphabet = tokenizers.pre_tokenizers.ByteLevel.alphabet()
    tokenizer.train([str(text)], tokenizers.trainers.BpeTrainer(vocab_size=VOCABULARY, special_tokens=[END], initial_alphabet=alphabet, show_progress=False))
    return transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token=END, bos_token=END)


def models(end):
    """Small models with random weights, by name."""
    torch.manual_seed(1)
    common = dict(vocab_size=VOCABULARY, bos_token_id=end, eos_token_id=end)
    yield "gpt2", transformers.GPT2LMHeadModel(transformers.GPT2Config(
        n_positions=POSITIONS, n_embd=64, n_layer=3, n_head=4, resid_pdrop=0, embd_pdrop=0, attn_pdrop=0, **common))
    yield "llama", transformers.LlamaForCausalLM(transformers.LlamaConfig(
        max_position_embeddings=POSITIONS, hidden_size=64, intermediate_size=160, num_hidden_layers=3, num_attention_heads=4,
        num_key_value_heads=2, rope_parameters=dict(rope_type="llama3", rope_theta=10000.0, factor=4.0, low_freq_factor=1.0,
                                                    high_freq_factor=4.0, original_max_position_embeddings=32), **common))


def run(*words):
    result = subprocess.run([str(program), *map(str, words)], capture_output=True, text=True)
    if result.returncode:
        sys.exit(f"{' '.join(map(str, words))}\nended with status {result.returncode}: {result.stderr}")
    return result.stdout


def require(condition, *what):
    if not condition:
        sys.exit("finetune_roundtrip: " + " ".join(map(str, what)))


def continued(model, tokenizer, prompt):
    ids = tokenizer(prompt, return_tensors="pt", add_special_tokens=False).input_ids
    with torch.no_grad():
        ids = model.generate(ids, attention_mask=torch.ones_like(ids), do_sample=False, max_new_tokens=NEW_TOKENS, pad_token_id=tokenizer.eos_token_id)
    return tokenizer.decode(ids[0], skip_special_tokens=True, clean_up_tokenization_spaces=False)


def roundtrip(name, start, tokenizer, text, steps, folder):
    """Prints the losses and the number of equal texts."""
    start.save_pretrained(folder / name)
    tokenizer.save_pretrained(folder / name)
    of_run = folder / f"{name}-run"
    run("--init-weights", folder / name, "--data", text, "--context", POSITIONS // 2, "--batch", 2, "--nodes", 2, "--workers-per-node", 2,
        "--exchange", "loco", "--set", "exchange.sharding=hybrid", "--lr", "3e-3", "--epochs", 1000, "--max-steps", steps,
        "--set", "log_every=1", "--set", f"evaluate_every={steps}", "--check-replicas", 50, "--threads", 1, "--run-dir", of_run)
    exchange = json.loads((of_run / "config.json").read_text())["exchange"]
    require((exchange["name"], exchange["sharding"]) == ("loco", "hybrid"), name, exchange)
    losses = [line["loss"] for line in map(json.loads, open(of_run / "metrics.jsonl")) if "loss" in line]
    require(losses[-1] < losses[0] - 1, name, "has not learned:", losses[0], losses[-1])
    model, report = transformers.AutoModelForCausalLM.from_pretrained(of_run / "model", output_loading_info=True)
    wrong = {kind: found for kind, found in report.items() if found}
    require(not wrong, name, wrong)
    require(type(model) is type(start), name, type(model))
    same = [key for key, values in model.state_dict().items() if torch.equal(values, start.state_dict()[key])]
    require(not same, name, "has unchanged weights:", same)
    tokenizer = transformers.AutoTokenizer.from_pretrained(of_run / "model")
    equal = 0
    for prompt in PROMPTS:
        theirs = continued(model.eval(), tokenizer, prompt)
        require(theirs != continued(start.eval(), tokenizer, prompt), name, "still generates the text of the random weights:", repr(theirs))
        ours = run("--init-weights", of_run / "model", "--generate", prompt, "--temperature", 0, "--set", f"generate.tokens={NEW_TOKENS}")
        require(ours == theirs + ("" if theirs.endswith("\n") else "\n"), f"{name}, greedy texts differ:\n{ours!r}\n{theirs!r}")
        equal += 1
    print(f"{name}: loss {losses[0]:.3f} to {losses[-1]:.3f} in {steps} steps; {equal} of {len(PROMPTS)} greedy texts of {NEW_TOKENS} tokens "
          f"equal; the last: {theirs!r}", flush=True)


def main():
    if len(sys.argv) > 3:
        sys.exit(__doc__)
    text = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else root / "tests" / "data" / "golden" / "bpe" / "train.txt").resolve()
    steps = int(sys.argv[2]) if len(sys.argv) > 2 else 200
    torch.set_num_threads(1)
    tokenizer = tokenizer_of(text)
    print(f"transformers {transformers.__version__}, torch {torch.__version__}, tokenizers {tokenizers.__version__}")
    with tempfile.TemporaryDirectory() as folder:
        for name, model in models(tokenizer.eos_token_id):
            roundtrip(name, model, tokenizer, text, steps, pathlib.Path(folder))


if __name__ == "__main__":
    main()
