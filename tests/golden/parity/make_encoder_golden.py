#!/usr/bin/env python3
"""Writes encoder-*.json of tests/parity: the loss and every gradient of encoders of transformers, with token types where they have some.

Needs torch (CPU) and transformers; run it only to make new files:
    python3 tests/golden/parity/make_encoder_golden.py tests/golden/parity

Weights are the formula of make_golden.py in the engine's parameters. A text at a time, without padding. The token at place i has the type
i % 2. Labels: of texts 1, 0 and 2; of tokens the id % 3, without the first token; masked tokens are those whose id is divisible by 4.
"""
import json
import sys

import torch
import torch.nn.functional as F
import transformers
from make_golden import FFN, HEADS, LAYERS, SOURCES, VOCABULARY, WIDTH, value
from make_transformers_golden import POSITIONS, engine_config

LABELS = 3
FORMS = {  # the class, the front rows of its positions, settings of the class, settings of the engine's model
    "encoder-bert-sequence": ("BertForSequenceClassification", 0, {}, dict(encoder_head="sequence", labels=LABELS)),
    "encoder-bert-masked-lm": ("BertForMaskedLM", 0, {}, dict(encoder_head="masked-lm")),
    "encoder-roberta-token": ("RobertaForTokenClassification", 2, dict(pad_token_id=1),
                              dict(encoder_head="token", labels=LABELS, encoder_class="roberta")),
    "encoder-roberta-masked-lm": ("RobertaForMaskedLM", 2, dict(pad_token_id=1, tie_word_embeddings=False),
                                  dict(encoder_head="masked-lm", encoder_class="roberta", tied_embeddings=False)),
    # The second layer has a window of one token to each side.
    "encoder-modernbert-sequence": ("ModernBertForSequenceClassification", 0, dict(classifier_pooling="mean"),
                                    dict(encoder_head="sequence", labels=LABELS, classifier_pooling="mean")),
    "encoder-modernbert-masked-lm": ("ModernBertForMaskedLM", 0, dict(attention_bias=True, mlp_bias=True, hidden_activation="silu"),
                                     dict(encoder_head="masked-lm", qkv_biases=True, attention_output_bias=True, ffn_biases=True,
                                          activation="silu", ffn="swiglu")),
}
OF_MODERNBERT = dict(local_attention=2, global_attn_every_n_layers=2, global_rope_theta=1000.0, local_rope_theta=100.0, pad_token_id=0)
OF_ENGINE = dict(encoder_class="modernbert", pre_norm=True, positions="rotary", ffn="geglu", biases=False, rope_theta=1000.0, sliding_window=2,
                 full_attention_interval=2, rope_local_theta=100.0)


def is_modernbert(name):
    return name.startswith("ModernBert")


def made(name, front, settings):
    of_class = OF_MODERNBERT if is_modernbert(name) else dict(type_vocab_size=2, layer_norm_eps=1e-5, hidden_dropout_prob=0.0,
                                                              attention_probs_dropout_prob=0.0)
    config = getattr(transformers, name.split("For")[0] + "Config")(
        vocab_size=VOCABULARY, hidden_size=WIDTH, intermediate_size=FFN, num_hidden_layers=LAYERS, num_attention_heads=HEADS,
        max_position_embeddings=POSITIONS + front, num_labels=LABELS, **of_class, **settings)
    config._attn_implementation = "eager"
    return getattr(transformers, name)(config).train()


def parameters(model):
    """As parameters() of make_transformers_golden.py."""
    named = dict(model.named_parameters())
    base = model.base_model_prefix + "."
    both = lambda ours, *theirs: [(f"{ours}.{kind}", [f"{each}.{kind}" for each in theirs]) for kind in ("weight", "bias")]
    embeddings = base + "embeddings."
    found = [("embedding.weight", [embeddings + "word_embeddings.weight"]), ("embedding.weight", [embeddings + "tok_embeddings.weight"]),
             ("positions.weight", [embeddings + "position_embeddings.weight"]),
             ("token_types.weight", [embeddings + "token_type_embeddings.weight"]), *both("embedding_norm", embeddings + "LayerNorm"),
             *both("embedding_norm", embeddings + "norm")]
    for i in range(LAYERS):
        ours, theirs = f"encoder.{i}.", f"{base}layers.{i}."
        found += both(ours + "attention_norm", theirs + "attn_norm") + both(ours + "ffn_norm", theirs + "mlp_norm")
        found += both(ours + "attention.qkv", theirs + "attn.Wqkv") + both(ours + "attention.output", theirs + "attn.Wo")
        found += both(ours + "ffn.gate_up", theirs + "mlp.Wi") + both(ours + "ffn.down", theirs + "mlp.Wo")
        theirs = f"{base}encoder.layer.{i}."
        found += both(ours + "attention_norm", theirs + "attention.output.LayerNorm") + both(ours + "ffn_norm", theirs + "output.LayerNorm")
        found += both(ours + "attention.qkv", *[f"{theirs}attention.self.{part}" for part in ("query", "key", "value")])
        found += both(ours + "attention.output", theirs + "attention.output.dense")
        found += both(ours + "ffn.up", theirs + "intermediate.dense") + both(ours + "ffn.down", theirs + "output.dense")
    found += both("encoder.norm", base + "final_norm") + both("pooler", base + "pooler.dense")
    for transform, norm in (("cls.predictions.transform.dense", "cls.predictions.transform.LayerNorm"), ("lm_head.dense", "lm_head.layer_norm"),
                            ("head.dense", "head.norm")):
        found += both("head", transform) + both("head_norm", norm)
    # The bias of the output has two names, of which the untied model reads the decoder's.
    found += both("output", "classifier")
    found += both("output", "decoder")
    for head in ("cls.predictions", "lm_head"):
        found += both("output", head + ".decoder")
        found.append(("output.bias", [head + ".bias"]))
    found = [(ours, [named.pop(name) for name in theirs]) for ours, theirs in found if theirs[0] in named]
    assert set(named) <= {"lm_head.bias"}, sorted(named)
    return found


def loss_of(model):
    losses = []
    for number, source in enumerate(SOURCES):
        ids = torch.tensor(source)
        types = {} if is_modernbert(type(model).__name__) else {"token_type_ids": torch.arange(len(source))[None] % 2}
        logits = model(input_ids=ids[None], **types).logits[0]
        if logits.dim() == 1:
            labels, logits = torch.tensor([[1, 0, 2][number]]), logits[None]
        elif logits.shape[1] == VOCABULARY:
            labels = torch.where(ids % 4 == 0, ids, -100)
        else:
            labels = torch.where(torch.arange(len(source)) > 0, ids % 3, -100)
        losses.append(F.cross_entropy(logits, labels, reduction="none")[labels >= 0])
    return torch.cat(losses).mean()


def golden(name, front, settings, ours):
    model = made(name, front, settings)
    found = parameters(model)
    rows_of = lambda ours, tensor: tensor[front:] if ours == "positions.weight" else tensor
    named = []
    for ours_name, parts in found:  # a bias with two names is one parameter
        if ours_name not in [each for each, _ in named]:
            named.append((ours_name, parts))
    with torch.no_grad():
        for number, (each, parts) in enumerate(named):
            given = [rows_of(each, part) for part in parts]
            values = value(number, (sum(part.shape[0] for part in given), *parts[0].shape[1:]), each)
            for part, rows in zip(given, values.split([part.shape[0] for part in given])):
                part.copy_(rows)
    loss = loss_of(model)
    loss.backward()
    gradients = {each: [float(f"{x:.8g}") for part in parts for x in rows_of(each, part.grad).flatten().tolist()] for each, parts in named}
    usual = dict(architecture="encoder", activation="gelu_erf", pre_norm=False, norm="layer", positions="standard", ffn="plain", biases=True)
    usual |= OF_ENGINE if is_modernbert(name) else dict(token_types=2)
    return {"torch": torch.__version__, "transformers": transformers.__version__, "model": engine_config(usual | ours), "loss": loss.item(),
            "gradients": gradients}


def main():
    for name, form in FORMS.items():
        with open(f"{sys.argv[1]}/{name}.json", "w", encoding="utf-8") as file:
            json.dump(golden(*form), file, indent=None)
            file.write("\n")


if __name__ == "__main__":
    main()
