#!/usr/bin/env python3
"""Configurations of transformers with one key changed: imported models do what transformers does, or are refused.

    python3 tests/parity/config_mutations.py [--translate-train build/release/translate-train] [--short] [--family NAME ...]

For every family that can be imported without a tokenizer (all but MarianMT), transformers makes a random tiny model. Each key of its
config.json, also inside an object such as rope_parameters, each default of its class and each key that another family or an older file has is then removed, set to null, and set to
other values, one at a time. For each case transformers and translate-train read the same directory. Where both read it, log-probabilities of given ids must be equal
to 1e-4 a token and the greedy continuation must be the same. If float32 of the two differs by more, transformers in float64 decides. An import
that fails must say which file it is about. --short: a tenth of the cases, drawn at random with a fixed seed.

The environment and the exit codes are as in export_parity.py.
"""
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import export_parity as parity

VOCABULARY, POSITIONS, LONGEST = 60, 96, 6
TOLERANCE = 1e-4
SOURCES = [[11, 7, 45, 23, 9, 31, 5, 17, 28, 40, 13, 2], [50, 33, 8, 2]]
TARGETS = [[19, 25, 6, 44, 52, 37, 12, 2], [41, 14, 29, 21, 10, 36, 2]]

_llama = dict(hidden_size=32, intermediate_size=40, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
              max_position_embeddings=POSITIONS, initializer_range=0.3)
_stacks = dict(d_model=32, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4, decoder_attention_heads=4, encoder_ffn_dim=48,
               decoder_ffn_dim=40, max_position_embeddings=POSITIONS, init_std=0.3, pad_token_id=3, decoder_start_token_id=3, eos_token_id=2,
               forced_eos_token_id=None, activation_function="relu")
_t5 = dict(d_model=32, d_ff=40, num_layers=2, num_decoder_layers=1, num_heads=4, relative_attention_num_buckets=8,
           relative_attention_max_distance=6, initializer_factor=2.0, pad_token_id=3, decoder_start_token_id=3, eos_token_id=2)
_ids = dict(bos_token_id=1, eos_token_id=2, pad_token_id=3)
FAMILIES = {  # the configuration's class, the model's, their settings
    "pegasus": ("PegasusConfig", "PegasusForConditionalGeneration", {**_stacks, "scale_embedding": True}),
    "m2m_100": ("M2M100Config", "M2M100ForConditionalGeneration",
                {**_stacks, "scale_embedding": True, "pad_token_id": 1, "decoder_start_token_id": 2, "bos_token_id": 0}),
    "mbart": ("MBartConfig", "MBartForConditionalGeneration",
              {**_stacks, "pad_token_id": 1, "decoder_start_token_id": 2, "bos_token_id": 0, "activation_function": "gelu"}),
    "bart": ("BartConfig", "BartForConditionalGeneration",
             {**_stacks, "pad_token_id": 1, "decoder_start_token_id": 2, "bos_token_id": 0, "activation_function": "gelu"}),
    "t5": ("T5Config", "T5ForConditionalGeneration", {**_t5, "d_kv": 8}),
    "mt5": ("MT5Config", "MT5ForConditionalGeneration", {**_t5, "d_kv": 12, "feed_forward_proj": "gated-gelu"}),
    "gpt2": ("GPT2Config", "GPT2LMHeadModel",
             {**_ids, **dict(n_embd=32, n_layer=2, n_head=4, n_positions=POSITIONS, n_inner=40, initializer_range=0.3)}),
    "llama": ("LlamaConfig", "LlamaForCausalLM", {**_ids, **_llama}),
    "mistral": ("MistralConfig", "MistralForCausalLM", {**_ids, **_llama, "sliding_window": 5}),
    "qwen2": ("Qwen2Config", "Qwen2ForCausalLM", {**_ids, **_llama}),
    "qwen3": ("Qwen3Config", "Qwen3ForCausalLM", {**_ids, **_llama, "head_dim": 12}),
    "hunyuan_v1_dense": ("HunYuanDenseV1Config", "HunYuanDenseV1ForCausalLM", {**_ids, **_llama, "head_dim": 12}),
    "phi3": ("Phi3Config", "Phi3ForCausalLM", {**_ids, **_llama, "sliding_window": 7}),
    "smollm3": ("SmolLM3Config", "SmolLM3ForCausalLM", {**_ids, **_llama, "no_rope_layers": [1, 0]}),
    "granite": ("GraniteConfig", "GraniteForCausalLM",
                {**_ids, **_llama, **dict(embedding_multiplier=3.0, attention_multiplier=0.25, residual_multiplier=0.5, logits_scaling=2.0)}),
    "olmo2": ("Olmo2Config", "Olmo2ForCausalLM", {**_ids, **_llama}),
    "gemma2": ("Gemma2Config", "Gemma2ForCausalLM",
               {**_ids, **_llama, **dict(head_dim=12, sliding_window=5, query_pre_attn_scalar=10, attn_logit_softcapping=2.0,
                                         final_logit_softcapping=1.5)}),
    "gemma3_text": ("Gemma3TextConfig", "Gemma3ForCausalLM",
                    {**_ids, **_llama, **dict(head_dim=12, sliding_window=5, layer_types=["sliding_attention", "full_attention"],
                                              query_pre_attn_scalar=10)}),
    "ministral3": ("Ministral3Config", "Ministral3ForCausalLM",
                   {**_ids, **_llama, **dict(head_dim=12, rope_parameters=dict(rope_type="yarn", rope_theta=1e4, factor=4.0, mscale=1.0,
                                                                               mscale_all_dim=0.5, original_max_position_embeddings=5,
                                                                               llama_4_scaling_beta=0.7))}),
}

ABSENT = object()
_rope = lambda **keys: {"rope_type": "default", "rope_theta": 1e4, **keys}
# Values that a rule for the type of the old one does not give.
FURTHER = {
    "hidden_act": ["gelu", "gelu_new", "relu", "swish", "gelu_pytorch_tanh", "tanh"],
    "activation_function": ["gelu", "gelu_new", "relu", "swish", "gelu_pytorch_tanh", "gelu_fast", "tanh"],
    "feed_forward_proj": ["gated-silu", "gated-relu", "gelu", "gelu_new", "silu", "gated-gelu-x", "other-gelu"],
    "dense_act_fn": ["gelu", "silu", "relu", "tanh"], "is_gated_act": [True, False], "scale_decoder_outputs": [True, False],
    "tie_word_embeddings": [True, False], "num_decoder_layers": [2, 3], "d_kv": [16], "relative_attention_num_buckets": [4, 32],
    "relative_attention_max_distance": [5, 128], "layer_norm_epsilon": [0.1],
    "hidden_activation": ["gelu_pytorch_tanh", "gelu", "silu"],
    "model_type": ["llama", "mistral", "qwen2", "qwen3", "phi3", "smollm3", "granite", "olmo2", "mixtral", "qwen3_moe", "gemma2", "gemma3_text", "gpt2",
                   "bart", "ministral3", "mistral3"],
    "architectures": [["LlamaModel"], ["LlamaForSequenceClassification"]],
    "rope_theta": [1e6, 500],
    "rope_scaling": [{"type": "linear", "factor": 2.0}, {"rope_type": "linear", "factor": 2.0}, {"rope_type": "dynamic", "factor": 4.0},
                     {"rope_type": "yarn", "factor": 2.0}, {"type": "su", "factor": 2.0}, {"factor": 2.0},
                     {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                      "original_max_position_embeddings": 24},
                     {"rope_type": "yarn", "factor": 2.0, "original_max_position_embeddings": 6, "llama_4_scaling_beta": 0.5}],
    "rope_parameters": [*(_rope(rope_type=kind, factor=4.0, original_max_position_embeddings=6, llama_4_scaling_beta=0.5, **other)
                          for kind, other in (("yarn", {}), ("yarn", {"max_position_embeddings": 48}), ("default", {}), ("linear", {}),
                                              ("llama3", {"low_freq_factor": 1.0, "high_freq_factor": 4.0}))),
                        _rope(rope_theta=500.0), _rope(factor=4.0), _rope(rope_type="linear", factor=2.0),
                        _rope(rope_type="dynamic", factor=4.0), _rope(rope_type="yarn", factor=4.0),
                        _rope(rope_type="yarn", factor=4.0, original_max_position_embeddings=16),
                        _rope(rope_type="yarn", factor=4.0, original_max_position_embeddings=16, mscale=1.5),
                        _rope(rope_type="yarn", factor=4.0, original_max_position_embeddings=16, mscale=1.5, mscale_all_dim=0.7),
                        _rope(rope_type="yarn", factor=4.0, original_max_position_embeddings=16, attention_factor=1.3),
                        _rope(rope_type="yarn", factor=4.0, original_max_position_embeddings=16, beta_fast=8, beta_slow=2),
                        _rope(rope_type="yarn", factor=4.0, original_max_position_embeddings=16, truncate=False),
                        _rope(rope_type="longrope", factor=4.0), _rope(partial_rotary_factor=0.5), _rope(rope_theta=None),
                        _rope(rope_type="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
                              original_max_position_embeddings=24),
                        _rope(rope_type="dynamic", alpha=100.0), {"rope_type": "default"}, {"rope_theta": 500.0},
                        {"full_attention": _rope(rope_theta=500.0)}, {"sliding_attention": _rope(rope_theta=50.0)},
                        {"full_attention": _rope(rope_type="linear", factor=2.0), "sliding_attention": _rope(rope_type="linear", factor=2.0)},
                        {"full_attention": _rope(rope_type="linear", factor=2.0), "sliding_attention": None}],
    "rope_local_base_freq": [50.0],
    "partial_rotary_factor": [0.5], "rotary_pct": [0.25], "rotary_dim": [4],
    "original_max_position_embeddings": [16],
    "sliding_window": [3, 5, 4096], "use_sliding_window": [True], "max_window_layers": [0, 1], "sliding_window_pattern": [1, 2],
    "layer_types": [["full_attention", "full_attention"], ["full_attention", "sliding_attention"],
                    ["sliding_attention", "full_attention"], ["sliding_attention", "sliding_attention"],
                    ["full_attention", "chunked_attention"], ["full_attention"]],
    "no_rope_layers": [[1, 0], [0, 0], [1, 1]], "no_rope_layer_interval": [1, 2],
    "head_dim": [8, 12, 16], "n_inner": [128],
    "attn_logit_softcapping": [5.0], "final_logit_softcapping": [3.0], "query_pre_attn_scalar": [4], "clip_qkv": [0.5],
    "embedding_multiplier": [3.0], "attention_multiplier": [0.5], "residual_multiplier": [0.5], "logits_scaling": [4.0],
    "logit_scale": [0.1], "qk_layernorm": [True], "use_qk_norm": [True], "parallel_attn": [True], "use_parallel_residual": [True],
    "num_experts": [4], "num_local_experts": [4], "qkv_bias": [True], "attention_bias": [True], "mlp_bias": [True],
    "quantization_config": [{"quant_method": "gptq", "bits": 4}],
    "is_decoder": [True], "is_encoder_decoder": [True, False], "add_cross_attention": [True], "tie_encoder_decoder": [True],
    "use_bidirectional_attention": [True], "is_causal": [False],
    "scale_embedding": [True, False], "share_encoder_decoder_embeddings": [False], "static_position_embeddings": [True, False],
    "normalize_before": [True, False], "normalize_embedding": [True, False], "add_final_layer_norm": [True], "add_bias_logits": [True],
    "num_beams": [3], "forced_bos_token_id": [7], "forced_eos_token_id": [2], "bad_words_ids": [[[9]]], "suppress_tokens": [[9]],
    "per_layer_config": [{"0": {"sliding_window": 4}}], "kv_sharing_modes": [["own", "reuse"]], "attention_chunk_size": [4],
    "max_length": [4], "temperature": [0.5], "repetition_penalty": [4.0],
    "eos_token_id": [[2, 9, 40], 9, -1], "bos_token_id": [5], "pad_token_id": [0, -1], "decoder_start_token_id": [0, 5],
    # Other names of the class's keys (attribute_map).
    "hidden_size": [16], "num_attention_heads": [2], "num_hidden_layers": [1], "max_position_embeddings": [48], "n_ctx": [48],
    "n_positions": [48],
    "dtype": ["bfloat16", "float16"], "torch_dtype": ["float32"],
}
# Different in these two, on purpose: translate-train translates with its own options and reads weights in float32.
OWN = {"num_beams", "max_length", "min_length", "temperature", "do_sample", "top_k", "top_p", "typical_p", "repetition_penalty",
       "length_penalty", "no_repeat_ngram_size", "forced_eos_token_id", "encoder_no_repeat_ngram_size", "diversity_penalty", "num_beam_groups", "early_stopping",
       "dtype", "torch_dtype"}


def others_of(value):
    """Other values of the type of this one."""
    if isinstance(value, bool):
        return [not value]
    if isinstance(value, int):
        return [value + 1, 2 * value, 0, -1, "many"]
    if isinstance(value, float):
        return [1.5 * value + 0.01, -1.0, "many"]
    if isinstance(value, str):
        return ["unknown"]
    return []


def changed_inside(value):
    """(name, value) with one key of an object, or of an object in it, changed or removed."""
    for key in value if isinstance(value, dict) else ():
        inner = value[key]
        others = [(f" = {json.dumps(other)}", other) for other in [*others_of(inner), None] if other != inner]
        for text, other in [*others, *changed_inside(inner)]:
            yield f".{key}{text}", {**value, key: other}
        yield f".{key} = absent", {name: one for name, one in value.items() if name != key}


def mutations(config, defaults):
    """(key, value) of one changed key each; ABSENT removes it. Keys of an object are changed one at a time, too."""
    made = [(key + text, key, value) for key in sorted(config) for text, value in changed_inside(config[key])]
    seen = {text for text, _, _ in made}
    for key in sorted({*config, *defaults, *FURTHER}):
        old = config.get(key, ABSENT)
        values = FURTHER.get(key, []) + others_of(old if old is not ABSENT else defaults.get(key)) + [None, ABSENT]
        for value in values:
            text = f"{key} = " + ("absent" if value is ABSENT else json.dumps(value))
            if value is not old and (value is ABSENT or old is ABSENT or value != old) and text not in seen:
                seen.add(text)
                made.append((text, key, value))
    return made


class Refused(Exception):
    pass


def theirs(folder, kind, precision="float32"):
    """(log-probabilities of TARGETS, continuations of SOURCES) by transformers. Refused if it does not read all of the model."""
    import torch
    import transformers
    try:
        config = transformers.AutoConfig.from_pretrained(folder)
        auto = transformers.AutoModelForSeq2SeqLM if config.is_encoder_decoder else transformers.AutoModelForCausalLM
        model, info = auto.from_pretrained(folder, dtype=getattr(torch, precision), output_loading_info=True, attn_implementation="eager")
        if info["missing_keys"] or info["mismatched_keys"]:
            raise Refused("weights are missing: " + ", ".join(sorted(map(str, info["missing_keys"]))[:2]))
        model = model.eval()
        translates = config.is_encoder_decoder
        if translates and kind == "pegasus":
            import import_cases
            import_cases.exact_positions(model)
        scores, texts = [], []
        with open(os.path.join(folder, "config.json"), encoding="utf-8") as file:
            written = json.load(file)  # translate-train never generates the special tokens that it names
        for source, target in zip(SOURCES, TARGETS):
            with torch.no_grad():
                if translates:
                    start = model.config.decoder_start_token_id
                    logits = model(input_ids=torch.tensor([source]), decoder_input_ids=torch.tensor([[start] + target[:-1]])).logits[0]
                else:
                    logits = model(input_ids=torch.tensor([source + target])).logits[0][len(source) - 1:]
                steps = torch.log_softmax(logits.double(), -1)
                scores.append(sum(steps[i, token].item() for i, token in enumerate(target)))
                special = [written.get(key) for key in ("bos_token_id", "pad_token_id", *(["decoder_start_token_id"] if translates else []))]
                ends = model.generation_config.eos_token_id
                ends = ends if isinstance(ends, list) else [ends]
                never = [t for t in special if isinstance(t, int) and t >= 0 and t not in ends]
                output = model.generate(torch.tensor([source]), attention_mask=torch.ones(1, len(source), dtype=torch.long), do_sample=False,
                                        num_beams=1, max_new_tokens=LONGEST, max_length=None, suppress_tokens=never or None,
                                        repetition_penalty=1.0, temperature=None, return_dict_in_generate=False,
                                        output_attentions=False, output_hidden_states=False)[0].tolist()
            output = output[1 if translates else len(source):]
            texts.append(output[:next((i for i, token in enumerate(output) if token in ends), len(output))])
        return scores, texts
    except Refused:
        raise
    except Exception as error:  # noqa: BLE001: whatever it says, it does not read the directory
        raise Refused(f"{type(error).__name__}: {str(error)[:100]}") from None


def ours(program, folder, translates):
    """The same by translate-train. Refused if the import is, with its message."""
    name = "imported"
    shutil.rmtree(os.path.join(program.folder, name), ignore_errors=True)

    def run(*arguments, lines=None):
        text = None if lines is None else "".join(" ".join(map(str, line)) + "\n" for line in lines)
        done = subprocess.run([program.path, *arguments], cwd=program.folder, input=text, encoding="utf-8", capture_output=True)
        if done.returncode not in (0, 1, 2):
            sys.exit(f"translate-train {' '.join(arguments)}: exit code {done.returncode}\n{done.stderr}")
        if done.returncode != 0:
            raise Refused(done.stderr.strip())
        return done.stdout.split("\n")[:-1]

    run("import", "--from", folder, "-o", name, "--quiet")
    for side, rows in (("src", SOURCES), ("trg", TARGETS)):
        parity.write_lines(os.path.join(program.folder, side), [" ".join(map(str, row)) for row in rows])
    device = ["--ids", "--device", "cpu", "--cpu-threads", "1", "--quiet"]
    scores = [float(line) for line in run("score", "-m", name, "-t", "src", "trg", *device)]
    texts = run("translate", "-m", name, "--beam-size", "1", "--normalize", "0", "--max-length", str(LONGEST), *device,
                *([] if translates else ["--end-source", "off"]), lines=SOURCES)
    return scores, [[int(token) for token in text.split()] for text in texts]


def attempt(function, *arguments):
    try:
        return function(*arguments), None
    except Refused as refusal:
        return None, str(refusal)


def judge(program, folder, family, key):
    """(what came out, whether that is right, what to say)."""
    ours_read, our_reason = attempt(ours, program, folder, family in ("pegasus", "m2m_100", "mbart", "bart", "t5", "mt5"))
    if ours_read is None:
        named = "config.json" in our_reason or "model.safetensors" in our_reason or "must end with eos" in our_reason
        return "refused", named, our_reason[-200:]
    theirs_read, their_reason = attempt(theirs, folder, family)
    if theirs_read is None:
        return "transformers refuses", True, their_reason
    gap_to = lambda read: max(abs(a - b) / len(t) for a, b, t in zip(ours_read[0], read[0], TARGETS))
    gap = gap_to(theirs_read)
    if not gap <= TOLERANCE:  # mT5, whose scores are not scaled, loses more digits in PyTorch than here
        exact, _ = attempt(theirs, folder, family, "float64")
        if exact is None or not gap_to(exact) <= TOLERANCE:
            return "different", False, f"log-probabilities differ by {gap:.1e} a token"
        theirs_read = exact
    if ours_read[1] != theirs_read[1]:
        return "different", False, f"greedy: ours {ours_read[1]}, theirs {theirs_read[1]}"
    return "equal", True, ""


def make_base(family, folder):
    """A random model of the family in `folder`; its configuration, with the defaults of its class beside."""
    import torch
    import transformers
    of_config, of_model, options = FAMILIES[family]
    torch.manual_seed(7)
    config = getattr(transformers, of_config)(vocab_size=VOCABULARY, **options)
    model = getattr(transformers, of_model)(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 1:
                parameter.add_(0.2 * torch.randn_like(parameter))
        if hasattr(model, "final_logits_bias"):
            model.final_logits_bias.normal_(std=0.2)
    model.save_pretrained(folder)
    os.remove(os.path.join(folder, "generation_config.json"))  # config.json alone says how texts begin and end
    with open(os.path.join(folder, "config.json"), encoding="utf-8") as file:
        return json.load(file), {**config.to_dict(), **getattr(type(config), "attribute_map", {})}


def check_family(checks, program, family, share, counts):
    base = os.path.join(program.folder, family)
    config, defaults = make_base(family, base)
    file = os.path.join(base, "config.json")
    draw = random.Random(3)
    cases = [("as it is", "", None)] + [case for case in mutations(config, defaults) if draw.random() < share]
    for text, key, value in cases:
        changed = dict(config)
        if value is ABSENT:
            changed.pop(key, None)
        elif key:
            changed[key] = value
        with open(file, "w", encoding="utf-8") as out:
            json.dump(changed, out)
        kind, good, why = judge(program, base, family, key)
        if not key:
            good = kind == "equal"
        # The caller chooses the target language of M2M100 and mBART, and the prefix of ids; the import says which one the directory forces.
        if kind == "different" and (key in OWN or (family in ("m2m_100", "mbart", "bart") and key == "forced_bos_token_id")):
            kind, good = "own", True
        counts[family][kind] = counts[family].get(kind, 0) + 1
        if not good:
            checks.say(False, f"{family}: {text}: {kind}: {why}")
        elif kind == "transformers refuses" or os.environ.get("TRAFO_VERBOSE"):
            print(f"        {family}: {text}: {kind}: {why}", flush=True)
    shutil.rmtree(base)


def main():
    parser = parity.argument_parser(__doc__)
    parser.add_argument("--short", action="store_true", help="a tenth of the cases")
    parser.add_argument("--family", nargs="+", choices=sorted(FAMILIES), default=list(FAMILIES))
    arguments = parser.parse_args()
    parity.enter(arguments, parity.PACKAGES)
    import torch
    import transformers
    transformers.utils.logging.disable_progress_bar()
    transformers.utils.logging.set_verbosity(50)
    torch.set_num_threads(1)
    checks, counts = parity.Checks(), {}
    with tempfile.TemporaryDirectory() as folder:
        program = parity.Program(arguments.translate_train, arguments.work or folder, 0)
        for family in arguments.family:
            counts[family] = {}
            check_family(checks, program, family, 0.1 if arguments.short else 1, counts)
            checks.say(counts[family].get("equal", 0) > 0, f"{family}: {counts[family]}")
    total = sum(sum(each.values()) for each in counts.values())
    print(f"{total} configurations, {checks.failed} failures")
    return 1 if checks.failed else 0


if __name__ == "__main__":
    sys.exit(main())
