"""Directories of models that transformers made, with settings drawn at random: each is imported and does what transformers does,
or is refused by the name of the key. export_parity.py runs a few of them, or as many as --imports says.

A case is a family (MarianMT, GPT-2, Llama, Mistral, Qwen2, Pegasus, Qwen3, Hunyuan, Phi-3, SmolLM3, Granite, OLMo 2, Gemma 2, Gemma 3, Ministral 3), a
type of the weights, one file or several, a tokenizer as a SentencePiece model or as transformers saves it again, a vocabulary with or without rows that no token has, one or several ends,
and settings of the family. Weights are random and large enough that a wrong one shows.
"""
import contextlib
import json
import os
import random
import shutil
import subprocess

FAMILIES = ["marian", "gpt2", "llama", "mistral", "qwen2", "pegasus", "qwen3", "hunyuan", "phi3", "smollm3", "granite", "olmo2",
            "gemma3", "gemma2", "ministral3"]
CLASSES = {"marian": "MarianMTModel", "pegasus": "PegasusForConditionalGeneration", "gpt2": "GPT2LMHeadModel", "llama": "LlamaForCausalLM",
           "mistral": "MistralForCausalLM", "qwen2": "Qwen2ForCausalLM", "qwen3": "Qwen3ForCausalLM", "hunyuan": "HunYuanDenseV1ForCausalLM",
           "phi3": "Phi3ForCausalLM", "smollm3": "SmolLM3ForCausalLM", "granite": "GraniteForCausalLM", "olmo2": "Olmo2ForCausalLM",
           "gemma3": "Gemma3ForCausalLM", "gemma2": "Gemma2ForCausalLM", "ministral3": "Ministral3ForCausalLM"}
TRANSLATES = ["marian", "pegasus"]  # encoder-decoders: post-norm and pre-norm
SENTENCES = 12
LONGEST = 16  # tokens of a translation
TOLERANCE = 1e-4  # of a log-probability


def vocabularies(folder, lines):
    """SentencePiece models as they are found: unigram with normalization, and BPE with byte tokens as Llama's."""
    import sentencepiece
    made = {}
    for name, options in {
            "unigram": dict(model_type="unigram", vocab_size=180, hard_vocab_limit=False, pad_id=3),
            "bpe": dict(model_type="bpe", vocab_size=420, byte_fallback=True, normalization_rule_name="identity",
                        remove_extra_whitespaces=False, pad_id=-1)}.items():
        path = os.path.join(folder, name)
        sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter(lines), model_prefix=path, minloglevel=2, unk_id=0, bos_id=1,
                                                 eos_id=2, **options)
        made[name] = path + ".model"
    return made


class Case:
    def __init__(self, number, program, spms):
        self.random = random.Random(number)
        self.number, self.program = number, program
        self.family = FAMILIES[number % len(FAMILIES)]
        self.name = f"case-{number}"
        self.folder = os.path.join(program.folder, self.name)
        self.about, self.refused_by = [self.family], None
        choice = self.random.choice
        self.dtype = choice(["float32", "float16", "bfloat16"])
        self.shards = choice([1, 1, 3])
        self.translates = self.family in TRANSLATES
        self.vocabulary = "unigram" if self.translates else choice(["unigram", "bpe"])
        self.resaved = self.family != "marian" and choice([True, False])
        self.spare = choice([0, 0, 5, 61])
        self.spm = spms[self.vocabulary]
        self.about += [self.dtype, f"{self.shards} files", self.vocabulary, "re-saved" if self.resaved else "", f"{self.spare} spare rows"]

    # ---- the model of transformers ----

    def config(self, tokens):
        ends = [2]
        if not self.translates and self.random.random() < 0.4:
            ends = [2] + self.random.sample(range(max(10, tokens - 100), tokens), 2)
            self.about.append("three ends")
        self.ends = ends
        common = dict(vocab_size=tokens + self.spare, bos_token_id=1, pad_token_id=None, eos_token_id=ends if len(ends) > 1 else 2)
        return getattr(self, "marian" if self.translates else "gpt2" if self.family == "gpt2" else "llama_form")(common)

    def refuse(self, key, chance):
        """Whether this case has something that is refused, by that key."""
        if self.refused_by is not None or self.random.random() >= chance:
            return False
        self.refused_by = key
        self.about.append("with " + key)
        return True

    def marian(self, common):
        from transformers import MarianConfig, PegasusConfig
        choice = self.random.choice
        scaled = choice([True, False])
        self.about.append(f"scale_embedding {scaled}")
        options = dict(scale_embedding=scaled, activation_function=choice(["relu", "swish", "gelu_new", "gelu"]))
        if self.refuse("encoder_attention_heads", 0.1):
            options["encoder_attention_heads"] = 2
        if self.refuse("normalize_embedding", 0.1):
            options["normalize_embedding"] = True
        if self.refuse("normalize_before", 0.1):  # what the class does not do
            options["normalize_before"] = self.family == "marian"
        common.update(pad_token_id=3, decoder_start_token_id=1)
        kind = MarianConfig if self.family == "marian" else PegasusConfig
        return kind(**{**common, **dict(d_model=32, encoder_layers=2, decoder_layers=choice([1, 2]), encoder_attention_heads=4,
                                        decoder_attention_heads=4, encoder_ffn_dim=choice([48, 56]), decoder_ffn_dim=48,
                                        max_position_embeddings=128, forced_eos_token_id=None, init_std=0.2), **options})

    def gpt2(self, common):
        from transformers import GPT2Config
        choice = self.random.choice
        options = dict(activation_function=choice(["gelu_new", "gelu", "relu", "silu"]), tie_word_embeddings=choice([True, False]))
        if self.refuse("scale_attn_by_inverse_layer_idx", 0.1):
            options["scale_attn_by_inverse_layer_idx"] = True
        if self.refuse("activation_function", 0.1):
            options["activation_function"] = "tanh"
        return GPT2Config(**common, n_positions=160, n_embd=32, n_layer=2, n_head=4, n_inner=choice([None, 40]), initializer_range=0.2,
                          layer_norm_epsilon=choice([1e-5, 1e-6]), **options)

    def llama_form(self, common):
        import transformers
        choice = self.random.choice
        kind = getattr(transformers, CLASSES[self.family].replace("ForCausalLM", "TextConfig" if self.family == "gemma3" else "Config"))
        heads = choice([2, 4])
        options = dict(hidden_size=32, intermediate_size=choice([40, 72]), num_hidden_layers=2, num_attention_heads=heads,
                       num_key_value_heads=choice([1, 2, heads]), max_position_embeddings=160, rms_norm_eps=choice([1e-5, 1e-6]),
                       initializer_range=0.2, tie_word_embeddings=choice([True, False]))
        if self.family in ("qwen3", "hunyuan", "gemma3", "gemma2", "ministral3") or self.family != "phi3" and choice([True, False]):
            options["head_dim"] = choice([4, 20, 32])
            self.about.append(f"head_dim {options['head_dim']}")
        rope = {"rope_type": "default", "rope_theta": choice([1e4, 5e5, 1e3])}
        scaling = choice(["none", "none", "linear", "llama3", "yarn"])
        if scaling != "none":
            rope.update(rope_type=scaling, factor=choice([2.0, 4.0, 8.0]))
            self.about += [] if self.family in ("phi3", "ministral3") else ["rope " + scaling]  # these get their own below
        if scaling == "llama3":
            rope.update(low_freq_factor=1.0, high_freq_factor=choice([4.0, 2.5]), original_max_position_embeddings=choice([40, 64]))
        if scaling == "yarn":
            rope.update(original_max_position_embeddings=choice([16, 40, 64]))
            rope.update(choice([{}, dict(beta_fast=4.0, beta_slow=0.5), dict(attention_factor=1.4), dict(mscale=1.2, mscale_all_dim=0.6)]))
            if self.refuse("truncate", 0.1):
                rope["truncate"] = False
        if self.refuse("rope_type", 0.1):
            rope = {"rope_type": "dynamic", "factor": 2.0, "rope_theta": 1e4}
        if self.family == "hunyuan" and self.refused_by is None and choice([True, False]):
            rope = {"rope_type": "dynamic", "rope_theta": 1e3, "factor": 1.0, "alpha": choice([2.0, 1000.0])}
        if self.family == "ministral3" and self.refused_by is None:
            rope = {"rope_type": "yarn", "rope_theta": choice([1e4, 1e6]), "factor": choice([1.0, 4.0, 16.0]), "mscale": 1.0,
                    "mscale_all_dim": choice([1.0, 0.5]), "original_max_position_embeddings": choice([3, 8, 20]),
                    "llama_4_scaling_beta": choice([0.1, 0.7])}
            self.about.append(f"grows by {rope['llama_4_scaling_beta']} from {rope['original_max_position_embeddings']} on")
            if self.refuse("llama_4_scaling_beta", 0.1):
                del rope["llama_4_scaling_beta"]
        if self.family == "phi3":
            rope = {"rope_type": "default", "rope_theta": choice([1e4, 2.5e5])}
            if self.refuse("partial_rotary_factor", 0.2):
                rope["partial_rotary_factor"] = 0.5
        options["rope_parameters"] = rope
        if self.family == "smollm3":
            options["no_rope_layers"] = choice([None, [1, 0], [0, 0], [1, 1]])
            options["no_rope_layer_interval"] = choice([1, 2, 4])
            if self.refuse("no_rope_layers", 0.15):
                options["no_rope_layers"] = [0, 1]
            self.about.append(f"no_rope_layers {options['no_rope_layers']}, {options['no_rope_layer_interval']}")
        if self.family == "granite":
            options.update(embedding_multiplier=choice([1.0, 6.0]), attention_multiplier=choice([1.0, 0.125, 0.3]),
                           residual_multiplier=choice([1.0, 0.22]), logits_scaling=choice([1.0, 3.0, 0.5]))
            self.about.append(", ".join(f"{key} {value}" for key, value in options.items() if "multiplier" in key or "logits" in key))
        if self.family in ("llama", "smollm3", "granite"):
            options.update(attention_bias=choice([True, False]), mlp_bias=choice([True, False]))
            self.about.append(f"biases {options['attention_bias']} {options['mlp_bias']}")
        if self.family in ("mistral", "phi3", "ministral3"):
            options["sliding_window"] = choice([2, 3, 5, 9, 16, None, 4096])
        if self.family in ("qwen2", "qwen3") and choice([True, False]):
            options.update(use_sliding_window=True, sliding_window=choice([2, 4, 11]))
            options.update(choice([dict(max_window_layers=0), dict(layer_types=["sliding_attention", "full_attention"])]))
            if self.refuse("max_window_layers", 0.15):
                options.update(max_window_layers=1, layer_types=None)
        if self.family in ("gemma2", "gemma3"):
            self.gemma(options, rope)
        if "sliding_window" in options:
            self.about.append(f"window {options['sliding_window']}")
        if self.family in ("qwen3", "hunyuan", "olmo2", "gemma2", "gemma3"):
            options["attention_bias"] = choice([True, False])
            self.about.append(f"biases {options['attention_bias']}")
        return kind(**common, **options)

    def gemma(self, options, rope):
        choice = self.random.choice
        sliding, full = "sliding_attention", "full_attention"
        layers = choice([[sliding, full], [sliding, full, sliding], [sliding, sliding, full], [sliding, sliding], [full, full]])
        options.update(num_hidden_layers=len(layers), layer_types=layers, sliding_window=choice([2, 4, 11, 4096]),
                       query_pre_attn_scalar=choice([4, 10, 256]))
        caps = [(None, None), (None, 1.5), (2.0, 3.0), (0.5, None), (50.0, 30.0)]
        score_cap, logits_cap = choice(caps[1:] if self.family == "gemma2" else caps[:2])  # Gemma 3 ignores the former
        options.update(attn_logit_softcapping=score_cap, final_logit_softcapping=logits_cap)
        if self.family == "gemma3":
            options["rope_parameters"] = {full: rope, sliding: {"rope_type": "default", "rope_theta": choice([1e4, 50.0])}}
        if self.refuse("layer_types", 0.1):
            options["layer_types"] = [full] + [sliding] * (len(layers) - 1)
        if self.refuse("use_bidirectional_attention", 0.1):
            options["use_bidirectional_attention"] = True
        self.about.append(f"layers {[each[:4] for each in options['layer_types']]}, scalar {options['query_pre_attn_scalar']}, "
                          f"caps {score_cap} {logits_cap}")

    def save(self, tokens):
        import torch
        import transformers
        kind = getattr(transformers, CLASSES[self.family])
        torch.manual_seed(self.number)
        model = kind(self.config(tokens)).eval()
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                if parameter.dim() == 1:  # norms and biases that are not what they begin as
                    parameter.add_(0.2 * torch.randn_like(parameter))
            if self.translates:
                model.final_logits_bias.normal_(std=0.2)
            if self.vocabulary == "bpe":  # a byte is never the most likely: ends of lines would be among them
                model.get_output_embeddings().weight[3:259] = 0
        model.generation_config = transformers.GenerationConfig.from_model_config(model.config)
        size = sum(p.numel() for p in model.parameters()) * (4 if self.dtype == "float32" else 2)
        model.to(getattr(torch, self.dtype)).save_pretrained(self.folder, max_shard_size=size // self.shards + 4000 if self.shards > 1 else "1GB")
        self.is_sharded = os.path.exists(os.path.join(self.folder, "model.safetensors.index.json"))
        model = kind.from_pretrained(self.folder, dtype=torch.float32).eval()
        if self.family == "pegasus":
            exact_positions(model)
        return model

    # ---- its tokenizer ----

    def save_tokenizer(self, spm):
        if self.translates and not self.resaved:
            for side in ("source.spm", "target.spm"):
                shutil.copy(self.spm, os.path.join(self.folder, side))
            with open(os.path.join(self.folder, "vocab.json"), "w", encoding="utf-8") as file:
                json.dump({spm.id_to_piece(i): i for i in range(len(spm))}, file)
        elif not self.resaved:
            shutil.copy(self.spm, os.path.join(self.folder, "tokenizer.model"))
        else:
            shutil.copy(resaved_tokenizer(self.program, self.spm, self.vocabulary), os.path.join(self.folder, "tokenizer.json"))

    # ---- what is checked ----

    def run(self, checks, test, reference):
        import sentencepiece
        spm = sentencepiece.SentencePieceProcessor(model_file=self.spm)
        model = self.save(len(spm))
        self.save_tokenizer(spm)
        label = f"{self.name}: " + ", ".join(text for text in self.about if text)
        done = subprocess.run([self.program.path, "import", "--from", self.folder, "-o", self.name + "-imported", "--quiet"],
                              cwd=self.program.folder, encoding="utf-8", capture_output=True)
        if self.refused_by is not None:
            checks.say(done.returncode != 0 and self.refused_by in done.stderr, f"{label}: refused: {done.stderr.strip()[-160:]}")
            return "refused"
        if done.returncode != 0:
            checks.say(False, f"{label}: {done.stderr.strip()}")
            return "failed"
        self.compare(checks, label, model, spm, test, reference)
        shutil.rmtree(os.path.join(self.program.folder, self.name + "-imported"))
        return "equal"

    def compare(self, checks, label, model, spm, test, reference):
        import torch
        name = self.name + "-imported"
        imported = os.path.join(self.program.folder, name)
        if self.resaved and self.vocabulary == "bpe":  # it has byte fallback and added tokens
            checks.say(bytes_of(imported, "tokenizer.json") == bytes_of(self.folder, "tokenizer.json"), f"{label}: tokenizer.json as it came")
        else:
            ours = sentences_of(os.path.join(imported, "vocab.spm"))
            lines = test + ["naïve 東京 🙂", "a  b"]
            checks.say([ours.encode(line) for line in lines] == [spm.encode(line) for line in lines], f"{label}: ids")
        tokens = len(spm)
        source = self.prompts(spm, test)
        target = [spm.encode(line) + [2] for line in reference]
        theirs = []
        for a, b in zip(source, target):
            with torch.no_grad():
                if self.translates:
                    logits = model(input_ids=torch.tensor([a]), decoder_input_ids=torch.tensor([[1] + b[:-1]])).logits[0]
                else:
                    logits = model(input_ids=torch.tensor([a + b])).logits[0][len(a) - 1:]
            steps = torch.log_softmax(logits[:, :tokens].double(), -1)
            theirs.append(sum(steps[i, token].item() for i, token in enumerate(b)))
        checks.log_probabilities(label, self.program.scores(name, test, reference), theirs, [len(t) for t in target], TOLERANCE)
        never = [i for i in range(tokens) if spm.is_unknown(i) or spm.is_control(i) and i != 2] + list(range(tokens, tokens + self.spare))
        texts = [spm.decode(self.generated(model, a, never)) for a in source]
        checks.translations(label, self.translated(test), texts)
        if not self.translates:  # a base model continues a text
            prompts = [[1] + spm.encode(line) for line in test]
            texts = [spm.decode(a + self.generated(model, a, never))[len(spm.decode(a)):] for a in prompts]
            checks.translations(label + ", continued", self.translated(test, "--end-source", "off", "--begin-source", "on"), texts)

    def prompts(self, spm, lines):
        """A tokenizer.json says what is around a prompt. Without one, the end of the source separates prompt and answer."""
        if self.translates or not self.resaved:
            return [spm.encode(line) + [2] for line in lines]
        import tokenizers
        tokenizer = tokenizers.Tokenizer.from_file(os.path.join(self.folder, "tokenizer.json"))
        return [tokenizer.encode(line).ids for line in lines]

    def generated(self, model, prompt, never):
        """The tokens that follow, without the end."""
        import torch
        with torch.no_grad():
            output = model.generate(torch.tensor([prompt]), attention_mask=torch.ones(1, len(prompt), dtype=torch.long), do_sample=False,
                                    num_beams=1, max_new_tokens=LONGEST, max_length=None, suppress_tokens=never, pad_token_id=2)[0].tolist()
        output = output[1 if self.translates else len(prompt):]
        return output[:next((i for i, token in enumerate(output) if token in self.ends), len(output))]

    def translated(self, lines, *flags):
        return self.program.run("translate", "-m", self.name + "-imported", "--beam-size", "1", "--normalize", "0", "--max-length",
                                str(LONGEST), *flags, "--device", "cpu", "--quiet", lines=lines)


def exact_positions(model):
    """transformers reads Pegasus' table of positions from the file, in the type of the weights. Models here compute it."""
    import torch
    with torch.no_grad():
        for stack in (model.model.encoder, model.model.decoder):
            stack.embed_positions.weight.copy_(stack.embed_positions.create_weight())


def bytes_of(*path):
    with open(os.path.join(*path), "rb") as file:
        return file.read()


def sentences_of(path):
    import sentencepiece
    return sentencepiece.SentencePieceProcessor(model_file=path)


_resaved = {}


def resaved_tokenizer(program, spm, vocabulary):
    """The tokenizer.json that transformers makes of a directory with tokenizer.model: by its conversion, or, for unigram, from one
    that translate-train exported."""
    import transformers
    if vocabulary in _resaved:
        return _resaved[vocabulary]
    folder = os.path.join(program.folder, "tokenizer-" + vocabulary)
    if vocabulary == "bpe":
        os.makedirs(folder, exist_ok=True)
        shutil.copy(spm, os.path.join(folder, "tokenizer.model"))
        tokenizer = transformers.LlamaTokenizer.from_pretrained(folder, legacy=False)
    else:
        program.run("train", "-t", "train.src", "train.trg", "--vocabs", spm, "--model", "tiny-unigram", "--after", "1u", "--task",
                    "llama", "--dec-depth", "1", "--dim-emb", "8", "--transformer-dim-ffn", "8", "--transformer-heads", "2", "--device",
                    "cpu", "--quiet")
        program.run("export", "-m", "tiny-unigram", "--to", "hf-llama", "-o", folder, "--quiet")
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    again = folder + "-again"
    tokenizer.save_pretrained(again)
    _resaved[vocabulary] = os.path.join(again, "tokenizer.json")
    return _resaved[vocabulary]


def check_imports(checks, program, train, test, reference, count):
    """Cases 0 to count - 1. Prints one line for a case that is as it should be, and how many of each kind there were."""
    spms = vocabularies(program.folder, [side for pair in train[:1500] for side in pair])
    counts, sharded = {}, 0
    for number in range(count):
        case = Case(number, program, spms)
        failed_before = checks.failed
        with contextlib.redirect_stdout(None) if count > 20 else contextlib.nullcontext():
            result = case.run(checks, test[:SENTENCES], reference[:SENTENCES])
        if checks.failed > failed_before:
            result = "failed"
            print(f"FAILED  {case.name}: {case.about}", flush=True)
        sharded += case.is_sharded
        counts[result] = counts.get(result, 0) + 1
        shutil.rmtree(case.folder)
    print(f"{count} imported configurations, {sharded} of them in several files: " +
          ", ".join(f"{n} {what}" for what, n in sorted(counts.items())), flush=True)
