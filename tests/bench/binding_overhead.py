#!/usr/bin/env python3
"""The cost of training through Rust and through Go against translate-train, on the same work.

Three programs train the same model on the same text, with the same tokenizer, settings and seed; that it is the same work is
seen by their model files, which must be equal byte for byte. Each is run with few and with many updates: the difference is
what updates cost, without start, reading and saving. Processor time decides (other programs share the machine), wall time is
printed beside it. Rounds take turns, and the median of each program's differences counts: the smallest may be one whose short
run was held up.

Rounds of one program differ by more than what is looked for; so what a call into the library costs is measured by itself as well,
over a million of them, and given as a share of an update, of which a program that trains step by step makes one or two.

    tests/bench/binding_overhead.py [--updates N] [--rounds N] [--threads N] [--batch-tokens N] [--build build/release] [--programs FOLDER] [--json]

Needs the library and translate-train in --build, cargo and go; --programs keeps the two programs in FOLDER, and takes them from there
where it has them: on a quiet machine that has no compilers.
"""
import argparse
import hashlib
import json
import os
import pathlib
import random
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
FEW = 5

RUST = """
use std::ops::ControlFlow;
use trafo::*;
fn main() -> Result<()> {
    let a: Vec<String> = std::env::args().collect();
    let updates = a[2].parse().unwrap();
    let corpus = Corpus::load("train.src", "train.trg")?;
    let valid = Corpus::load("valid.src", "valid.trg")?;
    let tokenizer = Tokenizer::load("vocab.spm")?;
    if a[1] == "calls" {
        let began = std::time::Instant::now();
        let mut sum = 0;
        for _ in 0..1_000_000 { sum += tokenizer.vocabulary()?; }
        println!("{} {sum}", began.elapsed().as_nanos() as f64 / 1e6);
        return Ok(());
    }
    let config = ModelConfig::preset("tiny", tokenizer.vocabulary()?)?;
    let model = Model::new_on(&ContextOptions::new().threads(a[3].parse().unwrap()), &config, 1)?;
    let options = TrainerOptions::new().after_updates(updates).log_freq(Period::Updates(20)).log_first(5);
    let options = options.early_stopping(10).label_smoothing(0.1).clip_norm(1.0).learning_rate(2e-3).warmup(1000)
        .batch_tokens(a[4].parse().unwrap());
    let mut trainer = Trainer::builder(model, &tokenizer, &corpus).valid(&valid).options(options).run_directory(&a[1]).build()?;
    let mut events = 0;
    trainer.run(|_| { events += 1; ControlFlow::Continue(()) })?;
    Ok(())
}
"""

GO = """
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"strconv"
	"time"

	"github.com/trafo-engine/trafo/bindings/go/trafo"
)

func must[T any](value T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return value
}

func main() {
	// A context that can end: the goroutine that watches it is part of the cost.
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	corpus := must(trafo.LoadCorpus(ctx, "train.src", "train.trg"))
	valid := must(trafo.LoadCorpus(ctx, "valid.src", "valid.trg"))
	tokenizer := must(trafo.LoadTokenizer("vocab.spm"))
	if os.Args[1] == "calls" {
		began, sum := time.Now(), 0
		for range 1_000_000 {
			sum += must(tokenizer.Vocabulary())
		}
		fmt.Println(float64(time.Since(began).Nanoseconds())/1e6, sum)
		return
	}
	config := must(trafo.Preset("tiny"))
	config.Vocabulary = must(tokenizer.Vocabulary())
	device := must(trafo.NewContext(trafo.WithThreads(must(strconv.Atoi(os.Args[3])))))
	model := must(device.NewModel(config, 1))
	options := trafo.DefaultTrainerOptions()
	options.AfterUpdates = int64(must(strconv.Atoi(os.Args[2])))
	options.LogFreq, options.LogFirst, options.RunDirectory = trafo.Every(20, trafo.Updates), 5, os.Args[1]
	options.EarlyStopping, options.LabelSmoothing, options.ClipNorm, options.LearningRate, options.Warmup = 10, 0.1, 1, 2e-3, 1000
	options.BatchTokens = int64(must(strconv.Atoi(os.Args[4])))
	trainer := must(model.NewTrainer(ctx, tokenizer, corpus, valid, &options))
	events := 0
	must(trainer.Run(ctx, 0, func(trafo.Event) error { events++; return nil }))
}
"""


def write_corpus(folder, pairs):
    draw = random.Random(1)
    letters = "abcdefghiklmnoprstuvwz"
    words = ["".join(draw.choices(letters, k=draw.randint(2, 9))) for _ in range(3000)]
    for name, count in (("train", pairs), ("valid", 1)):
        lines = [draw.choices(words, k=draw.randint(6, 24)) for _ in range(count)]
        (folder / f"{name}.src").write_text("".join(" ".join(line) + "\n" for line in lines))
        (folder / f"{name}.trg").write_text("".join(" ".join(reversed(line)) + "\n" for line in lines))


def build_programs(folder, environment):
    if (folder / "rust/overhead").exists() and (folder / "go/overhead").exists():
        return folder / "rust/overhead", folder / "go/overhead"
    rust = folder / "rust"
    (rust / "src").mkdir(parents=True, exist_ok=True)
    (rust / "src/main.rs").write_text(RUST)
    (rust / "Cargo.toml").write_text(
        '[package]\nname = "overhead"\nversion = "0.1.0"\nedition = "2024"\n[dependencies]\n'
        f'trafo-engine = {{ path = "{REPOSITORY}/bindings/rust/trafo" }}\n')
    subprocess.run(["cargo", "build", "--release", "--quiet"], cwd=rust, env=environment, check=True)
    target = pathlib.Path(environment.get("CARGO_TARGET_DIR", rust / "target"))
    shutil.copy(target / "release/overhead", rust / "overhead")
    go = folder / "go"
    go.mkdir(exist_ok=True)
    (go / "main.go").write_text(GO)
    module = "github.com/trafo-engine/trafo/bindings/go/trafo"
    (go / "go.mod").write_text(f"module overhead\n\ngo 1.26\n\nrequire {module} v0.0.0\n\n"
                               f"replace {module} => {REPOSITORY}/bindings/go/trafo\n")
    subprocess.run(["go", "build", "-o", "overhead", "."], cwd=go, env=environment, check=True)
    return rust / "overhead", go / "overhead"


def run(command, folder, environment):
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    subprocess.run(command, cwd=folder, env=environment, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    wall, after = time.monotonic() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    return (after.ru_utime + after.ru_stime) - (before.ru_utime + before.ru_stime), wall


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--updates", type=int, default=40)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--batch-tokens", type=int, default=4096)
    parser.add_argument("--pairs", type=int, default=20000)
    parser.add_argument("--build", type=pathlib.Path, default=REPOSITORY / "build/release")
    parser.add_argument("--programs", type=pathlib.Path)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    build = arguments.build.resolve()
    environment = dict(os.environ, TRAFO_LIB_DIR=str(build), LC_ALL="C.UTF-8", LD_LIBRARY_PATH=str(build))
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        write_corpus(folder, arguments.pairs)
        line = str(build / "translate-train")
        subprocess.run([line, "vocab", "--train-sets", "train.src", "train.trg", "--dim-vocabs", "2000", "--output", "vocab.spm"],
                       cwd=folder, env=environment, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        rust, go = build_programs((arguments.programs or folder).resolve(), environment)
        threads = str(arguments.threads)

        def command(program, directory, updates):
            if program == "translate-train":
                return [line, "train", "--train-sets", "train.src", "train.trg", "--valid-sets", "valid.src", "valid.trg",
                        "--vocabs", "vocab.spm", "--task", "tiny", "--learn-rate", "2e-3", "--lr-warmup", "1000",
                        "--early-stopping", "10", "--label-smoothing", "0.1", "--clip-norm", "1", "--after", f"{updates}u",
                        "--mini-batch-words", str(arguments.batch_tokens), "--device", "cpu", "--precision", "fp32", "--cpu-threads", threads,
                        "--model", directory]
            return [str(rust if program == "rust" else go), directory, str(updates), threads, str(arguments.batch_tokens)]

        calls = {}
        for program, path in (("rust", rust), ("go", go)):
            said = [subprocess.run([path, "calls", "0"], cwd=folder, env=environment, check=True, capture_output=True, text=True).stdout
                    for _ in range(3)]
            calls[program] = statistics.median(float(line.split()[0]) for line in said)
        programs = ["translate-train", "rust", "go"]
        models, costs = {}, {program: [] for program in programs}
        for turn in range(arguments.rounds):
            for program in programs[turn % 3:] + programs[:turn % 3]:
                measured = []
                for updates in (FEW, arguments.updates):
                    directory = f"run-{turn}-{program}-{updates}"
                    measured.append(run(command(program, directory, updates), folder, environment))
                model = folder / directory / "ckpt" / str(arguments.updates) / "model.safetensors"
                models.setdefault(program, hashlib.sha256(model.read_bytes()).hexdigest())
                count = arguments.updates - FEW
                costs[program].append([(many - few) / count * 1e3 for few, many in zip(*measured)])
        if len(set(models.values())) != 1:
            sys.exit(f"binding_overhead: not the same work, the models differ: {models}")
        processor = {program: statistics.median(cost[0] for cost in costs[program]) for program in programs}
        wall = {program: statistics.median(cost[1] for cost in costs[program]) for program in programs}
        base = processor["translate-train"]
        if arguments.json:
            print(json.dumps({"processor_ms": processor, "wall_ms": wall, "call_ns": calls, "all": costs}))
            return
        print(f"ms an update, {arguments.updates - FEW} updates, {arguments.rounds} rounds, "
              f"{arguments.batch_tokens} tokens a batch, "
              f"{threads} thread(s); the same model byte for byte")
        for program in programs:
            spread = sorted(cost[0] for cost in costs[program])
            print(f"{program:16} processor {processor[program]:8.2f}  ({spread[0]:.2f} to {spread[-1]:.2f})  wall {wall[program]:8.2f}"
                  f"  ratio {processor[program] / base:.4f}")
        for program, nanoseconds in calls.items():
            print(f"{program:16} a call into the library takes {nanoseconds:.0f} ns, {nanoseconds / base / 1e4:.6f} % of an update")


if __name__ == "__main__":
    main()
