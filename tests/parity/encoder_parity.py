#!/usr/bin/env python3
"""Encoders of transformers and back: BERT, RoBERTa, XLM-R and ModernBERT, with the heads for masked tokens, texts and tokens, and without one.

    python3 tests/parity/encoder_parity.py [--translate-train build/release/translate-train] [--family NAME ...] [--configurations N]

For each family, configurations drawn at random, each with every head: a random tiny model of the real class with a tokenizer of the family.
  * Logits of given ids (with token types where the model has some) and of texts and pairs of texts, hidden states and pooled vectors are
    those of transformers to 1e-5; a batch has texts of different lengths, which transformers pads and masks.
  * The exported directory loads in the family's class with every tensor and the same logits, and the ids of its tokenizer are the same.
  * One step of SGD with the learning rate 1 is the gradient of every parameter: of the classification loss, the loss of token labels and
    the masked-language-model loss, within 1e-4 of its largest element in PyTorch. The masked tokens are drawn here once more, from
    the description in engine/data/token_masking.h.
  * LoRA: training with an adapter changes the adapted matrices and the classifier alone. The adapter gives the same logits in PEFT on
    the original directory.
Config mutations: each key of config.json removed, set to null and to other values; the logits are the same, or the import names the file.
--short: one configuration of each family, no mutations.

The environment and the exit codes are as in export_parity.py.
"""
import ctypes
import json
import os
import random
import shutil
import subprocess
import sys
from ctypes import byref, c_char_p, c_int32, c_size_t, c_void_p

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import export_parity as parity

TOLERANCE, GRADIENT_TOLERANCE = 1e-5, 1e-4
HEADS = ("Model", "ForMaskedLM", "ForSequenceClassification", "ForTokenClassification")
FAMILIES = {"bert": "Bert", "roberta": "Roberta", "xlm-roberta": "XLMRoberta", "modernbert": "ModernBert"}
POSITIONS = 80
WORDS = ("the house and a tree stand by the river where nine old boats wait for rain that falls on small green hills of some far "
         "land; Größe und Straße, naïve café").split()
LABELS = ["down", "level", "up"]


class View(ctypes.Structure):
    _fields_ = [("data", c_void_p), ("count", c_size_t)]


class Model:
    """An imported model through the C ABI."""
    def __init__(self, library, context, folder):
        self.library, self.context = library, context
        model, tokenizer, note = c_void_p(), c_void_p(), c_char_p()
        self.call("model_import", c_void_p(context.handle), folder.encode(), c_size_t(len(folder.encode())), None, byref(model), byref(tokenizer),
                  byref(note))
        self.handle, self.tokenizer, self.note = model, tokenizer, (note.value or b"").decode()

    def call(self, name, *arguments):
        function = getattr(self.library.c, "trafo_" + name)
        function.restype = c_void_p
        error = function(*arguments)
        if error:
            message = self.library.c.trafo_error_message(error).decode()
            self.library.c.trafo_error_free(error)
            raise ValueError(message)

    def free(self):
        self.library.c.trafo_model_free(self.handle)
        if self.tokenizer:
            self.library.c.trafo_tokenizer_free(self.tokenizer)

    def tensors(self, name, *arguments, results):
        from trafo_ctypes import Tensor
        outs = [c_void_p() for _ in range(results)]
        self.call(name, self.handle, *arguments, *[byref(out) for out in outs])
        return [Tensor(self.context, out.value).read() for out in outs]

    def ids(self, rows):
        self.kept = [(c_int32 * len(row))(*row) for row in rows]
        return (View * len(rows))(*[View(ctypes.addressof(row), len(row)) for row in self.kept])

    def texts(self, lines):
        self.kept_texts = [line.encode() for line in lines]
        return (View * len(lines))(*[View(ctypes.cast(c_char_p(line), c_void_p), len(line)) for line in self.kept_texts])

    def logits_of_ids(self, rows, types=None):
        views = self.ids(rows)
        kept = self.kept
        type_views = None if types is None else self.ids(types)
        self.kept = kept + self.kept
        return self.tensors("model_classify_ids", views, type_views, c_size_t(len(rows)), c_int32(0), results=2)

    def logits(self, lines, second=None):
        views = self.texts(lines)
        kept = self.kept_texts
        second_views = None if second is None else self.texts(second)
        self.kept_texts += kept
        return self.tensors("model_classify", self.tokenizer, views, second_views, c_size_t(len(lines)), c_int32(0), results=2)

    def states_of_ids(self, rows):
        return self.tensors("model_hidden_states_ids", self.ids(rows), c_size_t(len(rows)), c_int32(0), results=2)

    def embed(self, lines, pooling, normalize):
        return self.tensors("model_embed", self.tokenizer, self.texts(lines), c_size_t(len(lines)), c_int32(pooling), c_int32(normalize),
                            c_int32(0), results=1)[0]


# ---- models of transformers ----

def modernbert_tokenizer(lines, size):
    """Byte-level BPE with the special tokens after the others, and tokens of several spaces, as ModernBERT has them."""
    import tokenizers as tk
    import transformers
    inner = tk.Tokenizer(tk.models.BPE())
    inner.normalizer = tk.normalizers.NFC()
    inner.pre_tokenizer = tk.pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = tk.decoders.ByteLevel()
    inner.train_from_iterator(lines, tk.trainers.BpeTrainer(vocab_size=size, special_tokens=["<|padding|>"], show_progress=False,
                                                            initial_alphabet=tk.pre_tokenizers.ByteLevel.alphabet()))
    inner.add_tokens([tk.AddedToken(" " * count, normalized=True) for count in (2, 3, 4)])
    special = ["[UNK]", "[CLS]", "[SEP]", "[PAD]"]
    inner.add_special_tokens(special + [tk.AddedToken("[MASK]", lstrip=True)])
    ends = [(name, inner.token_to_id(name)) for name in ("[CLS]", "[SEP]")]
    inner.post_processor = tk.processors.TemplateProcessing("[CLS] $A [SEP]", "[CLS] $A [SEP] $B:0 [SEP]:0", ends)
    return transformers.PreTrainedTokenizerFast(tokenizer_object=inner, pad_token="[PAD]", unk_token="[UNK]", cls_token="[CLS]", sep_token="[SEP]",
                                                mask_token="[MASK]", model_input_names=["input_ids", "attention_mask"])


def trained_tokenizer(family, folder, size):
    """A tokenizer of the family's kind, trained on WORDS."""
    import tokenizers as tk
    import transformers
    lines = [" ".join(random.Random(i).choices(WORDS, k=8)) for i in range(300)]
    if family == "bert":
        inner = tk.Tokenizer(tk.models.WordPiece(unk_token="[UNK]"))
        inner.normalizer = tk.normalizers.BertNormalizer(lowercase=True)
        inner.pre_tokenizer = tk.pre_tokenizers.BertPreTokenizer()
        inner.decoder = tk.decoders.WordPiece(prefix="##")
        special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
        inner.train_from_iterator(lines, tk.trainers.WordPieceTrainer(vocab_size=size, special_tokens=special, show_progress=False))
        pair = [(name, inner.token_to_id(name)) for name in ("[CLS]", "[SEP]")]
        inner.post_processor = tk.processors.TemplateProcessing("[CLS] $A [SEP]", "[CLS] $A [SEP] $B:1 [SEP]:1", pair)
        return transformers.PreTrainedTokenizerFast(tokenizer_object=inner, pad_token="[PAD]", unk_token="[UNK]", cls_token="[CLS]",
                                                    sep_token="[SEP]", mask_token="[MASK]",
                                                    model_input_names=["input_ids", "token_type_ids", "attention_mask"])
    if family == "modernbert":
        return modernbert_tokenizer(lines, size)
    special = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    names = dict(bos_token="<s>", eos_token="</s>", cls_token="<s>", sep_token="</s>", pad_token="<pad>", unk_token="<unk>",
                 mask_token="<mask>")
    if family == "roberta":
        inner = tk.Tokenizer(tk.models.BPE())
        inner.pre_tokenizer = tk.pre_tokenizers.ByteLevel(add_prefix_space=False)
        inner.decoder = tk.decoders.ByteLevel()
        inner.train_from_iterator(lines, tk.trainers.BpeTrainer(vocab_size=size, special_tokens=special, show_progress=False,
                                                                initial_alphabet=tk.pre_tokenizers.ByteLevel.alphabet()))
        inner.post_processor = tk.processors.RobertaProcessing(("</s>", 2), ("<s>", 0), add_prefix_space=False)
        return transformers.PreTrainedTokenizerFast(tokenizer_object=inner, **names)
    import sentencepiece
    os.makedirs(folder, exist_ok=True)
    parity.write_lines(os.path.join(folder, "lines"), lines)
    sentencepiece.SentencePieceTrainer.train(input=os.path.join(folder, "lines"), model_prefix=os.path.join(folder, "sentencepiece.bpe"),
                                             vocab_size=min(size, 120) - 2, model_type="unigram", hard_vocab_limit=False, minloglevel=2)
    spm = sentencepiece.SentencePieceProcessor(model_file=os.path.join(folder, "sentencepiece.bpe.model"))
    pieces = [(name, 0.0) for name in ("<s>", "<pad>", "</s>", "<unk>")]
    pieces += [(spm.id_to_piece(i), spm.get_score(i)) for i in range(3, len(spm))] + [("<mask>", 0.0)]
    inner = tk.Tokenizer(tk.models.Unigram(pieces, unk_id=3))
    inner.normalizer = tk.normalizers.Replace(tk.Regex(" {2,}"), " ")
    inner.pre_tokenizer = tk.pre_tokenizers.Metaspace(replacement="▁", prepend_scheme="always")
    inner.decoder = tk.decoders.Metaspace(replacement="▁", prepend_scheme="always")
    inner.add_special_tokens([tk.AddedToken("<mask>", lstrip=True)])
    inner.post_processor = tk.processors.TemplateProcessing("<s> $A </s>", "<s> $A </s> </s> $B </s>", [("<s>", 0), ("</s>", 2)])
    return transformers.PreTrainedTokenizerFast(tokenizer_object=inner, **names)


class Case:
    """A configuration of a family: settings, a tokenizer, and models with each head."""
    def __init__(self, family, number, folder):
        import transformers
        self.family, self.number, self.folder = family, number, os.path.join(folder, f"{family}-{number}")
        draw = random.Random(f"{family}{number}")
        self.tokenizer = trained_tokenizer(family, self.folder + "-spm", draw.choice((150, 300, 400)))
        heads = draw.choice((2, 3, 4))
        self.settings = dict(
            vocab_size=len(self.tokenizer), hidden_size=heads * draw.choice((8, 16)), num_attention_heads=heads,
            num_hidden_layers=draw.choice((1, 2, 3)), intermediate_size=draw.choice((24, 40, 64)),
            hidden_act=draw.choice(("gelu", "gelu", "relu", "gelu_new", "silu")), layer_norm_eps=draw.choice((1e-12, 1e-5)),
            max_position_embeddings=POSITIONS + (0 if family == "bert" else 2), type_vocab_size=draw.choice((1, 2, 3)),
            initializer_range=draw.choice((0.1, 0.3)), hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
            pad_token_id=self.tokenizer.pad_token_id, tie_word_embeddings=draw.random() < 0.8)
        if family == "modernbert":
            self.settings = self.of_modernbert(draw)
        elif family != "bert":
            self.settings.update(bos_token_id=0, eos_token_id=2)
        self.spm_alone = family == "xlm-roberta" and number % 2 == 1
        self.draw, self.transformers = draw, transformers

    def of_modernbert(self, draw):
        tokenizer = self.tokenizer
        ends = dict(bos_token_id=tokenizer.cls_token_id, cls_token_id=tokenizer.cls_token_id, eos_token_id=tokenizer.sep_token_id,
                    sep_token_id=tokenizer.sep_token_id)
        shared = ("vocab_size", "hidden_size", "num_attention_heads", "intermediate_size", "initializer_range", "pad_token_id", "tie_word_embeddings")
        return ends | {key: self.settings[key] for key in shared} | dict(
            num_hidden_layers=draw.choice((2, 3, 4)), hidden_activation=draw.choice(("gelu", "gelu", "gelu_pytorch_tanh", "silu")),
            norm_eps=draw.choice((1e-5, 1e-3)), max_position_embeddings=2 * POSITIONS, local_attention=draw.choice((2, 5, 8, 20)),
            global_attn_every_n_layers=draw.choice((1, 2, 3)), global_rope_theta=draw.choice((160000.0, 500.0)),
            local_rope_theta=draw.choice((10000.0, 100.0)), attention_bias=draw.random() < 0.4, mlp_bias=draw.random() < 0.4,
            decoder_bias=draw.random() < 0.7, classifier_pooling=draw.choice(("cls", "mean")))

    def __str__(self):
        return f"{self.family} {self.number}"

    def save(self, head, dtype=None):
        import torch
        name = FAMILIES[self.family]
        settings = dict(self.settings)
        if head.endswith("Classification"):
            settings.update(id2label=dict(enumerate(LABELS)), label2id={label: i for i, label in enumerate(LABELS)})
        config = getattr(self.transformers, name + "Config")(**settings)
        torch.manual_seed(self.number)
        model = getattr(self.transformers, name + head)(config).eval()
        with torch.no_grad():  # biases and norms are zeros and ones, which would hide what is left out
            for parameter in model.parameters():
                if parameter.dim() == 1:
                    parameter.add_(torch.randn_like(parameter) * 0.1)
        folder = f"{self.folder}-{head}"
        model.save_pretrained(folder)
        if self.family == "modernbert" and self.number % 2 == 1:
            as_before(os.path.join(folder, "config.json"), self.settings)
        if self.spm_alone:
            shutil.copy(os.path.join(self.folder + "-spm", "sentencepiece.bpe.model"), folder)
        else:
            self.tokenizer.save_pretrained(folder)
        return folder, model


def as_before(path, settings):
    """The configuration of a ModernBERT with the keys of older files, which those on the hub are."""
    with open(path, encoding="utf-8") as file:
        config = json.load(file)
    for key in ("layer_types", "rope_parameters"):
        del config[key]
    config.update({key: settings[key] for key in ("global_attn_every_n_layers", "global_rope_theta", "local_rope_theta")},
                  position_embedding_type="absolute")
    with open(path, "w", encoding="utf-8") as file:
        json.dump(config, file)


def unread(case):
    """Without tied embeddings the class for masked tokens reads the bias of its decoder, and never these."""
    return () if case.settings["tie_word_embeddings"] else ("cls.predictions.bias", "lm_head.bias")


def padded(rows, value):
    import torch
    longest = max(map(len, rows))
    return torch.tensor([row + [value] * (longest - len(row)) for row in rows])


def theirs_of_ids(model, rows, types=None, hidden=False):
    """What transformers computes of padded rows, without the padding: a row for each token, or for each text."""
    import torch
    mask = padded([[1] * len(row) for row in rows], 0)
    more = {} if types is None else {"token_type_ids": padded(types, 0)}
    with torch.no_grad():
        out = model(input_ids=padded(rows, model.config.pad_token_id), attention_mask=mask, **more)
    values = out.last_hidden_state if hidden else out.logits
    if values.dim() == 2:
        return values
    return torch.cat([values[i, :len(row)] for i, row in enumerate(rows)])


def random_rows(case, seed):
    draw = random.Random(seed)
    vocabulary = len(case.tokenizer)
    rows = [[draw.randrange(5, vocabulary - 1) for _ in range(draw.randint(1, 30))] for _ in range(7)]
    kinds = case.settings.get("type_vocab_size")
    return rows, [[draw.randrange(kinds) for _ in row] for row in rows] if kinds else None


def random_lines(seed, count=9):
    draw = random.Random(seed)
    return [" ".join(draw.choices(WORDS, k=draw.randint(1, 9))) for _ in range(count)]


class Parity:
    def __init__(self, program, checks, library):
        from trafo_ctypes import Context
        self.program, self.checks, self.library = program, checks, library
        self.context = Context(library, "cpu", threads=1)

    def close(self, label, ours, theirs, tolerance=TOLERANCE):
        same = list(ours.shape) == list(theirs.shape)
        gap = float((ours - theirs).abs().max()) if same else float("inf")
        self.checks.say(gap <= tolerance * max(1.0, float(theirs.abs().max())), f"{label}: differs by at most {gap:.1e}")

    def check_head(self, case, head):
        folder, model = case.save(head)
        label = f"{case}, {head}"
        ours = Model(self.library, self.context, folder)
        self.check_outputs(label, case, head, model, ours)
        ours.free()
        run, name = self.program.run, os.path.basename(folder)
        exported = os.path.join(self.program.folder, name + "-exported")
        run("import", "--from", folder, "-o", name + "-imported", "--quiet")
        run("export", "-m", name + "-imported", "--to", "hf-bert", "-o", exported, "--quiet")
        again, info = type(model).from_pretrained(exported, output_loading_info=True)
        missing = [key for key in info["missing_keys"] if key not in unread(case)]
        self.checks.say(not missing and not info["unexpected_keys"] and again.config.architectures == [type(model).__name__]
                        and not info["mismatched_keys"], f"{label}: exported to {type(again).__name__}, every tensor{' but ' if missing else ''}{', '.join(missing)}")
        rows, types = random_rows(case, 2)
        self.close(label + ": exported", theirs_of_ids(again.eval(), rows, types, head == "Model"),
                   theirs_of_ids(model, rows, types, head == "Model"))
        if not case.spm_alone:
            tokenizer = case.transformers.AutoTokenizer.from_pretrained(exported)
            lines = random_lines(3)
            self.checks.say(tokenizer(lines)["input_ids"] == case.tokenizer(lines)["input_ids"], f"{label}: ids of the exported tokenizer")
        if head != "Model":
            self.check_training(label, case, head, model, folder)
        for kind in ("", "-imported", "-exported"):
            shutil.rmtree(os.path.join(self.program.folder, name + kind))

    def check_outputs(self, label, case, head, model, ours):
        import torch
        rows, types = random_rows(case, 1)
        lines, second = random_lines(1), random_lines(2)
        encoded = case.tokenizer(lines)["input_ids"]
        base = model.base_model
        states = theirs_of_ids(base, rows, hidden=True)
        self.close(label + ": hidden states", ours.states_of_ids(rows)[0], states)
        whole = theirs_of_ids(base, encoded, hidden=True)
        ends = [0]
        for row in encoded:
            ends.append(ends[-1] + len(row))
        texts = [whole[a:b] for a, b in zip(ends, ends[1:])]
        means, firsts = torch.stack([t.mean(0) for t in texts]), torch.stack([t[0] for t in texts])
        self.close(label + ": mean", ours.embed(lines, 0, 0), means)
        self.close(label + ": first, normalized", ours.embed(lines, 1, 1), torch.nn.functional.normalize(firsts))
        if head == "Model":
            return
        self.close(label + ": logits", ours.logits_of_ids(rows)[0], theirs_of_ids(model, rows))
        self.close(label + ": logits with types", ours.logits_of_ids(rows, types)[0], theirs_of_ids(model, rows, types))
        logits, bounds = ours.logits(lines)
        expected = theirs_of_ids(model, encoded)
        if head == "ForTokenClassification":
            first = lambda line: [i for i, (a, b) in enumerate(zip([None] + words_of(case, line), words_of(case, line) + [None]))
                                  if b is not None and a != b]
            expected = torch.cat([expected[ends[i] + torch.tensor(first(line))] for i, line in enumerate(lines)])
        self.close(label + ": logits of texts", logits, expected)
        if head == "ForSequenceClassification":
            pairs = case.tokenizer(lines, second)
            types = pairs.get("token_type_ids") if case.settings.get("type_vocab_size", 0) > 1 and case.family == "bert" else None
            self.close(label + ": logits of pairs", ours.logits(lines, second)[0], theirs_of_ids(model, pairs["input_ids"], types))

    # ---- one step of SGD ----

    def check_training(self, label, case, head, model, folder):
        import torch
        lines = random_lines(5, 12)
        draw = random.Random(case.number)
        path = os.path.join(self.program.folder, "data.tsv")
        encoded = case.tokenizer(lines)["input_ids"]
        if head == "ForMaskedLM":
            parity.write_lines(path, lines)
            rows, targets = masked_rows(case, encoded)
        elif head == "ForSequenceClassification":
            chosen = [draw.randrange(len(LABELS)) for _ in lines]
            parity.write_lines(path, [f"{line}\t{LABELS[label]}" for line, label in zip(lines, chosen)])
            rows, targets = encoded, torch.tensor(chosen)
        else:
            rows, targets, told = [], [], []
            for line, row in zip(lines, encoded):
                words = words_of(case, line)
                chosen = [draw.randrange(len(LABELS)) for _ in line.split()]
                told.append(" ".join(LABELS[c] for c in chosen))
                rows.append(row)
                targets.append([chosen[w] if w is not None and (i == 0 or words[i - 1] != w) else -100 for i, w in enumerate(words)])
            parity.write_lines(path, [f"{line}\t{labels}" for line, labels in zip(lines, told)])
            targets = padded(targets, -100)
        if head == "ForMaskedLM":
            targets = padded(targets, -100)
        mask = padded([[1] * len(row) for row in rows], 0)
        logits = model(input_ids=padded(rows, model.config.pad_token_id), attention_mask=mask).logits
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, -2), targets.flatten())
        loss.backward()
        name, run = os.path.basename(folder), self.program.run
        data = ["-t", "data.tsv", "--valid-sets", "data.tsv"] if head == "ForMaskedLM" else ["--tsv", "data.tsv", "--valid-sets", "data.tsv"]
        flags = [*data, "--pretrained-model", name + "-imported", "--objective", "masked-lm" if head == "ForMaskedLM" else "classification",
                 "--after", "1u", "--mini-batch-words", "4000", "--lr-warmup", "1", "--clip-norm", "0", "--exponential-smoothing", "0", "--device", "cpu",
                 "--cpu-threads", "1", "--quiet", "--max-length", str(POSITIONS)]
        run("train", "--model", name + "-trained", *flags, "--optimizer", "sgd", "--momentum", "0", "--learn-rate", "1")
        stepped = self.exported(model, name + "-trained")
        worst, worst_name = 0.0, ""
        for key, parameter in model.named_parameters():
            if key in unread(case):
                continue
            gradient = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
            ours = read_rows(case, key, parameter.detach() - stepped.get_parameter(key).detach())
            gradient = read_rows(case, key, gradient)
            gap = float((ours - gradient).abs().max() / max(1e-2, float(gradient.abs().max())))
            if gap > worst:
                worst, worst_name = gap, key
        self.checks.say(worst <= GRADIENT_TOLERANCE, f"{label}: gradients differ by at most {worst:.1e} of the largest element ({worst_name})")
        if head == "ForSequenceClassification":
            self.check_adapter(label, case, model, name, flags)
        for kind in ("-trained", "-lora"):
            shutil.rmtree(os.path.join(self.program.folder, name + kind), ignore_errors=True)

    def exported(self, model, name):
        folder = os.path.join(self.program.folder, name + "-hf")
        self.program.run("export", "-m", name, "--to", "hf-bert", "-o", folder, "--quiet")
        loaded = type(model).from_pretrained(folder)
        shutil.rmtree(folder)
        return loaded

    def check_adapter(self, label, case, model, name, flags):
        import torch
        from peft import PeftModel
        joined = {"qkv": "Wqkv", "gate_up": "Wi", "output": "Wo", "down": "Wo"} if case.family == "modernbert" else {}
        targets = case.draw.choice((["qkv"], ["output", "down"], ["gate_up"], ["qkv", "down"]) if joined else
                                   (["query", "value"], ["output", "down"], ["down"], ["key", "up"]))
        self.program.run("train", "--model", name + "-lora", *flags, "--lora-rank", "2", "--learn-rate", "0.05", "--lora-targets", *targets)
        trained = self.exported(model, name + "-lora")
        changed = {key.split(".")[-2] for key, parameter in model.named_parameters()
                   if parameter.shape == trained.get_parameter(key).shape
                   and not read_rows(case, key, parameter.detach()).equal(read_rows(case, key, trained.get_parameter(key).detach()))}
        classifier = {"classifier"} if case.family in ("bert", "modernbert") else {"out_proj", "dense"}
        matrices = {joined[target] for target in targets} if joined else {target for target in targets if target in ("query", "key", "value")}
        matrices |= {"dense"} if not joined and len(matrices) < len(targets) else set()
        self.checks.say(changed == classifier | matrices, f"{label}: LoRA of {', '.join(targets)} changes {', '.join(sorted(changed))}")
        folder = os.path.join(self.program.folder, name)
        adapted = PeftModel.from_pretrained(type(model).from_pretrained(folder), os.path.join(self.program.folder, name + "-lora", "adapter"))
        rows, types = random_rows(case, 4)
        theirs = theirs_of_ids(adapted.eval(), rows, types)
        self.close(f"{label}: adapter in PEFT", theirs_of_ids(trained.eval(), rows, types), theirs)
        change = float((theirs - theirs_of_ids(model, rows, types)).abs().max())
        self.checks.say(change > 1e-3, f"{label}: the adapter changes a logit by up to {change:.1g}")


def read_rows(case, key, values):
    """Without the rows of RoBERTa's positions that no text reads: numbers begin after the padding id. Exports have zeros there."""
    return values[2:] if case.family != "bert" and "position_embeddings" in key else values


def words_of(case, line):
    """The word of each token, or None of a special one. Words have white space between them."""
    if case.family not in ("roberta", "modernbert"):
        return case.tokenizer(line.split(), is_split_into_words=True).word_ids()
    # A token of a byte-level vocabulary that begins with a space begins a word, also a space alone.
    encoded = case.tokenizer(line, return_special_tokens_mask=True)
    words, last = [], -1
    for token, special in zip(case.tokenizer.convert_ids_to_tokens(encoded["input_ids"]), encoded["special_tokens_mask"]):
        last += not special and (last < 0 or token.startswith("\u0120"))
        words.append(None if special else last)
    return words


# ---- masked tokens, as engine/data/token_masking.h describes them ----

BITS = (1 << 64) - 1


def mix(x):
    x = ((x ^ (x >> 30)) * 0xbf58476d1ce4e5b9) & BITS
    x = ((x ^ (x >> 27)) * 0x94d049bb133111eb) & BITS
    return x ^ (x >> 31)


class Random:
    STEP = 0x9e3779b97f4a7c15

    def __init__(self, seed, epoch):
        self.key, self.counter = mix((mix((seed + self.STEP) & BITS) + (epoch + 1) * self.STEP) & BITS), 0

    def next(self):
        self.counter += 1
        return mix((self.key + self.counter * self.STEP) & BITS)

    def below(self, bound):
        rest = ((1 << 64) - bound) % bound
        while True:
            product = self.next() * bound
            if product & BITS >= rest:
                return product >> 64


def masked_rows(case, encoded, probability=0.15, seed=1):
    tokenizer, rows, targets = case.tokenizer, [], []
    kept = set(tokenizer.all_special_ids)
    for number, row in enumerate(encoded):
        text, labels = list(row[1:]), [-100] * len(row)
        places = [i for i, token in enumerate(text) if token not in kept]
        count = min(max(1, int(probability * len(places) + 0.5)), len(places))
        draw = Random(mix(seed + number), 0)
        for i in range(len(places), 1, -1):
            other = draw.below(i)
            places[i - 1], places[other] = places[other], places[i - 1]
        for place in places[:count]:
            labels[place + 1] = text[place]
            part = draw.below(10)
            if part < 8:
                text[place] = tokenizer.mask_token_id
            elif part < 9:
                text[place] = draw.below(len(tokenizer))
        rows.append(row[:1] + text)
        targets.append(labels)
    return rows, targets


# ---- config mutations ----

FURTHER = {"hidden_act": ["relu", "gelu_new", "silu", "tanh"], "position_embedding_type": ["relative_key", "absolute"],
           "architectures": [["BertForQuestionAnswering"], ["BertModel"], []], "model_type": ["roberta", "bert", "xlm-roberta", "gpt2"],
           "problem_type": ["regression", "single_label_classification", "multi_label_classification"], "is_decoder": [True],
           "add_cross_attention": [True], "num_labels": [2, 3], "id2label": [{"0": "A", "1": "B", "2": "C"}, {"0": "A", "1": "B"}],
           "pad_token_id": [0, 1, 3], "classifier_dropout": [0.0, 0.3], "torch_dtype": ["bfloat16"], "dtype": ["float16"],
           "chunk_size_feed_forward": [4], "tie_word_embeddings": [True, False], "is_causal": [True, False], "pruned_heads": [{}, {"0": [1]}],
           "layer_norm_eps": [1e-3], "type_vocab_size": [1, 3], "max_position_embeddings": [40], "embedding_size": [8],
           "gradient_checkpointing": [True], "use_cache": [False], "use_bidirectional_attention": [True], "sliding_window": [4]}
OF_MODERNBERT = {"hidden_activation": ["relu", "gelu_new", "silu", "tanh"], "classifier_pooling": ["mean", "cls", "max"],
                 "classifier_activation": ["relu", "silu"], "norm_bias": [True], "classifier_bias": [True], "mlp_bias": [True, False],
                 "attention_bias": [True, False], "decoder_bias": [True, False], "local_attention": [0, 1, 3, 128], "norm_eps": [1e-2],
                 "layer_types": [["full_attention"] * 3, ["sliding_attention"] * 3, ["sliding_attention", "full_attention", "full_attention"],
                                 ["full_attention", "sliding_attention", "full_attention"]],
                 "global_attn_every_n_layers": [1, 2, 5], "global_rope_theta": [700.0], "local_rope_theta": [70.0, None],
                 "rope_parameters": [{"full_attention": {"rope_type": "default", "rope_theta": 50.0}},
                                     {"full_attention": {"rope_type": "linear", "factor": 2.0, "rope_theta": 50.0}},
                                     {"sliding_attention": {"rope_type": "default", "rope_theta": 50.0}}],
                 "rope_scaling": [{"rope_type": "linear", "factor": 2.0}], "rope_theta": [50.0], "head_dim": [4], "partial_rotary_factor": [0.5],
                 "embedding_dropout": [0.1], "attention_dropout": [0.1], "mlp_dropout": [0.1], "sparse_prediction": [True],
                 "deterministic_flash_attn": [True], "reference_compile": [True], "hidden_act": ["relu"], "layer_norm_eps": [0.1],
                 "model_type": ["bert"], "architectures": [["ModernBertForQuestionAnswering"], ["ModernBertModel"], []]}


def mutated(config):
    further = FURTHER | OF_MODERNBERT if config["model_type"] == "modernbert" else FURTHER
    for key in sorted(set(config) | set(further)):
        values = list(further.get(key, []))
        if key in config:
            yield key, "removed", {k: v for k, v in config.items() if k != key}
            values.append(None)
            value = config[key]
            if isinstance(value, bool):
                values.append(not value)
            elif isinstance(value, (int, float)):
                values += [value * 2, value + 1]
        for value in values:
            if key not in config or config[key] != value:
                yield key, json.dumps(value), {**config, key: value}


def check_mutations(parts, case, head):
    import torch
    folder, model = case.save(head)
    rows, types = random_rows(case, 1)
    path = os.path.join(folder, "config.json")
    with open(path, encoding="utf-8") as file:
        original = json.load(file)
    equal = refused = neither = 0
    for key, value, config in mutated(original):
        with open(path, "w", encoding="utf-8") as file:
            json.dump(config, file)
        what = f"{case}, {head}: {key} {value}"
        try:
            theirs = case.transformers.AutoConfig.from_pretrained(folder)
            kind = getattr(case.transformers, (config.get("architectures") or [type(model).__name__])[0])
            loaded, info = kind.from_pretrained(folder, output_loading_info=True, config=theirs, dtype=torch.float32)
            expected = None if info["missing_keys"] or info["mismatched_keys"] else theirs_of_ids(loaded.eval(), rows, types, head == "Model")
        except Exception:  # transformers refuses in many ways
            expected = None
        try:
            ours = Model(parts.library, parts.context, folder)
            try:
                found = ours.states_of_ids(rows)[0] if head == "Model" else ours.logits_of_ids(rows, types)[0]
            finally:
                ours.free()
        except ValueError as error:
            refused += 1
            named = "config.json" in str(error) or "safetensors" in str(error) or "token type" in str(error) or "tokenizer" in str(error) \
                or "no encoder with a head" in str(error) or "has token" in str(error) or "tokens, the model" in str(error)
            if not named:
                parts.checks.say(False, f"{what}: refused without the file: {error}")
            continue
        if expected is None:
            neither += 1
            continue
        if head == "Model":
            expected = theirs_of_ids(loaded, rows, hidden=True)
        same = list(found.shape) == list(expected.shape) and float((found - expected).abs().max()) <= 1e-4
        equal += same
        if not same:
            parts.checks.say(False, f"{what}: loads and differs")
    parts.checks.say(True, f"{case}, {head}: {equal} mutations equal, {refused} refused, {neither} that transformers does not read")
    shutil.rmtree(folder)


def main():
    parser = parity.argument_parser(__doc__)
    parser.add_argument("--family", nargs="+", choices=FAMILIES, default=list(FAMILIES))
    parser.add_argument("--configurations", type=int, default=5)
    parser.add_argument("--short", action="store_true", help="one configuration of each family, no mutations")
    arguments = parser.parse_args()
    parity.enter(arguments, [*parity.PACKAGES, "peft==0.21.2"])
    import time

    from trafo_ctypes import Library
    began = time.time()
    with parity.workplace(arguments) as (program, _, _, _):
        checks = parity.Checks()
        library = Library(os.path.join(os.path.dirname(program.path), "libtrafo.so"))
        parts = Parity(program, checks, library)
        for family in arguments.family:
            for number in range(1 if arguments.short else arguments.configurations):
                case = Case(family, number, program.folder)
                for head in HEADS:
                    parts.check_head(case, head)
            for head in () if arguments.short else HEADS:
                check_mutations(parts, Case(family, 0, program.folder), head)
    parity.finish(checks, began)


if __name__ == "__main__":
    main()
