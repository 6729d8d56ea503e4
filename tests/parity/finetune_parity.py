#!/usr/bin/env python3
"""Fine-tuning of directories of transformers from the command line, Rust and Go, back to transformers, on one CPU.

    python3 tests/parity/finetune_parity.py [--translate-train build/release/translate-train] [--updates N]

transformers makes a random model in the shape of Qwen3 (byte-level BPE) and one in the shape of NLLB-200 (two languages). Neither knows
the task, a lexicon of twelve words. translate-train, the Rust program and the Go program of tests/parity/finetune import the directory, train the
model, export it and answer. At least 80 % of the answers to sentences that were not trained on must be right, and transformers must
give the same answers, word for word, with the exported directory alone.

Builds the two programs, with the libtrafo.so beside translate-train, where there are cargo and go. The environment and the exit codes
are as in export_parity.py.
"""
import itertools
import os
import random
import shutil
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import export_parity as parity

LEXICON = {"house": "maison", "tree": "arbre", "dog": "chien", "cat": "chat", "water": "eau", "bread": "pain", "road": "chemin",
           "book": "livre", "sea": "mer", "sun": "soleil", "king": "roi", "hand": "main"}
LANGUAGES = ["eng_Latn", "fra_Latn"]
HELD_OUT, RIGHT = 40, 0.8
PACKAGES_OF_GO = {"trafo/bindings/go/trafo": "bindings/go/trafo",
                  **{f"trafo-go-lib/{name}": f"bindings/go/lib/{name}" for name in ("linux-amd64", "linux-arm64", "windows-amd64")}}


def sentences():
    """Pairs of two and three words, in an order that is drawn once."""
    words = [words for length in (2, 3) for words in itertools.product(LEXICON, repeat=length)]
    random.Random(4).shuffle(words)
    return [(" ".join(each), " ".join(LEXICON[word] for word in each)) for each in words]


# ---- the models of transformers ----

def make_qwen3(folder, texts):
    import tokenizers
    import torch
    import transformers
    from tokenizers import decoders, pre_tokenizers
    bpe = tokenizers.Tokenizer(tokenizers.models.BPE())
    pattern = tokenizers.Regex(r"(?i:'s|'t)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s+")
    bpe.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(pattern, "isolated"),
                                                 pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    bpe.decoder = decoders.ByteLevel()
    bpe.train_from_iterator(texts, tokenizers.trainers.BpeTrainer(vocab_size=300, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
                                                                  show_progress=False))
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=bpe, eos_token="<|im_end|>", pad_token="<|endoftext|>")
    tokenizer.save_pretrained(folder)
    torch.manual_seed(1)
    config = transformers.Qwen3Config(vocab_size=len(tokenizer), hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4,
                                      num_key_value_heads=2, head_dim=24, max_position_embeddings=256, tie_word_embeddings=True,
                                      eos_token_id=tokenizer.eos_token_id, pad_token_id=tokenizer.pad_token_id, bos_token_id=None)
    transformers.Qwen3ForCausalLM(config).save_pretrained(folder)


def make_nllb(folder, texts):
    import torch
    import transformers

    import multilingual_parity
    tokenizer = multilingual_parity.save_tokenizer("nllb", "bpe", texts, folder)
    torch.manual_seed(1)
    config = transformers.M2M100Config(vocab_size=len(tokenizer), d_model=64, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4,
                                       decoder_attention_heads=4, encoder_ffn_dim=128, decoder_ffn_dim=128, max_position_embeddings=256)
    transformers.M2M100ForConditionalGeneration(config).save_pretrained(folder)


def theirs(family, folder, sources):
    """Greedy answers of transformers with the directory."""
    import torch
    import transformers
    auto = transformers.AutoModelForCausalLM if family == "qwen3" else transformers.AutoModelForSeq2SeqLM
    model, info = auto.from_pretrained(folder, dtype=torch.float32, output_loading_info=True)
    if info["missing_keys"] or info["unexpected_keys"]:
        sys.exit(f"{folder}: {info}")
    languages = {} if family == "qwen3" else dict(zip(("src_lang", "tgt_lang"), LANGUAGES))
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder, **languages)
    forced = {} if family == "qwen3" else {"forced_bos_token_id": tokenizer.convert_tokens_to_ids(LANGUAGES[1])}
    answers = []
    for source in sources:
        inputs = tokenizer(source, return_tensors="pt", return_token_type_ids=False)
        with torch.no_grad():
            output = model.eval().generate(**inputs, do_sample=False, num_beams=1, max_new_tokens=24, **forced)[0]
        answers.append(tokenizer.decode(output[inputs.input_ids.shape[1] if family == "qwen3" else 0:], skip_special_tokens=True))
    return answers


# ---- the three interfaces: each trains, exports and answers ----

def by_program(program, directory, exported, updates, sources, languages):
    flags = ["--source-language", languages[0], "--target-language", languages[1]] if languages else []
    program.run("import", "--from", directory, "-o", "base", "--quiet")
    program.run("train", "--tsv", "train.tsv", "--pretrained-model", "base", "--model", "tuned", "--after", f"{updates}u", "--mini-batch-words", "600",
                "--learn-rate", "0.003", "--lr-warmup", "20", "--device", "cpu", "--cpu-threads", "1", "--quiet", *flags)
    program.run("export", "-m", "tuned", "--to", "hf-m2m100" if languages else "hf-llama", "-o", exported, "--quiet")
    answers = program.run("translate", "-m", "tuned", "--beam-size", "1", *flags, "--device", "cpu", "--quiet", lines=sources)
    shutil.rmtree(os.path.join(program.folder, "base"))
    shutil.rmtree(os.path.join(program.folder, "tuned"))
    return answers


def run(command, cwd, lines=(), **variables):
    done = subprocess.run(command, cwd=cwd, input="".join(line + "\n" for line in lines), encoding="utf-8", capture_output=True,
                          env={**os.environ, **variables})
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}: exit code {done.returncode}\n{done.stderr[-3000:]}")
    return done.stdout.splitlines()


def built(language, folder, library):
    """The program of tests/parity/finetune in that language, or None if there is no compiler."""
    if shutil.which({"rust": "cargo", "go": "go"}[language]) is None:
        return None
    own, source = os.path.join(folder, language), os.path.join(parity.ROOT, "tests/parity/finetune")
    os.makedirs(os.path.join(own, "src"))
    if language == "rust":
        shutil.copy(os.path.join(source, "main.rs"), os.path.join(own, "src"))
        with open(os.path.join(own, "Cargo.toml"), "w", encoding="utf-8") as file:
            file.write('[package]\nname = "finetune"\nversion = "0.1.0"\nedition = "2024"\n[workspace]\n[dependencies]\n'
                       f'trafo = {{ package = "trafo-engine", path = "{parity.ROOT}/bindings/rust/trafo" }}\n')
        run(["cargo", "build", "--quiet"], own, TRAFO_LIB_DIR=library, TRAFO_LINK="shared", CARGO_TARGET_DIR=os.path.join(own, "target"))
        return os.path.join(own, "target/debug/finetune")
    shutil.copy(os.path.join(source, "main.go"), own)
    run(["go", "mod", "init", "example.com/finetune"], own)
    for module, path in PACKAGES_OF_GO.items():
        run(["go", "mod", "edit", "-replace", f"github.com/trafo-engine/{module}={parity.ROOT}/{path}"], own)
    variables = dict(CGO_LDFLAGS=f"-L{library}", GOFLAGS="-mod=mod")
    run(["go", "mod", "tidy"], own, **variables)
    run(["go", "build", "-tags", "trafo_system", "-o", "finetune", "."], own, **variables)
    return os.path.join(own, "finetune")


def main():
    parser = parity.argument_parser(__doc__)
    parser.set_defaults(updates=500)
    arguments = parser.parse_args()
    parity.enter(arguments, parity.PACKAGES)
    import torch
    import transformers
    transformers.utils.logging.disable_progress_bar()
    torch.set_num_threads(1)
    checks = parity.Checks()
    pairs = sentences()
    with tempfile.TemporaryDirectory() as folder:
        program = parity.Program(arguments.translate_train, arguments.work or folder, 0)
        library = os.path.dirname(program.path)
        interfaces = {"translate-train": None, **{language: built(language, program.folder, library) for language in ("rust", "go")}}
        for family, make in (("qwen3", make_qwen3), ("nllb", make_nllb)):
            directory = os.path.join(program.folder, family)
            make(directory, [text for pair in pairs for text in pair])
            languages = LANGUAGES if family == "nllb" else []
            # A language model gets the sign between question and answer in the text.
            tasks = pairs if languages else [(source + " =", " " + target) for source, target in pairs]
            parity.write_lines(os.path.join(program.folder, "train.tsv"), ["\t".join(pair) for pair in tasks[HELD_OUT:]])
            sources, targets = zip(*tasks[:HELD_OUT])
            share = lambda answers: sum(a == b for a, b in zip(answers, targets)) / HELD_OUT
            before = share(theirs(family, directory, sources))
            for interface, own_program in interfaces.items():
                if interface != "translate-train" and own_program is None:
                    print(f"SKIPPED {family}, {interface}: there is no compiler")
                    continue
                exported = os.path.join(program.folder, f"{family}-{interface}")
                if interface == "translate-train":
                    ours = by_program(program, directory, exported, arguments.updates, sources, languages)
                else:
                    ours = run([own_program, directory, "train.tsv", str(arguments.updates), exported, *languages], program.folder, sources,
                               LD_LIBRARY_PATH=library)
                answers = theirs(family, exported, sources)
                checks.say(before < 0.1 and share(ours) >= RIGHT,
                           f"{family}, {interface}: {100 * before:.0f} % of {HELD_OUT} answers right before, {100 * share(ours):.0f} % after")
                checks.say(answers == ours, f"{family}, {interface}: transformers gives {sum(a == b for a, b in zip(answers, ours))} "
                                            f"of {HELD_OUT} answers word for word")
    print("all equal" if checks.failed == 0 else f"{checks.failed} checks failed")
    return 1 if checks.failed else 0


if __name__ == "__main__":
    sys.exit(main())
