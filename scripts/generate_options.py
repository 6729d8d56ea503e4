#!/usr/bin/env python3
"""Usage: generate_options.py [--check]

Writes everything that follows from the tables in schema: the engine's structs, the C headers, the ops of C, Rust and Go, the flags of
translate-train, the Rust builders, the Go structs and pages of docs. All files lie in folders named "generated", except that a Go package
is one folder: there the name ends in .generated.go or .generated.c, and trafo.h is the C headers in one file. Files that no table
asks for any more are removed. --check writes nothing and fails if something is stale.
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
import go_dlopen
import ops
import results
import rust
import structs
import structs_rust
from schema import ROOT, Schema


def targets(schema):
    """(path, lines)"""
    model, training, decoding, evaluation = (schema.tables[name] for name in ("model", "training", "decoding", "evaluation"))
    for path in dict.fromkeys(enum.header for enum in schema.enums.values()):
        yield path, engine.enums_header(schema, path)
    for enum in schema.enums.values():
        if enum.names:
            yield enum.names, engine.names_header(enum)
    yield "engine/models/generated/architectures.def", engine.rows_of(schema, "architecture", "TRAFO_ARCHITECTURE", ["has_encoder"])
    yield "engine/models/generated/model_config_rules.inc", engine.architecture_rules(schema, model)
    yield "engine/optim/generated/optimizers.def", engine.rows_of(schema, "optimizer", "TRAFO_OPTIMIZER", ["type", "whole"])
    for file, ending in (("rules", ".h"), ("rules_cpu", "-inl.h"), ("rules_cuda", ".cuh")):
        yield f"engine/optim/generated/{file}.inc", engine.rule_includes(schema, ending)
    yield "engine/optim/generated/optimizer_options.def", engine.optimizer_options(training)
    yield "engine/objective/generated/objectives.def", engine.rows_of(schema, "objective", "TRAFO_OBJECTIVE", ["other_model", "preferences", "answers_apart"])
    yield "engine/metrics/generated/metrics.def", engine.metrics(schema)
    drawn, searched = decoding.part("sampling"), [row for row in decoding.engine_rows if row.part is None]
    for table, path, rows in (
            (model, "engine/models/generated/model_config", model.engine_rows),
            (training, "engine/train/run/generated/train_options", [row for row in training.engine_rows if row.part is None]),
            (training, "engine/optim/generated/optimizer_options", [row for row in training.engine_rows if row.part == "optimizers"]),
            (training, "engine/objective/generated/objective_options", [row for row in training.engine_rows if row.part == "objectives"]),
            (decoding, "engine/decode/generated/draw_options", drawn),
            (decoding, "engine/decode/generated/decode_options", searched),
            (decoding, "engine/decode/generated/shortlist", [row for row in decoding.engine_rows if row.part == "shortlist"]),
            (decoding, "engine/decode/generated/translate_options", decoding.part("text")),
            (evaluation, "engine/metrics/generated/evaluation_options", evaluation.engine_rows)):
        yield f"{path}.inc", engine.struct_fields(table.source, rows)
    checked = [row for row in decoding.engine_rows if row.part in (None, "sampling")]
    for table, path, header, rows, struct in (
            (model, "engine/models/generated/model_config", "engine/models/model_config.h", model.engine_rows, model.engine),
            (training, "engine/train/run/generated/train_options", "engine/train/run/options.h", training.engine_rows, training.engine),
            (decoding, "engine/decode/generated/decode_options", "engine/decode/options.h", checked, "DecodeOptions"),
            (evaluation, "engine/metrics/generated/evaluation_options", "engine/metrics/evaluation.h", evaluation.engine_rows, evaluation.engine)):
        yield f"{path}_fields.h", engine.fields_header(schema, table, header, rows, struct)
    for table in schema.tables.values():
        yield f"capi/include/trafo/generated/{table.c.removeprefix('trafo_')}.h", c_abi.header(schema, table)
    others = structs.read(schema)
    for struct in others:
        yield f"capi/include/trafo/generated/{struct.file}.h", structs.header(struct)
        if struct.rust:
            yield f"bindings/rust/trafo/src/generated/{struct.file}.rs", rust.file("schema/structs.toml", structs_rust.source(struct))
    filled = results.read(schema)
    for result in filled:
        yield f"capi/include/trafo/generated/{result.file}.h", results.header(result)
    yield "capi/src/generated/results.h", results.glue(filled)
    yield "bindings/rust/trafo/src/generated/results.rs", results.rust_source(schema, filled)
    yield "bindings/go/trafo/results.generated.go", results.go_source(filled)
    yield "capi/src/generated/defaults.h", structs.declarations(others, schema.tables.values())
    yield "capi/src/generated/defaults.cc", structs.source(others, schema.tables.values())
    rows = ops.read(schema)
    yield "capi/include/trafo/generated/constants.h", c_abi.constants_header(schema)
    yield "bindings/rust/trafo/src/generated/enums.rs", rust.file("schema/enums.toml", rust.library(schema))
    yield "capi/include/trafo/generated/ops.h", ops.header(schema, rows)
    yield "capi/src/generated/ops.cc", ops.glue(rows)
    yield "bindings/rust/trafo/src/generated/ops.rs", ops.rust_source(schema, rows)
    yield "bindings/go/trafo/ops.generated.go", ops.go_source(schema, rows)
    yield "docs/reference/generated/ops.md", ops.page(rows)
    yield "capi/src/generated/options.cc", c_abi.source(schema)
    yield "tests/capi/generated/wrong_options.h", c_abi.wrong_options([model, training, decoding, evaluation])
    yield "apps/translate-train/settings/generated/settings.cc", cli.source(schema)
    yield "apps/translate-train/settings/generated/settings.h", cli.header(schema)
    yield "apps/translate-train/settings/generated/choices.h", cli.choices_header(schema)
    for table, name, emit in ((model, "model_config", rust.model), (training, "trainer_options", rust.training),
                              (decoding, "translation", rust.decoding), (evaluation, "evaluation", rust.evaluation)):
        yield f"bindings/rust/trafo/src/generated/{name}.rs", rust.file(table.source, emit(schema))
    yield "bindings/go/trafo/enums.generated.go", go.file("schema/enums.toml and metrics.toml", go.enums(schema))
    for table, name, emit in ((model, "model_config", go.options), (training, "trainer_options", go.options),
                              (decoding, "translation", go.decoding), (evaluation, "evaluation", go.evaluation)):
        yield f"bindings/go/trafo/{name}.generated.go", go.file(table.source, emit(table))
    yield "docs/reference/generated/options.md", docs.page(schema, structs.page(others), results.page(filled))


def whole_header(texts):
    """trafo.h with the headers that it includes in it: a Go package takes no header from another folder."""
    folder, seen = "capi/include", set()

    def lines_of(name):
        seen.add(name)
        text = texts.get(f"{folder}/{name}") or (ROOT / folder / name).read_text()
        for line in text.splitlines():
            included = re.fullmatch(r'#include "(.+)"', line)
            if not included:
                yield line
            elif included[1] not in seen:
                yield from lines_of(included[1])

    return "\n".join(["/* Made of capi/include/trafo.h by scripts/generate_options.py. */", *lines_of("trafo.h"), ""])


def main():
    check = sys.argv[1:] == ["--check"]
    if sys.argv[1:] and not check:
        sys.exit(__doc__)
    schema = Schema()
    texts = {path: "".join(line + "\n" for line in lines) for path, lines in targets(schema)}
    texts["bindings/go/trafo/trafo.h"] = whole_header(texts)
    texts["bindings/go/trafo/dlopen.generated.c"] = "\n".join([*go_dlopen.source(schema, texts["bindings/go/trafo/trafo.h"]), ""])
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
            file.parent.mkdir(exist_ok=True)
            file.write_text(text)
            print(f"wrote {path}")
    for folder in sorted({(ROOT / path).parent for path in texts}):
        for file in sorted(folder.glob("*generated*") if folder.name != "generated" else folder.iterdir()):
            path = file.relative_to(ROOT).as_posix()
            if file.is_file() and path not in texts and "scripts/generate_options.py" in file.read_text()[:200]:
                stale += 1
                print(f"{path} is written no more" if check else f"removed {path}")
                if not check:
                    file.unlink()
    if check and stale:
        sys.exit(f"{stale} files are stale: run scripts/generate_options.py and commit what it writes")
    if check:
        print(f"options: {len(texts)} generated files are up to date")


if __name__ == "__main__":
    main()
