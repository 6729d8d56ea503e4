#!/usr/bin/env python3
"""Exports of translate-train, loaded by the programs they are made for; imports, made by one of them.

    python3 tests/parity/export_parity.py [--translate-train build/release/translate-train] [--data FOLDER]

Trains small models (post-norm, pre-norm, and decoder-only in the forms of GPT-2, Llama and Qwen3), exports them and compares with transformers and CTranslate2: token
log-probabilities to 1e-4, greedy translations (transformers: all the same; CTranslate2: at least 99 %). Then imports models that
transformers wrote and models that were exported. --data: a folder with train.SRC.gz, train.TRG.gz and test_2016_flickr.SRC.gz
of de and en; without it, a corpus of a made-up language. --imports N: instead, N configurations that import_cases.py draws.

Needs nothing: packages go into a separate environment (--environment, kept between runs). Exit codes: 0 all equal, 1 not,
77 the packages cannot be had here.
"""
import argparse
import contextlib
import gzip
import json
import os
import random
import subprocess
import sys
import tempfile
import time

PACKAGES = ["torch==2.15.0", "transformers==5.23.0", "ctranslate2==4.8.5", "sentencepiece==0.2.3", "safetensors==0.8.0",
            "numpy==2.4.6", "gguf==0.19.0", "xllamacpp==2026.10.11549", "protobuf==7.36.2", "accelerate==1.15.0"]
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "tests/tools"))
import own_environment
LOG_PROBABILITY_TOLERANCE = 1e-4  # a token
CTRANSLATE2_SAME = 0.99
BEAM_SAME = 0.95
LONGEST = 40  # subwords of a translation


def argument_parser(description):
    parser = argparse.ArgumentParser(description=description.split("\n")[0])
    parser.add_argument("--translate-train", default=os.path.join(ROOT, "build/release/translate-train"))
    parser.add_argument("--environment", default=os.path.join(ROOT, "build/parity-environment"))
    parser.add_argument("--data", help="a folder of corpora instead of the made-up one")
    parser.add_argument("--work", help="where the models go; default: a temporary folder")
    parser.add_argument("--updates", type=int, default=300)
    parser.add_argument("--sentences", type=int, default=100, help="of the test set")
    return parser


def enter(arguments, packages):
    own_environment.enter(arguments.environment, packages, HF_HUB_OFFLINE="1", TRANSFORMERS_VERBOSITY="error",
                          TOKENIZERS_PARALLELISM="false", CUDA_VISIBLE_DEVICES="")


@contextlib.contextmanager
def workplace(arguments):
    """In the environment: a program in a folder with a training set; the pairs of the set, test sentences and their references."""
    import warnings

    import torch
    import transformers
    warnings.filterwarnings("ignore", message="Recommended: pip install sacremoses")  # not used without being asked
    transformers.utils.logging.disable_progress_bar()
    torch.set_num_threads(1)  # threads that wait for each other are slow on busy machines
    with contextlib.ExitStack() as stack:
        folder = arguments.work or stack.enter_context(tempfile.TemporaryDirectory())
        os.makedirs(folder, exist_ok=True)
        train, test, reference = corpora(arguments)
        write_lines(os.path.join(folder, "train.src"), [source for source, _ in train])
        write_lines(os.path.join(folder, "train.trg"), [target for _, target in train])
        yield Program(arguments.translate_train, folder, 2000 if arguments.data else 100), train, test, reference


# ---- corpora ----

def made_up_corpus(lines, seed):
    """Sentences of 3 to 8 words, translated word by word."""
    shape = random.Random(5)
    word = lambda: "".join(shape.choice("bdfgklmnprst") + shape.choice("aeiouäöü") for _ in range(shape.randint(1, 3)))
    lexicon = {word(): word() for _ in range(40)}
    words = sorted(lexicon)
    choice = random.Random(seed)
    pairs = []
    for _ in range(lines):
        sentence = [choice.choice(words) for _ in range(choice.randint(3, 8))]
        pairs.append((" ".join(sentence) + " .", " ".join(lexicon[w] for w in sentence) + " ."))
    return pairs


def corpora(arguments):
    if not arguments.data:
        train, test = made_up_corpus(4000, 1), made_up_corpus(arguments.sentences, 2)
        return train, [source for source, _ in test], [target for _, target in test]
    read = lambda name: read_lines(os.path.join(arguments.data, name))
    train = list(zip(read("train.de.gz"), read("train.en.gz")))
    test = read("test_2016_flickr.de.gz")[:arguments.sentences]
    return train, test, read("test_2016_flickr.en.gz")[:arguments.sentences]


def read_lines(path):
    with (gzip.open if path.endswith(".gz") else open)(path, "rt", encoding="utf-8") as file:
        return file.read().split("\n")[:-1]


def write_lines(path, lines):
    with open(path, "w", encoding="utf-8") as file:
        file.writelines(line + "\n" for line in lines)


# ---- translate-train ----

class Program:
    def __init__(self, path, folder, subwords):
        self.path, self.folder, self.subwords = os.path.abspath(path), folder, str(subwords)

    def run(self, *arguments, lines=None):
        text = None if lines is None else "".join(line + "\n" for line in lines)
        done = subprocess.run([self.path, *arguments], cwd=self.folder, input=text, encoding="utf-8", capture_output=True)
        if done.returncode != 0:
            sys.exit(f"translate-train {' '.join(arguments)}: exit code {done.returncode}\n{done.stderr}")
        return done.stdout.splitlines()

    def train(self, name, updates, *flags, heads=4):
        began = time.time()
        self.run("train", "-t", "train.src", "train.trg", "--model", name, "--after", f"{updates}u", "--dec-depth", "2",
                 "--dim-emb", "64", "--transformer-dim-ffn", "128", "--transformer-heads", str(heads), "--dim-vocabs", self.subwords,
                 "--mini-batch-words", "1500", "--lr-warmup", "50", "--transformer-dropout", "0", "--learn-rate", "0.003",
                 "--device", "cpu", "--cpu-threads", "1", "--quiet", *flags)
        print(f"trained {name} in {time.time() - began:.0f} s", flush=True)
        return name

    def greedy(self, model, lines):
        return self.translated(model, lines, "--beam-size", "1", "--normalize", "0")

    def translated(self, model, lines, *flags):
        return self.run("translate", "-m", model, *flags, "--max-length", str(LONGEST), "--device", "cpu", "--quiet", lines=lines)

    def scores(self, model, source, target):
        write_lines(os.path.join(self.folder, "score.src"), source)
        write_lines(os.path.join(self.folder, "score.trg"), target)
        lines = self.run("score", "-m", model, "-t", "score.src", "score.trg", "--device", "cpu", "--quiet")
        return [float(line) for line in lines]

    def bleu(self, texts, reference):
        write_lines(os.path.join(self.folder, "eval.hyp"), [" ".join(text.split()) for text in texts])
        write_lines(os.path.join(self.folder, "eval.ref"), reference)
        return json.loads("".join(self.run("eval", "--hyp", "eval.hyp", "--ref", "eval.ref", "--json")))["bleu"]["score"]


# ---- the other programs ----

def marian_log_probabilities(model, source_ids, target_ids):
    """Each pair alone, without padding."""
    import torch
    results = []
    start = model.config.decoder_start_token_id
    for source, target in zip(source_ids, target_ids):
        with torch.no_grad():
            logits = model(input_ids=torch.tensor([source]), decoder_input_ids=torch.tensor([[start] + target[:-1]])).logits[0]
        steps = torch.log_softmax(logits.double(), -1)
        results.append(sum(steps[i, token].item() for i, token in enumerate(target)))
    return results


def lm_log_probabilities(model, source_ids, target_ids):
    import torch
    results = []
    for source, target in zip(source_ids, target_ids):
        with torch.no_grad():
            logits = model(input_ids=torch.tensor([source + target])).logits[0]
        steps = torch.log_softmax(logits.double(), -1)
        results.append(sum(steps[len(source) - 1 + i, token].item() for i, token in enumerate(target)))
    return results


class Checks:
    failed = 0

    def say(self, good, text):
        self.failed += not good
        print(("ok      " if good else "FAILED  ") + text, flush=True)

    def log_probabilities(self, name, ours, theirs, lengths, tolerance=LOG_PROBABILITY_TOLERANCE):
        gap = max(abs(a - b) / n for a, b, n in zip(ours, theirs, lengths))
        self.say(len(ours) == len(theirs) and gap <= tolerance,
                 f"{name}: log-probability of a token differs by at most {gap:.1e} in {len(ours)} sentences")

    def translations(self, name, ours, theirs, share=1.0):
        # A translation cut at the longest length may end with a space, which MarianTokenizer strips.
        ours, theirs = [line.strip() for line in ours], [line.strip() for line in theirs]
        same = sum(a == b for a, b in zip(ours, theirs))
        self.say(len(ours) == len(theirs) and same >= share * len(ours), f"{name}: {same} of {len(ours)} translations are the same")
        if same < len(ours):
            a, b = next((a, b) for a, b in zip(ours, theirs) if a != b)
            print(f"          ours   {a}\n          theirs {b}")


def batches(items, size=25):
    return [items[i:i + size] for i in range(0, len(items), size)]


def encode_all(spm, lines):
    return [spm.encode(line) + [spm.eos_id()] for line in lines]


def beam_updates(arguments):
    """Longer than the others: the less sure a model is, the more often a search that ends earlier finds something else."""
    return arguments.updates * 4 // 3


def check_marian(checks, program, run, form, test, reference):
    """form: hf-marian or hf-pegasus."""
    import sentencepiece
    import torch
    from transformers import AutoModelForSeq2SeqLM, AutoTokenizer
    folder = os.path.join(program.folder, run + "-" + form)
    program.run("export", "-m", run, "--to", form, "-o", folder, "--quiet")
    model, tokenizer = AutoModelForSeq2SeqLM.from_pretrained(folder).eval(), AutoTokenizer.from_pretrained(folder)
    what = "transformers " + type(model).__name__
    source = tokenizer(test).input_ids
    target = tokenizer(text_target=reference).input_ids
    spm = sentencepiece.SentencePieceProcessor(model_file=os.path.join(folder, "source.spm"))
    checks.say(source + target == encode_all(spm, test + reference), f"{what}: AutoTokenizer gives our ids")
    checks.log_probabilities(what, program.scores(run, test, reference),
                             marian_log_probabilities(model, source, target), [len(t) for t in target])

    def generated(**options):
        texts = []
        for lines in batches(test):
            with torch.no_grad():
                output = model.generate(**tokenizer(lines, return_tensors="pt", padding=True), max_new_tokens=LONGEST,
                                        max_length=None, **options)
            texts += tokenizer.batch_decode(output, skip_special_tokens=True)
        return texts

    checks.translations(what, program.greedy(run, test), generated(num_beams=1, do_sample=False))
    # transformers ends a search when five translations are finished. Ours continues while one that is not may become the best.
    ours, theirs = program.translated(run, test, "--beam-size", "5", "--normalize", "1"), generated()
    checks.translations(what + ", as generation_config.json says", ours, theirs, BEAM_SAME)
    other = [i for i, (a, b) in enumerate(zip(ours, theirs)) if a.strip() != b.strip()]

    def per_token(texts):
        ids = tokenizer(text_target=[texts[i] for i in other]).input_ids
        return [p / len(t) for p, t in zip(marian_log_probabilities(model, [source[i] for i in other], ids), ids)]

    worse = sum(a < b for a, b in zip(per_token(ours), per_token(theirs))) if other else 0
    checks.say(worse == 0, f"{what}: where the translations differ, ours is the more probable one")
    check_round_trip(checks, program, run, folder, test)


def check_ctranslate2(checks, program, run, test):
    import ctranslate2
    import sentencepiece
    folder = os.path.join(program.folder, run + "-ctranslate2")
    program.run("export", "-m", run, "--to", "ctranslate2", "-o", folder, "--quiet")
    spm = sentencepiece.SentencePieceProcessor(model_file=os.path.join(folder, "vocab.spm"))
    subwords = [spm.encode(line, out_type=str) for line in test]
    never = [["<s>"], ["<pad>"]]
    if os.path.exists(os.path.join(folder, "vocabulary.json")):
        generator = ctranslate2.Generator(folder, device="cpu", compute_type="float32", intra_threads=1)
        results = generator.generate_batch([tokens + ["</s>"] for tokens in subwords], beam_size=1, max_length=LONGEST,
                                           sampling_topk=1, include_prompt_in_result=False, disable_unk=True,
                                           suppress_sequences=never)
        texts = [spm.decode([spm.piece_to_id(t) for t in result.sequences[0]]) for result in results]
    else:
        translator = ctranslate2.Translator(folder, device="cpu", compute_type="float32", intra_threads=1)
        results = translator.translate_batch(subwords, beam_size=1, max_decoding_length=LONGEST, disable_unk=True,
                                             suppress_sequences=never)
        texts = [spm.decode([spm.piece_to_id(t) for t in result.hypotheses[0]]) for result in results]
    checks.translations(f"CTranslate2 ({run})", program.greedy(run, test), texts, CTRANSLATE2_SAME)


def check_lm(checks, program, run, form, test, reference):
    """form: hf-gpt2 or hf-llama."""
    import sentencepiece
    import torch
    from transformers import AutoTokenizer, GPT2LMHeadModel, LlamaForCausalLM, Qwen3ForCausalLM
    kind = GPT2LMHeadModel if form == "hf-gpt2" else Qwen3ForCausalLM if run == "qwen3" else LlamaForCausalLM
    what = f"transformers {kind.__name__} ({run})"
    folder = os.path.join(program.folder, run + "-" + form)
    program.run("export", "-m", run, "--to", form, "-o", folder, "--quiet")
    spm = sentencepiece.SentencePieceProcessor(model_file=os.path.join(folder, "tokenizer.model"))
    model, tokenizer = kind.from_pretrained(folder).eval(), AutoTokenizer.from_pretrained(folder)
    source, target = encode_all(spm, test), encode_all(spm, reference)
    lines = test + ["  two  spaces ", "ﬁne ½ Ⅷ ＡＢＣ", "tab\there", "日本語", "ä" + "a\u0308", ""]
    theirs = tokenizer(lines, add_special_tokens=False).input_ids
    checks.say(theirs == [spm.encode(line) for line in lines], f"{what}: tokenizer.json gives our ids")
    checks.log_probabilities(what, program.scores(run, test, reference),
                             lm_log_probabilities(model, source, target), [len(t) for t in target])
    texts = []
    for lines in batches(test):  # as people write it: </s> behind a source and the padding come from the tokenizer's files
        inputs = tokenizer(lines, return_tensors="pt", padding=True)
        with torch.no_grad():
            output = model.generate(**inputs, max_new_tokens=LONGEST)
        texts += tokenizer.batch_decode(output[:, inputs.input_ids.shape[1]:], skip_special_tokens=True)
    checks.translations(what, program.greedy(run, test), texts)
    check_round_trip(checks, program, run, folder, test)


def check_round_trip(checks, program, run, folder, test):
    again = folder + "-imported"
    program.run("import", "--from", folder, "-o", again, "--quiet")
    checks.translations(f"import of {os.path.basename(folder)}", program.greedy(run, test), program.greedy(again, test))


# ---- models that transformers made ----

def train_spm(folder, name, lines, size, eos_id=0, unk_id=1, pad_id=-1):
    import sentencepiece
    path = os.path.join(folder, name)
    sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter(lines), model_prefix=path, vocab_size=size, minloglevel=2,
                                             hard_vocab_limit=False, eos_id=eos_id, unk_id=unk_id, bos_id=-1, pad_id=pad_id)
    os.rename(path + ".model", path)
    return sentencepiece.SentencePieceProcessor(model_file=path)


def check_foreign_marian(checks, program, train, test, reference):
    """As Marian's own models: two SentencePiece models, ids of a joint vocabulary, a decoder that starts from zeros."""
    import torch
    from transformers import MarianConfig, MarianMTModel
    torch.manual_seed(3)
    folder = os.path.join(program.folder, "foreign-marian")
    os.makedirs(folder)
    names = ["source.spm", "target.spm"]
    sides = [train_spm(folder, name, [pair[side] for pair in train[:2000]], 300) for side, name in enumerate(names)]
    subwords = ["</s>", "<unk>"] + sorted({s.id_to_piece(i) for s in sides for i in range(2, len(s))}, reverse=True) + ["<pad>"]
    pad, ids = len(subwords) - 1, {subword: i for i, subword in enumerate(subwords)}
    with open(os.path.join(folder, "vocab.json"), "w", encoding="utf-8") as file:
        json.dump(ids, file)
    config = MarianConfig(vocab_size=len(subwords), d_model=32, encoder_layers=2, decoder_layers=1, encoder_attention_heads=2,
                          decoder_attention_heads=2, encoder_ffn_dim=48, decoder_ffn_dim=48, max_position_embeddings=128,
                          activation_function="swish", scale_embedding=True, pad_token_id=pad, decoder_start_token_id=pad,
                          eos_token_id=0, forced_eos_token_id=0, init_std=0.2)
    model = MarianMTModel(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 1:
                parameter.add_(0.1 * torch.randn_like(parameter))
        model.final_logits_bias.normal_()
        model.model.shared.weight[pad] = 0
    for dtype in [torch.float32, torch.float16, torch.bfloat16]:
        name = "foreign-marian-" + str(dtype).split(".")[1]
        model.to(dtype).save_pretrained(folder)
        model = MarianMTModel.from_pretrained(folder, dtype=torch.float32).eval()
        program.run("import", "--from", folder, "-o", name, "--quiet")
        source, target = ([[ids.get(subword, 1) for subword in spm.encode(line, out_type=str)] + [0] for line in lines]
                          for spm, lines in zip(sides, (test, reference)))
        checks.log_probabilities("import of " + name, program.scores(name, test, reference),
                                 marian_log_probabilities(model, source, target), [len(t) for t in target])
    program.run("export", "-m", name, "--to", "hf-marian", "-o", "marian-again", "--quiet")
    exported = os.path.join(program.folder, "marian-again")
    checks.say(MarianMTModel.from_pretrained(exported, dtype="auto").dtype == torch.bfloat16, "exported again: bfloat16, as it came")
    again = MarianMTModel.from_pretrained(exported, dtype=torch.float32)
    same = all(torch.equal(a, b) for a, b in zip(again.state_dict().values(), model.state_dict().values()))
    checks.say(same and again.config.pad_token_id == pad, "exported again: the weights that were imported")
    bytes_of = lambda place, file: open(os.path.join(place, file), "rb").read()
    checks.say(all(bytes_of(folder, file) == bytes_of(os.path.join(program.folder, "marian-again"), file) for file in [*names, "vocab.json"]),
               "exported again: the vocabulary that was imported")


def check_foreign_pegasus(checks, program, train, test, reference):
    """As Google's models: ids that are higher by 103 than the ids of spiece.model, a decoder that starts from <pad>."""
    import sentencepiece
    import torch
    from transformers import AutoTokenizer, PegasusConfig, PegasusForConditionalGeneration

    import import_cases
    torch.manual_seed(6)
    folder = os.path.join(program.folder, "foreign-pegasus")
    os.makedirs(folder)
    spm = train_spm(folder, "spiece.model", [side for pair in train[:2000] for side in pair], 400, eos_id=1, unk_id=2, pad_id=0)
    config = PegasusConfig(vocab_size=len(spm) + 103, d_model=32, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4,
                           decoder_attention_heads=4, encoder_ffn_dim=48, decoder_ffn_dim=48, max_position_embeddings=128,
                           activation_function="relu", scale_embedding=True, init_std=0.2)
    model = PegasusForConditionalGeneration(config).half().eval()
    model.save_pretrained(folder)
    model, tokenizer = model.float(), AutoTokenizer.from_pretrained(folder)
    import_cases.exact_positions(model)
    source, target = tokenizer(test).input_ids, tokenizer(reference).input_ids
    lines = test + ["naïve 東京 🙂", "a  b", "ﬁne ½ ＡＢＣ"]
    for name in ["spiece.model", "tokenizer.json"]:  # as Google wrote them, as transformers saves them
        if name == "tokenizer.json":
            os.remove(os.path.join(folder, "spiece.model"))
            tokenizer.save_pretrained(folder)
        program.run("import", "--from", folder, "-o", "pegasus-" + name, "--quiet")
        ours = sentencepiece.SentencePieceProcessor(model_file=os.path.join(program.folder, "pegasus-" + name, "vocab.spm"))
        checks.say(encode_all(ours, lines) == tokenizer(lines).input_ids, f"import of Pegasus, {name}: ids")
        checks.log_probabilities(f"import of Pegasus, {name}, float16", program.scores("pegasus-" + name, test, reference),
                                 marian_log_probabilities(model, source, target), [len(t) for t in target])


def check_foreign_gpt2(checks, program, run, test, reference):
    import shutil

    import sentencepiece
    import torch
    from transformers import GPT2Config, GPT2LMHeadModel
    torch.manual_seed(4)
    folder = os.path.join(program.folder, "foreign-gpt2")
    vocabulary = os.path.join(program.folder, run, "vocab.spm")
    spm = sentencepiece.SentencePieceProcessor(model_file=vocabulary)
    config = GPT2Config(vocab_size=len(spm), n_positions=256, n_embd=32, n_layer=2, n_head=2, initializer_range=0.2,
                        bos_token_id=1, eos_token_id=2)
    model = GPT2LMHeadModel(config).half().eval()
    model.save_pretrained(folder)
    model = model.float()
    shutil.copy(vocabulary, os.path.join(folder, "tokenizer.model"))
    program.run("import", "--from", folder, "-o", "foreign-gpt2-imported", "--quiet")
    target = encode_all(spm, reference)
    checks.log_probabilities("import of GPT-2, float16", program.scores("foreign-gpt2-imported", test, reference),
                             lm_log_probabilities(model, encode_all(spm, test), target), [len(t) for t in target])


def check_foreign_llama(checks, program, run, test, reference):
    """Shared keys, as old files store them and as new ones do."""
    import shutil

    import sentencepiece
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM
    torch.manual_seed(5)
    vocabulary = os.path.join(program.folder, run, "vocab.spm")
    spm = sentencepiece.SentencePieceProcessor(model_file=vocabulary)
    for tied in (False, True):
        name = "foreign-llama-" + ("tied" if tied else "untied")
        folder = os.path.join(program.folder, name)
        config = LlamaConfig(vocab_size=len(spm), hidden_size=48, intermediate_size=80, num_hidden_layers=2,
                             num_attention_heads=6, num_key_value_heads=2, max_position_embeddings=256, rms_norm_eps=1e-5,
                             initializer_range=0.2, bos_token_id=1, eos_token_id=2, tie_word_embeddings=tied)
        model = LlamaForCausalLM(config).bfloat16().eval()
        model.save_pretrained(folder)
        model = LlamaForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
        if tied:  # theta where files before transformers 5 have it
            path = os.path.join(folder, "config.json")
            with open(path, encoding="utf-8") as file:
                old = json.load(file)
            old["rope_theta"] = (old.pop("rope_parameters", None) or old)["rope_theta"]
            with open(path, "w", encoding="utf-8") as file:
                json.dump(old, file)
        shutil.copy(vocabulary, os.path.join(folder, "tokenizer.model"))
        program.run("import", "--from", folder, "-o", name + "-imported", "--quiet")
        target = encode_all(spm, reference)
        checks.log_probabilities(f"import of {name}, bfloat16", program.scores(name + "-imported", test, reference),
                                 lm_log_probabilities(model, encode_all(spm, test), target), [len(t) for t in target])


def main():
    parser = argument_parser(__doc__)
    parser.add_argument("--imports", type=int, help="only N imports")
    arguments = parser.parse_args()
    enter(arguments, PACKAGES)
    import import_cases
    began = time.time()
    with workplace(arguments) as (program, train, test, reference):
        checks = Checks()
        if arguments.imports:
            import_cases.check_imports(checks, program, train, test, reference, arguments.imports)
            finish(checks, began)
        post = program.train("post", beam_updates(arguments), "--enc-depth", "2", "--transformer-norm", "post")
        check_marian(checks, program, post, "hf-marian", test, reference)
        check_ctranslate2(checks, program, post, test)
        pre = program.train("pre", beam_updates(arguments), "--enc-depth", "2", "--transformer-norm", "pre")
        check_marian(checks, program, pre, "hf-pegasus", test, reference)
        check_ctranslate2(checks, program, pre, test)
        lm = program.train("lm", arguments.updates, "--arch", "decoder-lm")
        check_lm(checks, program, lm, "hf-gpt2", test, reference)
        check_ctranslate2(checks, program, lm, test)
        check_foreign_marian(checks, program, train, test[:40], reference[:40])
        check_foreign_pegasus(checks, program, train, test[:40], reference[:40])
        check_foreign_gpt2(checks, program, lm, test[:40], reference[:40])
        llama = program.train("llama", arguments.updates, "--task", "llama", "--transformer-kv-heads", "2")
        check_lm(checks, program, llama, "hf-llama", test, reference)
        check_ctranslate2(checks, program, llama, test)
        untied = program.train("untied", arguments.updates // 3, "--task", "llama", "--tied-embeddings-all", "off")
        check_lm(checks, program, untied, "hf-llama", test, reference)
        check_ctranslate2(checks, program, untied, test)
        check_foreign_llama(checks, program, llama, test[:40], reference[:40])
        qwen3 = program.train("qwen3", arguments.updates, "--task", "qwen3", "--transformer-kv-heads", "2")
        check_lm(checks, program, qwen3, "hf-llama", test, reference)
        import_cases.check_imports(checks, program, train, test, reference, 10)
        finish(checks, began)


def finish(checks, began):
    print(f"{'all equal' if checks.failed == 0 else f'{checks.failed} checks failed'}, {time.time() - began:.0f} s")
    sys.exit(checks.failed != 0)


if __name__ == "__main__":
    main()
