#!/usr/bin/env python3
"""Usage: generate_options.py [--check]

Writes everything that follows from the tables in engine/options: the engine's structs, the C header's, the flags of translate-train,
the Rust builders, the Go structs and docs/reference/options.md. Files whose name has "generated" are written whole; in the others what stands
between "options: begin NAME" and "options: end" is replaced. --check writes nothing and fails if something is stale.
"""
import difflib
import pathlib
import re
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent / "options"))

import c_abi
import cli
import docs
import engine
import go
import rust
from schema import ROOT, Schema


def targets(schema):
    """(path, region or None, lines)"""
    model, training, decoding, evaluation = (schema.tables[name] for name in ("model", "training", "decoding", "evaluation"))
    header, translation = "capi/include/trafo_models.h", "capi/include/trafo_translation.h"
    for path in dict.fromkeys(enum.header for enum in schema.enums.values()):
        yield path, None, engine.enums_header(schema, path)
    yield "engine/models/architectures.generated.def", None, engine.architectures(schema)
    yield "engine/metrics/metrics.generated.def", None, engine.metrics(schema)
    yield header, "metrics", c_abi.metrics(schema)
    yield "engine/models/model_config.h", "ModelConfig", engine.struct_fields(model.engine_rows)
    yield "engine/train/run/options.h", "TrainOptions", engine.struct_fields(training.engine_rows)
    yield ("engine/models/model_config_fields.generated.h", None,
           engine.fields_header(schema, model, "engine/models/model_config.h", model.engine_rows, model.engine))
    yield ("engine/train/run/train_options_fields.generated.h", None,
           engine.fields_header(schema, training, "engine/train/run/options.h", training.engine_rows, training.engine))
    rows = [row for row in decoding.engine_rows if row.part in (None, "sampling")]
    yield "engine/decode/options.h", "DrawOptions", engine.struct_fields(decoding.part("sampling"))
    yield "engine/decode/options.h", "DecodeOptions", engine.struct_fields([row for row in rows if row.part is None])
    yield ("engine/decode/translator.h", "Shortlist",
           engine.struct_fields([row for row in decoding.engine_rows if row.part == "shortlist"]))
    yield "engine/decode/translator.h", "TranslateOptions", engine.struct_fields(decoding.part("text"))
    yield ("engine/decode/decode_options_fields.generated.h", None,
           engine.fields_header(schema, decoding, "engine/decode/options.h", rows, "DecodeOptions"))
    yield "engine/metrics/evaluation.h", "EvaluationOptions", engine.struct_fields(evaluation.engine_rows)
    yield ("engine/metrics/evaluation_options_fields.generated.h", None,
           engine.fields_header(schema, evaluation, "engine/metrics/evaluation.h", evaluation.engine_rows, evaluation.engine))
    for table, path in ((model, header), (training, header), (evaluation, translation)):
        constants = [c_abi.constants(enum) for enum in schema.enums_of(table) if not enum.shared]
        joined = [line for block in constants for line in [*block, ""]][:-1]
        yield path, f"constants of {table.c}", joined
        yield path, table.c, c_abi.struct_fields(table)
    yield translation, decoding.c, c_abi.struct_fields(decoding)
    yield "capi/src/options.generated.cc", None, c_abi.source(schema)
    yield "tests/capi/wrong_options.generated.h", None, c_abi.wrong_options([model, training, decoding, evaluation])
    yield "apps/translate-train/settings/settings.generated.cc", None, cli.source(schema)
    yield "apps/translate-train/settings/settings.generated.h", None, cli.header(schema)
    yield "bindings/rust/trafo/src/model_config.generated.rs", None, rust.file(model.source, rust.model(schema))
    yield "bindings/rust/trafo/src/trainer_options.generated.rs", None, rust.file(training.source, rust.training(schema))
    yield "bindings/rust/trafo/src/translation.generated.rs", None, rust.file(decoding.source, rust.decoding(schema))
    yield "bindings/rust/trafo/src/evaluation.generated.rs", None, rust.file(evaluation.source, rust.evaluation(schema))
    yield "bindings/go/trafo/model.go", "ModelConfig", go.struct_fields(model, model.c_rows)
    yield "bindings/go/trafo/trainer.go", "TrainerOptions", go.struct_fields(training, training.c_rows)
    yield "bindings/go/trafo/translate.go", "TranslateOptions", go.struct_fields(decoding, go.translate_rows(decoding))
    yield "bindings/go/trafo/translate.go", "Sampling", go.struct_fields(decoding, decoding.part("sampling"))
    yield "bindings/go/trafo/metrics.go", "EvaluationOptions", go.struct_fields(evaluation, go.without_handles(evaluation))
    yield "bindings/go/trafo/options.generated.go", None, go.source(schema)
    yield "docs/reference/options.md", None, docs.page(schema)


def replaced(path, text, region, lines):
    pattern = re.compile(rf"(^[^\n]*options: begin {re.escape(region)}(?: [^\n]*)?\n).*?(^[^\n]*options: end[^\n]*$)", re.S | re.M)
    if not pattern.search(text):
        sys.exit(f"{path} has no lines 'options: begin {region}' and 'options: end'")
    return pattern.sub(lambda match: match[1] + "".join(line + "\n" for line in lines) + match[2], text)


def main():
    check = sys.argv[1:] == ["--check"]
    if sys.argv[1:] and not check:
        sys.exit(__doc__)
    texts = {}
    for path, region, lines in targets(Schema()):
        if region is None:
            texts[path] = "".join(line + "\n" for line in lines)
        else:
            texts[path] = replaced(path, texts.get(path) or (ROOT / path).read_text(), region, lines)
    stale = 0
    for path, text in texts.items():
        file = ROOT / path
        old = file.read_text() if file.exists() else ""
        if old == text:
            continue
        stale += 1
        if check:
            sys.stdout.writelines(difflib.unified_diff(old.splitlines(True), text.splitlines(True), path, "generated"))
        else:
            file.write_text(text)
            print(f"wrote {path}")
    if check and stale:
        sys.exit(f"{stale} files are stale: run scripts/generate_options.py and commit what it writes")
    if check:
        print(f"options: {len(texts)} generated files are up to date")


if __name__ == "__main__":
    main()
