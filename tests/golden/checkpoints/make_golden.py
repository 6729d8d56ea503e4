#!/usr/bin/env python3
"""Makes the golden checkpoints of a release with its translate-train, one run directory for each model form.

    tests/golden/checkpoints/make_golden.py TRANSLATE_TRAIN [--device cuda] [FORM...]

Run once for a release, with its build, and commit what appears under golden/VERSION: golden_checkpoints.py proves with every later
build that it loads, continues and translates. Existing files are never made again: an existing form is left alone.
The corpora are made here, the vocabulary is trained by the first form and shared by the others. bf16 forms need --device cuda.
"""

import itertools
import json
import lzma
import pathlib
import shutil
import subprocess
import sys

FOLDER = pathlib.Path(__file__).resolve().parent
SCRATCH = pathlib.Path("/tmp/trafo-golden")  # stands in the config.yml of every form, so it is the same for all
UPDATES, MORE = 200, 5

COMMON = ["--dim-emb", "8", "--transformer-heads", "2", "--transformer-dim-ffn", "16", "--dec-depth", "1",
          "--dim-vocabs", "56", "--mini-batch-words", "200", "--learn-rate", "0.02", "--lr-warmup", "20", "--max-length", "40",
          "--save-freq", "50u", "--valid-freq", "100u", "--valid-metrics", "ce-mean-words", "--keep-last", "1", "--keep-best", "off",
          "--disp-freq", "1u", "--log-format", "json", "--progress", "off"]
FORMS = {
    "encoder-decoder": ["--task", "tiny", "--enc-depth", "1", "--transformer-norm", "post", "--transformer-dropout", "0.05"],
    "encoder-decoder-8bit-smoothed": ["--task", "tiny", "--enc-depth", "1", "--optimizer-states", "8bit", "--exponential-smoothing", "0.02",
                                      "--optimizer-delay", "2", "--transformer-dropout", "0"],
    "encoder-decoder-untied": ["--task", "tiny", "--enc-depth", "1", "--tied-embeddings-all", "off", "--transformer-ffn-activation", "gelu",
                               "--transformer-dropout", "0.05", "--exponential-smoothing", "0.02"],
    "decoder-lm": ["--task", "lm", "--transformer-dropout", "0"],
    "gpt2": ["--task", "gpt2", "--transformer-dropout", "0.05"],
    "llama": ["--task", "llama", "--transformer-kv-heads", "1", "--transformer-dropout", "0"],
    "llama-8bit": ["--task", "llama", "--optimizer-states", "8bit", "--transformer-dropout", "0.05"],
    "encoder-decoder-bf16": ["--task", "tiny", "--enc-depth", "1", "--precision", "bf16", "--transformer-dropout", "0"],
    "llama-bf16-8bit": ["--task", "llama", "--precision", "bf16", "--optimizer-states", "8bit", "--transformer-dropout", "0"],
}


def corpus():
    number = {"zwei": "two", "drei": "three", "vier": "four"}
    adjective = {"rote": "red", "alte": "old", "neue": "new"}
    noun = {"Hüte": "hats", "Autos": "cars", "Boote": "boats", "Häuser": "houses", "Bücher": "books"}
    verb = {"stehen hier": "stand here", "fehlen": "are missing", "fallen um": "fall over"}
    for n, a, o, v in itertools.product(number, adjective, noun, verb):
        yield f"{n} {a} {o} {v}.", f"{number[n]} {adjective[a]} {noun[o]} {verb[v]}."


def write_corpus(folder):
    pairs = list(corpus())
    for name, some in (("train", pairs), ("valid", pairs[::17])):
        for side, suffix in enumerate(("de", "en")):
            (folder / f"{name}.{suffix}").write_text("".join(pair[side] + "\n" for pair in some), encoding="utf-8")


def data_flags(folder):
    return ["--train-sets", str(folder / "train.de"), str(folder / "train.en"),
            "--valid-sets", str(folder / "valid.de"), str(folder / "valid.en")]


def train(program, run, after, flags):
    command = [program, "train", "--model", str(run), "--after", f"{after}u"] + flags
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}\nended with {done.returncode}: {done.stderr}")
    return done


def losses(run, beyond):
    """Update -> loss of the updates after `beyond`, as the run logged them."""
    found = {}
    for line in (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines():
        record = json.loads(line)
        if record.get("type") == "train" and record["update"] > beyond:
            found[record["update"]] = record["loss"]
    return found


def translations(program, run, text):
    """On the CPU, whatever trained it: every later build compares with these."""
    command = [program, "translate", "--model", str(run), "--checkpoint", "latest", "--n-best", "2", "--device", "cpu", "-q"]
    done = subprocess.run(command, input=text, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}\nended with {done.returncode}: {done.stderr}")
    return done.stdout.splitlines()


def make(program, version, name, device):
    home = FOLDER / version
    target = home / name
    if target.exists():
        return
    home.mkdir(exist_ok=True)
    run = SCRATCH / name
    vocabulary = home / "vocab.spm.xz"
    flags = data_flags(SCRATCH) + COMMON + FORMS[name] + ["--device", device]
    if vocabulary.exists():
        (SCRATCH / "vocab.spm").write_bytes(lzma.decompress(vocabulary.read_bytes()))
        flags += ["--vocabs", str(SCRATCH / "vocab.spm")]
    train(program, run, UPDATES, flags)
    if not vocabulary.exists():
        vocabulary.write_bytes(lzma.compress((run / "vocab.spm").read_bytes(), preset=9 | lzma.PRESET_EXTREME))
    shutil.copytree(run / "ckpt", target / "ckpt")
    for file in ("latest", "config.yml"):
        shutil.copy(run / file, target / file)
    source = (SCRATCH / "valid.de").read_text(encoding="utf-8")
    expected = {"made_by": version, "device": device, "update": UPDATES, "translations": translations(program, run, source)}
    train(program, run, UPDATES + MORE, flags)
    expected["losses"] = losses(run, UPDATES)
    (target / "expected.json").write_text(json.dumps(expected, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    print(name, "made")


def main():
    arguments = sys.argv[1:]
    device = "cpu"
    if "--device" in arguments:
        at = arguments.index("--device")
        device = arguments[at + 1]
        del arguments[at:at + 2]
    if not arguments:
        sys.exit(__doc__)
    program = str(pathlib.Path(arguments[0]).resolve())
    version = subprocess.run([program, "--version"], capture_output=True, text=True, check=True).stdout.split()[-1]
    names = arguments[1:] or [name for name in FORMS if ("bf16" in name) == (device != "cpu")]
    shutil.rmtree(SCRATCH, ignore_errors=True)
    SCRATCH.mkdir()
    write_corpus(SCRATCH)
    for name in names:
        make(program, version, name, device)
    shutil.rmtree(SCRATCH)


if __name__ == "__main__":
    main()
