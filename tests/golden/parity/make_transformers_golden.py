#!/usr/bin/env python3
"""Writes golden files of tests/parity as make_golden.py does, from classes of transformers: loss, every gradient, ten training losses.

Needs torch (CPU) and transformers; run it only to make new files:
    python3 tests/golden/parity/make_transformers_golden.py tests/golden/parity [NAME ...]

Weights are the formula of make_golden.py in the engine's parameters, which are put together from those of the class. `model` in a file
is the configuration of the engine's model.
"""
import json
import sys

import torch
import torch.nn.functional as F
import transformers
from make_golden import BETAS, DECAY, EPS, FFN, HEADS, LAYERS, LEARNING_RATE, SMOOTHING, SOURCES, TARGETS, VOCABULARY, WIDTH, value

POSITIONS = 32
_mbart = dict(d_model=WIDTH, encoder_layers=LAYERS, decoder_layers=LAYERS, encoder_attention_heads=HEADS, decoder_attention_heads=HEADS,
              encoder_ffn_dim=FFN, decoder_ffn_dim=FFN, dropout=0.0, activation_function="gelu")
_learned = dict(architecture="encoder-decoder", learned_positions=True, activation="gelu_erf", encoder_layers=LAYERS, norm="layer",
                positions="standard", ffn="plain", biases=True, output_bias=False)
_t5 = dict(d_model=WIDTH, num_layers=LAYERS, num_heads=HEADS, d_ff=FFN, dropout_rate=0.0, layer_norm_epsilon=1e-5)
_relative = dict(architecture="encoder-decoder", encoder_layers=LAYERS, positions="standard", embedding_scale=1.0, attention_scale=1.0,
                 output_bias=False)
YARN = dict(rope_type="yarn", rope_theta=1000.0, factor=4.0, original_max_position_embeddings=8, beta_fast=2, beta_slow=0.1)
# Settings of the class of transformers, and settings of the engine's model.
FORMS = {
    "qwen3": ("Qwen3", dict(head_dim=6, num_key_value_heads=1, tie_word_embeddings=False),
              dict(qk_norm="head", head_width=6, kv_heads=1, tied_embeddings=False)),
    "qwen3-biases-yarn": ("Qwen3", dict(head_dim=4, num_key_value_heads=2, tie_word_embeddings=True, attention_bias=True, rope_parameters=YARN),
                          dict(qk_norm="head", qkv_biases=True, attention_output_bias=True, rope_theta=1000.0, rope_scaling="yarn",
                               rope_factor=4.0, rope_original_positions=8, rope_high_turns=2.0, rope_low_turns=0.1)),
    "hunyuan": ("HunYuanDenseV1", dict(head_dim=6, num_key_value_heads=1, tie_word_embeddings=True,
                                       rope_parameters=dict(rope_type="dynamic", rope_theta=100.0, factor=1.0, alpha=8.0)),
                dict(qk_norm="head-after-rotary", head_width=6, kv_heads=1, rope_theta=100 * 8**1.5)),
    "smollm3": ("SmolLM3", dict(num_key_value_heads=1, tie_word_embeddings=True, no_rope_layers=[1, 0], attention_bias=True, mlp_bias=True),
                dict(kv_heads=1, no_rope_interval=2, qkv_biases=True, attention_output_bias=True, ffn_biases=True)),
    "granite": ("Granite", dict(num_key_value_heads=1, tie_word_embeddings=True, embedding_multiplier=6.0, attention_multiplier=0.3,
                                residual_multiplier=0.22, logits_scaling=3.0),
                dict(kv_heads=1, embedding_scale=6.0, attention_scale=0.3, residual_scale=0.22, logits_divisor=3.0)),
    "olmo2": ("Olmo2", dict(num_key_value_heads=1, tie_word_embeddings=False, attention_bias=True),
              dict(kv_heads=1, qk_norm="whole", norm_outputs=True, tied_embeddings=False, qkv_biases=True, attention_output_bias=True)),
    "qwen2-yarn": ("Qwen2", dict(num_key_value_heads=1, tie_word_embeddings=True, rope_parameters=YARN | dict(attention_factor=1.5)),
                   dict(kv_heads=1, qkv_biases=True, rope_theta=1000.0, rope_scaling="yarn", rope_factor=4.0, rope_original_positions=8,
                        rope_high_turns=2.0, rope_low_turns=0.1, rope_magnitude=1.5)),
    "mistral": ("Mistral", dict(num_key_value_heads=1, tie_word_embeddings=True, sliding_window=3), dict(kv_heads=1, sliding_window=3)),
    "phi3": ("Phi3", dict(num_key_value_heads=2, tie_word_embeddings=False, sliding_window=2), dict(tied_embeddings=False, sliding_window=2)),
    "qwen3-windows": ("Qwen3", dict(head_dim=6, num_key_value_heads=1, tie_word_embeddings=True, use_sliding_window=True, sliding_window=3,
                                    layer_types=["sliding_attention", "full_attention"]),
                      dict(qk_norm="head", head_width=6, kv_heads=1, sliding_window=3, full_attention_interval=2)),
    # Tied, ten steps of PyTorch in float32 are 6e-5 away from those in float64.
    "gemma3": ("Gemma3Text", dict(head_dim=6, num_key_value_heads=1, tie_word_embeddings=False, sliding_window=3, query_pre_attn_scalar=10,
                                  layer_types=["sliding_attention", "full_attention"],
                                  rope_parameters=dict(full_attention=dict(rope_type="linear", rope_theta=1000.0, factor=2.0),
                                                       sliding_attention=dict(rope_type="default", rope_theta=100.0))),
               dict(activation="gelu", ffn="geglu", tied_embeddings=False, sandwich_norm=True, embedding_scale=WIDTH**0.5, attention_scale=10**-0.5, qk_norm="head",
                    head_width=6, kv_heads=1, rope_theta=1000.0, rope_factor=2.0, sliding_window=3, full_attention_interval=2,
                    rope_local_theta=100.0)),
    # With a window of 3, ten steps of PyTorch in float32 are 3e-3 away from those in float64.
    "gemma2": ("Gemma2", dict(head_dim=6, num_key_value_heads=1, tie_word_embeddings=False, sliding_window=2, query_pre_attn_scalar=10,
                              attn_logit_softcapping=0.75, final_logit_softcapping=2.0),
               dict(activation="gelu", ffn="geglu", tied_embeddings=False, sandwich_norm=True, embedding_scale=WIDTH**0.5, attention_scale=10**-0.5,
                    head_width=6, kv_heads=1, sliding_window=2, full_attention_interval=2, attention_soft_cap=0.75, logits_soft_cap=2.0)),
    # Queries of positions from 4 on grow.
    "ministral3": ("Ministral3", dict(head_dim=6, num_key_value_heads=1, tie_word_embeddings=False,
                                      rope_parameters=YARN | dict(original_max_position_embeddings=4, llama_4_scaling_beta=0.5)),
                   dict(head_width=6, kv_heads=1, tied_embeddings=False, rope_theta=1000.0, rope_scaling="yarn", rope_factor=4.0,
                        rope_original_positions=4, rope_high_turns=2.0, rope_low_turns=0.1, rope_query_growth=0.5)),
    "mbart": ("MBart", dict(**_mbart, scale_embedding=True), _learned),
    # BART's norms come after the blocks.
    "bart": ("Bart", dict(**_mbart, scale_embedding=False), dict(**_learned, pre_norm=False, embedding_scale=1.0)),
    # Distances of 4 and 5 share a bucket with larger ones.
    "t5": ("T5", dict(**_t5, d_kv=WIDTH // HEADS, relative_attention_num_buckets=8, relative_attention_max_distance=6),
           dict(**_relative, activation="relu", ffn="plain", logits_divisor=WIDTH**0.5, relative_buckets=8, relative_distance=6)),
    "t5-gated": ("T5", dict(**_t5, d_kv=6, feed_forward_proj="gated-gelu", tie_word_embeddings=False, relative_attention_num_buckets=5,
                            relative_attention_max_distance=4),
                 dict(**_relative, activation="gelu", ffn="geglu", head_width=6, relative_buckets=5, relative_distance=4,
                      separate_output=True)),
}


def engine_config(settings):
    """The file of a configuration, with all settings that every file has."""
    usual = dict(architecture="decoder-lm", activation="silu", vocabulary=VOCABULARY, encoder_layers=6, decoder_layers=LAYERS, width=WIDTH,
                 ffn_width=FFN, heads=HEADS, max_positions=POSITIONS, pre_norm=True, tied_embeddings=True, dropout=0.0,
                 attention_dropout=0.0, ffn_dropout=0.0, norm_epsilon=1e-5, norm="rms", positions="rotary", ffn="swiglu", biases=False,
                 kv_heads=0, rope_theta=10000.0, depth_scaled_init=False, output_bias=True, head_width=0, qkv_biases=False,
                 attention_output_bias=False, ffn_biases=False, rope_factor=1.0, rope_original_positions=0, rope_low_turns=1.0,
                 rope_high_turns=4.0, encoder_ffn_width=0, encoder_heads=0, decoder_tied_layers=[], encoder_tied_layers=[])
    return usual | settings


def made(kind, settings):
    if "d_model" in settings:
        config = getattr(transformers, kind + "Config")(vocab_size=VOCABULARY, pad_token_id=None, max_position_embeddings=POSITIONS, **settings)
        config._attn_implementation = "eager"
        model = getattr(transformers, kind + "ForConditionalGeneration")(config).train()
        if settings.get("tie_word_embeddings") is False:  # transformers ties the matrices of a new T5 in any case
            model.lm_head.weight = torch.nn.Parameter(model.lm_head.weight.detach().clone())
        return model
    config = getattr(transformers, kind + "Config")(
        vocab_size=VOCABULARY, pad_token_id=None, hidden_size=WIDTH, intermediate_size=FFN, num_hidden_layers=LAYERS, num_attention_heads=HEADS,
        max_position_embeddings=POSITIONS, rms_norm_eps=1e-5, **{"rope_parameters": dict(rope_type="default", rope_theta=10000.0)} | settings)
    config._attn_implementation = "eager"
    return getattr(transformers, kind.removesuffix("Text") + "ForCausalLM")(config).train()


def less(model, part):
    """A weight of the engine less the one of the class: Gemma's norms multiply by 1 + weight."""
    return 1.0 if model.config.model_type in ("gemma2", "gemma3_text") and part.dim() == 1 else 0.0


def encoder_decoder_parameters(named):
    """As parameters()."""
    def both(ours, theirs):
        return [(f"{ours}.{kind}", [f"{each}.{kind}" for each in theirs]) for kind in ("weight", "bias")]

    found, cross = [("embedding.weight", ["model.shared.weight"])], []
    for prefix, stack in (("source_", "encoder"), ("", "decoder")):
        found.append((prefix + "positions.weight", [f"model.{stack}.embed_positions.weight"]))
        found += both(prefix + "embedding_norm", [f"model.{stack}.layernorm_embedding"])
    for stack in ("encoder", "decoder"):
        for i in range(LAYERS):
            ours, theirs = f"{stack}.{i}.", f"model.{stack}.layers.{i}."
            crosses = stack == "decoder"
            found += both(ours + "attention_norm", [theirs + "self_attn_layer_norm"])
            found += both(ours + "cross_norm", [theirs + "encoder_attn_layer_norm"]) if crosses else []
            found += both(ours + "ffn_norm", [theirs + "final_layer_norm"])
            found += both(ours + "attention.qkv", [f"{theirs}self_attn.{part}_proj" for part in "qkv"])
            found += both(ours + "attention.output", [theirs + "self_attn.out_proj"])
            if crosses:
                found += both(ours + "cross.query", [theirs + "encoder_attn.q_proj"])
                found += both(ours + "cross.output", [theirs + "encoder_attn.out_proj"])
                cross += [f"{theirs}encoder_attn.{part}_proj" for part in "kv"]
            found += both(ours + "ffn.up", [theirs + "fc1"]) + both(ours + "ffn.down", [theirs + "fc2"])
    for stack in ("encoder", "decoder"):
        found += both(stack + ".norm", [f"model.{stack}.layer_norm"])
    found += both("decoder.cross_kv", cross)
    found = [(ours, [named.pop(name) for name in theirs]) for ours, theirs in found if theirs[0] in named]
    assert not named, sorted(named)
    return found


def t5_parameters(named):
    """As parameters()."""
    found, cross = [("embedding.weight", ["shared.weight"])], []
    for stack in ("encoder", "decoder"):
        for i in range(LAYERS):
            ours, theirs = f"{stack}.{i}.", f"{stack}.block.{i}.layer."
            crosses = stack == "decoder"
            ffn = theirs + ("2" if crosses else "1")
            found.append((ours + "attention_norm.weight", [theirs + "0.layer_norm.weight"]))
            found += [(ours + "cross_norm.weight", [theirs + "1.layer_norm.weight"])] if crosses else []
            found += [(ours + "ffn_norm.weight", [ffn + ".layer_norm.weight"]),
                      (ours + "attention.qkv.weight", [f"{theirs}0.SelfAttention.{part}.weight" for part in "qkv"]),
                      (ours + "attention.output.weight", [theirs + "0.SelfAttention.o.weight"])]
            if crosses:
                found += [(ours + "cross.query.weight", [theirs + "1.EncDecAttention.q.weight"]),
                          (ours + "cross.output.weight", [theirs + "1.EncDecAttention.o.weight"])]
                cross += [f"{theirs}1.EncDecAttention.{part}.weight" for part in "kv"]
            found += [(ours + "ffn.gate_up.weight", [f"{ffn}.DenseReluDense.wi_{part}.weight" for part in "01"]),
                      (ours + "ffn.up.weight", [ffn + ".DenseReluDense.wi.weight"]),
                      (ours + "ffn.down.weight", [ffn + ".DenseReluDense.wo.weight"])]
    found += [(stack + ".norm.weight", [stack + ".final_layer_norm.weight"]) for stack in ("encoder", "decoder")]
    found += [(stack + ".relative_positions.weight", [stack + ".block.0.layer.0.SelfAttention.relative_attention_bias.weight"])
              for stack in ("encoder", "decoder")]
    found += [("decoder.cross_kv.weight", cross), ("output.weight", ["lm_head.weight"])]
    found = [(ours, [named.pop(name) for name in theirs]) for ours, theirs in found if theirs[0] in named]
    assert not named, sorted(named)
    return found


def rows_of(name, tensor):
    """Those that the engine has: the first two rows of the table of positions are never read."""
    return tensor[2:] if name.endswith("positions.weight") and not name.endswith("relative_positions.weight") else tensor


def parameters(model):
    """[(name in the engine, the parameters of the class whose rows follow each other in it)], in the engine's order."""
    named = dict(model.named_parameters())
    if model.config.model_type == "t5":
        return t5_parameters(named)
    if model.config.is_encoder_decoder:
        return encoder_decoder_parameters(named)
    found = [("embedding.weight", ["model.embed_tokens.weight"])]
    for i in range(LAYERS):
        ours, theirs = f"decoder.{i}.", f"model.layers.{i}."
        attention = theirs + "self_attn."
        norms = ("query_layernorm", "key_layernorm") if attention + "query_layernorm.weight" in named else ("q_norm", "k_norm")
        of_outputs = theirs + "post_feedforward_layernorm.weight" in named
        sandwich = theirs + "pre_feedforward_layernorm.weight" in named
        layer_norms = (("input", "pre_feedforward") if sandwich else
                       ("post_attention", "post_feedforward") if of_outputs else ("input", "post_attention"))
        found += [(ours + part + "_norm.weight", [f"{theirs}{norm}_layernorm.weight"]) for part, norm in zip(("attention", "ffn"), layer_norms)]
        if sandwich:
            found += [(f"{ours}{part}_output_norm.weight", [f"{theirs}{norm}_layernorm.weight"])
                      for part, norm in (("attention", "post_attention"), ("ffn", "post_feedforward"))]
        for kind in ("weight", "bias"):
            joined = f"{attention}qkv_proj.{kind}"
            found.append((ours + "attention.qkv." + kind, [joined] if joined in named else [f"{attention}{part}_proj.{kind}" for part in "qkv"]))
        for kind in ("weight", "bias"):
            found.append((ours + "attention.output." + kind, [f"{attention}o_proj.{kind}"]))
        found += [(ours + "attention.query_norm.weight", [f"{attention}{norms[0]}.weight"]),
                  (ours + "attention.key_norm.weight", [f"{attention}{norms[1]}.weight"]),
                  (ours + "ffn.gate_up.weight", [f"{theirs}mlp.gate_up_proj.weight"]),
                  *((ours + "ffn.gate_up." + kind, [f"{theirs}mlp.{part}_proj.{kind}" for part in ("gate", "up")]) for kind in ("weight", "bias")),
                  *((ours + "ffn.down." + kind, [f"{theirs}mlp.down_proj.{kind}"]) for kind in ("weight", "bias"))]
    found += [("decoder.norm.weight", ["model.norm.weight"]), ("output.weight", ["lm_head.weight"])]
    found = [(ours, [named.pop(name) for name in theirs]) for ours, theirs in found if theirs[0] in named]
    assert not named, sorted(named)
    return found


def loss_of(model):
    """The mean smoothed loss of the tokens of the targets, sentence by sentence."""
    losses = []
    for source, target in zip(SOURCES, TARGETS):
        if model.config.is_encoder_decoder:
            logits = model(input_ids=torch.tensor([source]), decoder_input_ids=torch.tensor([[1] + target[:-1]])).logits[0]
            losses.append(F.cross_entropy(logits, torch.tensor(target), label_smoothing=SMOOTHING, reduction="none"))
            continue
        stream = torch.tensor([source + target])
        logits = model(input_ids=stream[:, :-1]).logits[0][len(source) - 1:]
        losses.append(F.cross_entropy(logits, torch.tensor(target), label_smoothing=SMOOTHING, reduction="none"))
    return torch.cat(losses).mean()


def golden(kind, settings, ours):
    model = made(kind, settings)
    named = parameters(model)
    with torch.no_grad():
        for number, (name, parts) in enumerate(named):
            given = [rows_of(name, part) for part in parts]
            rows = [part.shape[0] for part in given]
            values = value(number, (sum(rows), *parts[0].shape[1:]), name)
            for part, each in zip(given, values.split(rows)):
                part.copy_(each - less(model, part))
    loss = loss_of(model)
    loss.backward()
    gradients = {name: [float(f"{x:.8g}") for part in parts for x in rows_of(name, part.grad).flatten().tolist()] for name, parts in named}
    optimizer = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE, betas=BETAS, eps=EPS, weight_decay=DECAY)
    losses = []
    for _ in range(10):
        optimizer.zero_grad()
        step = loss_of(model)
        step.backward()
        losses.append(step.item())
        with torch.no_grad():
            for part in model.parameters():  # the decay of 1, which the class has not as a part of the weight
                part.sub_(less(model, part) * LEARNING_RATE * DECAY)
        optimizer.step()
    return {"torch": torch.__version__, "transformers": transformers.__version__, "model": engine_config(ours), "loss": loss.item(), "gradients": gradients, "training_losses": losses}


def main():
    for name, form in FORMS.items():
        if name not in sys.argv[2:] and sys.argv[2:]:
            continue
        with open(f"{sys.argv[1]}/{name}.json", "w", encoding="utf-8") as file:
            json.dump(golden(*form), file, indent=None)
            file.write("\n")


if __name__ == "__main__":
    main()
