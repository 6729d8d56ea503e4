"""docs/reference/generated/options.md: every option with its names, its default and its range."""
from cli import cli_default, help_text
from go import name_of
from schema import GROUPS, UNLIMITED, described, default_text, plain, plain_names

HEAD = """# Options

<!-- Written by scripts/generate_options.py from schema/*.toml: change those. -->

This page lists every option of models, training, decoding and evaluation: its name in C and Rust, its
name in Go, its flag on the command line of `translate-train`, its default and its range.
`config.yml` has the flags of `train` as its keys, without dashes. [training.md](../../guide/training.md) says
how to use them.

An option marked *fixed* belongs to a run from its first update to its last. Resuming with another
value is refused.
"""


def bounds(row):
    r = row.range
    if r is None or r.text == "any":
        return " ".join(f"`{value['text']}`" for value in row.enum.values) if row.enum else ""
    zero = "0 or " if row.zero and r.low > 0 else ""
    if r.high in (UNLIMITED, float("inf")):
        return f"{zero}{'at least' if r.low_inside else 'above'} {plain(r.low)}"
    return (f"{zero}{'' if r.low_inside else 'above '}{plain(r.low)} to {'' if r.high_inside else 'below '}{plain(r.high)}")


def cell(text):
    return text.replace("|", "\\|").replace("<", "&lt;")


def options(table):
    lines = ["| C, Rust | Go | on the command line | default | range | meaning |", "|---|---|---|---|---|---|"]
    for row in table.c_rows:
        default = "NULL" if row.type == "handle" else default_text(row) if not row.type == "dtype" else row.default
        default = "" if row.required else default
        text = plain_names(row.doc + (f" 0: {row.zero}." if row.zero else ""))
        mark = " *Fixed.*" if row.fixed and table.name == "training" else ""
        flag = f"`--{row.flag}`" if row.flag else ""
        lines.append(f"| `{row.name}` | `{name_of(row.name)}` | {flag} | {cell(default)} | {bounds(row)} | {cell(text)}{mark} |")
    return lines


def flags(schema):
    rows = [row for name in ("training", "model") for row in schema.tables[name].flags]
    lines = []
    for group in GROUPS:
        members = [row for row in rows if row.group == group]
        if not members:
            continue
        lines += [f"### {group}", "", "| flag | also | value | meaning |", "|---|---|---|---|"]
        for row in members:
            also = " ".join(f"`{alias}`" for alias in row.alias)
            lines.append(f"| `--{row.flag}` | {also} | {cell(row.meta)} | {cell(help_text(schema, row))} |")
        lines.append("")
    return lines


def presets(schema):
    columns = ["vocabulary", "encoder_layers", "decoder_layers", "width", "ffn_width", "heads", "dropout", "ffn_dropout",
               "attention_dropout", "learning_rate", "warmup", "ema_alpha"]
    lines = ["| preset | " + " | ".join(f"`{name}`" for name in columns) + " |", "|---" * (len(columns) + 1) + "|"]
    for name, values in schema.presets.items():
        lm = not schema.has_encoder(values)
        cells = []
        for column in columns:
            row = schema.of_preset("model", column) or schema.of_preset("training", column)
            cells.append("" if lm and column == "encoder_layers" else plain(values.get(column, row.default)))
        lines.append(f"| `{name}` | " + " | ".join(cells) + " |")
    lines.append("")
    lines += [f"- `{name}`: {text}." for name, text in schema.preset_docs.items()]
    common = ", ".join(f"`{name}` {plain(value)}" for name, value in schema.common.items())
    return lines + ["", f"Every preset has {common}. Options that a preset does not name have their defaults."]


def page(schema, structs, results):
    decoding = schema.tables["decoding"]
    return (HEAD.rstrip().split("\n") + ["", "## Model", "", "C: `trafo_model_config`; Rust and Go: `ModelConfig`.", ""] +
            options(schema.tables["model"]) + ["", "## Training", "",
            "C: `trafo_trainer_options`; Rust and Go: `TrainerOptions`. In Rust `valid_metrics` sets", "`first_metric` as well.", ""] +
            options(schema.tables["training"]) + ["", "## Decoding", "",
            "C: `trafo_translate_options`; Rust and Go: `TranslateOptions`, with the options of sampling in a",
            "`Sampling`. The flags are those of `translate-train translate`.", ""] + options(decoding) + ["", "## Evaluation", "",
            "C: `trafo_evaluation_options`; Rust and Go: `EvaluationOptions`. The flags belong to `translate-train eval`.", ""] +
            options(schema.tables["evaluation"]) + ["", "## Presets", "",
            "`trafo_model_config_preset` and `trafo_trainer_options_preset` fill a preset.",
            "`translate-train train --task` takes its values as defaults.", ""] + presets(schema) + ["", *structs, "", *results, "", "## Flags of translate-train train", ""] + flags(schema))[:-1]
