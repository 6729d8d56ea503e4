"""MarianMT with separate vocabularies, a part of marian_parity.py: vocab.json and an embedding for sources, target_vocab.json and another one
for targets, in five configurations of a random MarianMTModel. Compared: ids of both sides, texts of ids, log-probabilities, greedy texts,
the gradient of every parameter (one step of SGD with the learning rate 1), an exported directory, a resumed run, an adapter in PEFT."""
import ctypes
import json
import random

GRADIENT_TOLERANCE, LONGEST = 1e-4, 12
# Sizes of the SentencePiece models, and settings of MarianConfig. "pad": the id of <pad> in both files; else it is the last one of each.
CASES = {
    "more sources": {"sizes": (400, 250), "kinds": ("unigram", "unigram")},
    "more targets": {"sizes": (220, 420), "kinds": ("bpe", "unigram"), "pad": 2},
    "untied": {"sizes": (300, 200), "kinds": ("unigram", "bpe"), "tie_word_embeddings": False},
    "not scaled": {"sizes": (260, 240), "kinds": ("bpe", "bpe"), "scale_embedding": False, "encoder_layers": 1, "decoder_layers": 3},
    "spare rows": {"sizes": (240, 260), "kinds": ("unigram", "unigram"), "pad": 2, "spare": (5, 3), "activation_function": "swish"},
}


def train_side(folder, side, kind, size, lines):
    """Writes SIDE.spm, which is learned from the lines, and returns its subwords."""
    import sentencepiece
    (folder / "text").write_text("\n".join(lines), encoding="utf-8")
    sentencepiece.SentencePieceTrainer.train(
        input=str(folder / "text"), model_prefix=str(folder / side), vocab_size=size, model_type=kind, character_coverage=0.98,
        hard_vocab_limit=False, minloglevel=2)
    (folder / "text").unlink()
    (folder / f"{side}.vocab").unlink()
    (folder / f"{side}.model").rename(folder / f"{side}.spm")
    model = sentencepiece.SentencePieceProcessor(model_file=str(folder / f"{side}.spm"))
    return [model.id_to_piece(i) for i in range(len(model)) if not model.is_control(i) and not model.is_unknown(i)]


def write_vocabularies(folder, name, texts, case):
    folder.mkdir()
    for side, kind, size, lines in zip(("source", "target"), case["kinds"], case["sizes"], texts, strict=True):
        pieces = train_side(folder, side, kind, size, lines)
        random.Random(name + side).shuffle(pieces)
        names = ["</s>", "<unk>", *pieces[:-3], ">>deu<<"]  # some subwords are missing
        names.insert(case.get("pad", len(names)), "<pad>")
        file = folder / ("vocab.json" if side == "source" else "target_vocab.json")
        file.write_text(json.dumps({piece: i for i, piece in enumerate(names)}, ensure_ascii=False), encoding="utf-8")
    (folder / "tokenizer_config.json").write_text(json.dumps({"source_lang": "a", "target_lang": "b", "separate_vocabs": True}))


def write_model(folder, case):
    import torch
    from transformers import MarianConfig, MarianMTModel
    sizes = [len(json.loads((folder / file).read_text(encoding="utf-8"))) for file in ("vocab.json", "target_vocab.json")]
    start = case.get("pad", sizes[1] - 1)
    sizes = [size + more for size, more in zip(sizes, case.get("spare", (0, 0)), strict=True)]
    settings = {key: value for key, value in case.items() if key not in ("sizes", "kinds", "pad", "spare")}
    torch.manual_seed(sizes[0])
    model = MarianMTModel(MarianConfig(**{
        "vocab_size": sizes[0], "decoder_vocab_size": sizes[1], "share_encoder_decoder_embeddings": False, "d_model": 16, "encoder_layers": 2,
        "decoder_layers": 2, "encoder_attention_heads": 2, "decoder_attention_heads": 2, "encoder_ffn_dim": 24, "decoder_ffn_dim": 20,
        "max_position_embeddings": 64, "scale_embedding": True, "pad_token_id": start, "eos_token_id": 0, "decoder_start_token_id": start,
        "bad_words_ids": None, "forced_eos_token_id": None, "dropout": 0.0, "init_std": 0.3, **settings})).eval()
    with torch.no_grad():
        model.final_logits_bias.copy_(torch.randn_like(model.final_logits_bias))
        model.final_logits_bias[:, model.final_logits_bias.shape[1] - case.get("spare", (0, 0))[1]:] = -100  # an import leaves them out
    model.save_pretrained(folder)
    return model


def encode_target(tokenizer, text):
    function = tokenizer.c.trafo_tokenizer_encode_target
    function.restype = ctypes.c_void_p
    ids, count = ctypes.POINTER(ctypes.c_int32)(), ctypes.c_size_t()
    tokenizer.check(function(tokenizer.handle, text, ctypes.c_size_t(len(text)), ctypes.byref(ids), ctypes.byref(count)))
    found = ids[:count.value]
    tokenizer.c.trafo_ids_free(ids)
    return found


def tie(vocabulary):
    """As marian_parity.tie, with the names of one side."""
    names = {i: subword for subword, i in vocabulary.items()}
    return lambda a, b: sorted(a) == sorted(b) and "".join(names[i] for i in a) == "".join(names[i] for i in b)


def check_ids(checks, name, ours, theirs, lines):
    """Returns the lines whose ids are the same on both sides."""
    eos = [theirs.eos_token_id]
    theirs.split_special_tokens = True
    other = checks.lines(f"{name}, sources", lines, [ours.encode(line.encode()) + eos for line in lines],
                         [theirs(line).input_ids for line in lines], tie(theirs.encoder))
    targets = [theirs(text_target=line).input_ids for line in lines]
    other |= checks.lines(f"{name}, targets", lines, [encode_target(ours, line.encode()) + eos for line in lines], targets,
                          tie(theirs.target_encoder))
    known = [ids for ids in targets if theirs.unk_token_id not in ids and theirs.pad_token_id not in ids]
    checks.lines(f"{name}, text back", [str(ids) for ids in known], [ours.decode(ids).decode() for ids in known],
                 [theirs.decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False) for ids in known])
    return [line for line in lines if line not in other]


def check_greedy(checks, name, program, start, model, theirs, lines, folder):
    import torch
    (folder / "lines").write_text("\n".join(lines) + "\n", encoding="utf-8")
    ours = program("translate", "-m", start, "-i", folder / "lines", "--beam-size", "1", "--normalize", "0", "--max-length", LONGEST,
                   "--quiet", "--device", "cpu").split("\n")[:-1]
    expected = []
    never = [[theirs.target_encoder["<unk>"]], [model.config.decoder_start_token_id]]
    never += [[i] for i in range(len(theirs.target_encoder), model.config.decoder_vocab_size)]
    for line in lines:
        with torch.no_grad():
            ids = model.generate(**theirs(line, return_tensors="pt"), num_beams=1, do_sample=False, max_new_tokens=LONGEST, max_length=None,
                                 bad_words_ids=never)
        # Without the first token: the class knows only <pad> of sources as one that is skipped.
        expected.append(theirs.decode(ids[0, 1:], skip_special_tokens=True, clean_up_tokenization_spaces=False))
    checks.lines(f"{name}, greedy", lines, [line.strip() for line in ours], [line.strip() for line in expected])


def load(folder):
    import torch
    from transformers import MarianMTModel
    model, info = MarianMTModel.from_pretrained(folder, output_loading_info=True, dtype=torch.float32)
    return model.eval(), not info["missing_keys"] and not info["unexpected_keys"] and not info["mismatched_keys"]


def pairs_loss(model, theirs, pairs):
    """The mean loss of a target token."""
    import torch
    total, count = 0, 0
    for source, target in pairs:
        labels = theirs(text_target=target, return_tensors="pt").input_ids
        logits = model(**theirs(source, return_tensors="pt"), labels=labels).logits
        total = total + torch.nn.functional.cross_entropy(logits[0], labels[0], reduction="sum")
        count += labels.numel()
    return total / count


def check_gradients(checks, name, program, start, model, theirs, pairs, folder):
    data = folder / "pairs.tsv"
    data.write_text("".join(f"{a}\t{b}\n" for a, b in pairs), encoding="utf-8")
    run = folder / "trained"
    program("train", "--tsv", data, "--valid-sets", data, "--pretrained-model", start, "--model", run, "--after", "1u", "--mini-batch-words", "4000",
            "--lr-warmup", "1", "--clip-norm", "0", "--exponential-smoothing", "0", "--label-smoothing", "0", "--optimizer", "sgd", "--momentum",
            "0", "--learn-rate", "1", "--device", "cpu", "--cpu-threads", "1", "--max-length", "60",
            "--valid-metrics", "ce-mean-words", "--quiet")
    program("export", "-m", run, "--to", "hf-marian", "-o", folder / "stepped", "--quiet")
    program("export", "-m", start, "--to", "hf-marian", "-o", folder / "before", "--quiet")
    (before, _), (stepped, complete) = load(folder / "before"), load(folder / "stepped")
    pairs_loss(before, theirs, pairs).backward()
    worst, worst_name = 0.0, ""
    for key, parameter in before.named_parameters():
        if parameter.grad is None or "embed_positions" in key:
            continue
        ours = parameter.detach() - stepped.get_parameter(key).detach()
        if key.endswith("decoder.embed_tokens.weight") or key == "lm_head.weight" or key.endswith("encoder.embed_tokens.weight"):
            # transformers leaves the row of <pad> of an embedding out.
            rows = [i for i in range(ours.shape[0]) if i != before.config.pad_token_id]
            ours, wanted = ours[rows], parameter.grad[rows]
        else:
            wanted = parameter.grad
        gap = float((ours - wanted).abs().max() / max(1e-2, float(wanted.abs().max())))
        if gap >= worst:
            worst, worst_name = gap, key
    checks.say(complete and 0 < worst <= GRADIENT_TOLERANCE, f"{name}: gradients differ by at most {worst:.1e} of the largest element ({worst_name})")


def check_runs(checks, name, program, start, model, theirs, pairs, folder, scores):
    """Resumed runs, an adapter, int8 codes and a plan."""
    import torch
    data = folder / "pairs.tsv"
    common = ["--tsv", data, "--valid-sets", data, "--pretrained-model", start, "--mini-batch-words", "300", "--lr-warmup", "1", "--learn-rate", "0.003",
              "--device", "cpu", "--cpu-threads", "1", "--max-length", "60", "--valid-metrics", "ce-mean-words", "--quiet"]
    weights = []
    for run, ends in (("whole", ["6u"]), ("halves", ["3u", "6u"])):
        for end in ends:
            program("train", *common, "--model", folder / run, "--after", end)
        program("export", "-m", folder / run, "--to", "hf-marian", "-o", folder / f"{run}-exported", "--quiet")
        weights.append((folder / f"{run}-exported" / "model.safetensors").read_bytes())
    checks.say(weights[0] == weights[1], f"{name}: a resumed run has the same weights")
    before, after = scores(start), scores(folder / "whole")
    checks.say(sum(after) > sum(before) + 1, f"{name}: training raises the log-probability from {sum(before):.1f} to {sum(after):.1f}")

    from peft import PeftModel
    program("train", *common, "--model", folder / "adapted", "--after", "4u", "--lora-rank", "2")
    base, _ = load(folder / "before")
    adapted = PeftModel.from_pretrained(base, folder / "adapted" / "adapter").eval()
    with torch.no_grad():
        expected = -pairs_loss(adapted, theirs, pairs).item()
    tokens = sum(len(theirs(text_target=target).input_ids) for _, target in pairs)
    found = sum(scores(start, "--adapter", folder / "adapted"))
    checks.say(abs(found / tokens - expected) <= 1e-4 and abs(found - sum(before)) > 1e-2,
               f"{name}: an adapter in PEFT, {found / tokens:.5f} and {expected:.5f} a token")

    program("quantize", "-m", start, "-o", folder / "int8", "--quiet")
    found = sum(scores(folder / "int8")) / tokens
    checks.say(abs(found - sum(before) / tokens) < 0.2, f"{name}: int8 codes, {found:.3f} for {sum(before) / tokens:.3f} a token")


def check_separate(checks, name, case, folder, library, program, lines, texts, tools):
    """tools: Trafo and check_scores of marian_parity.py."""
    import torch
    from transformers import MarianTokenizer
    write_vocabularies(folder, name, texts, case)
    model, theirs = write_model(folder, case), MarianTokenizer.from_pretrained(folder)
    work = folder.parent / f"{folder.name}-work"
    work.mkdir()
    start = work / "start"
    program("import", "--from", folder, "-o", start, "--quiet")
    ours = tools.Trafo(library, start / "vocab.marian")
    same = [line for line in check_ids(checks, name, ours, theirs, lines) if 0 < len(line) <= 60]
    tools.check_scores(checks, name, program, start, model, theirs, same)
    sources = [line for line in same if not set("\t\n\r\v\f\x85\u2028\u2029") & set(line) and line.strip()]
    check_greedy(checks, name, program, start, model, theirs, sources[:20], work)

    program("export", "-m", start, "--to", "hf-marian", "-o", work / "again", "--quiet")
    kept = ["vocab.json", "target_vocab.json", "source.spm", "target.spm", "tokenizer_config.json"]
    checks.say(all((folder / file).read_bytes() == (work / "again" / file).read_bytes() for file in kept), f"{name}: exported as it came")
    again, complete = load(work / "again")
    used = [len(theirs.encoder), len(theirs.target_encoder)]
    checks.say(complete and [again.config.vocab_size, again.config.decoder_vocab_size] == used, f"{name}: sizes {used} in the class")
    gap = 0
    with torch.no_grad():
        for source, target in zip(sources[:20], sources[20:40], strict=True):
            batch = {**theirs(source, return_tensors="pt"), "labels": theirs(text_target=target, return_tensors="pt").input_ids}
            gap = max(gap, float((again(**batch).logits - model(**batch).logits[..., :used[1]]).abs().max()))
    checks.say(gap <= 1e-4, f"{name}: logits of the exported model differ by at most {gap:.1e}")

    pairs = list(zip(sources[:12], sources[20:32], strict=True))
    check_gradients(checks, name, program, start, model, theirs, pairs, work)

    def scores(of, *more):
        return [float(line) for line in program("score", "-m", of, "--tsv", work / "pairs.tsv", "--quiet", "--device", "cpu", *more).splitlines()]

    check_runs(checks, name, program, start, model, theirs, pairs, work, scores)
