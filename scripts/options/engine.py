"""The engine's enums and structs, and the list of their fields that checks, JSON and counting go over."""
from schema import UNLIMITED, described, listed, period, plain, plain_names, wrap

CPP = {"int": "int64_t", "seed": "uint64_t", "bytes": "int64_t", "real": "double", "flag": "bool", "period": "Period",
       "metrics": "std::vector<std::string>", "layers": "std::vector<int64_t>"}
UNIT = {"u": "updates", "t": "tokens", "e": "epochs"}


def initial(row):
    if row.enum:
        return f" = {row.enum.engine}::{row.default}"
    if row.type == "flag":
        return " = true" if row.default else " = false"
    if row.type == "period":
        value, unit = period(row.default)
        return f"{{{value}, PeriodUnit::{UNIT[unit]}}}"
    if row.type == "metrics":
        return "{" + ", ".join(f'"{metric}"' for metric in row.default) + "}"
    if row.type == "layers":
        return "{}"
    return f" = {plain(row.default)}"


def struct_fields(source, rows):
    """The file with the members of an engine's struct, which the struct includes."""
    lines = [f"// Written by scripts/generate_options.py from {source}: change that."]
    for row in rows:
        if row.section:
            lines += [""] * (len(lines) > 1) + wrap(f"--- {row.section} ---", 98, "  // ")
        kind = row.enum.engine if row.enum else CPP[row.type]
        member = f"  {kind} {short_name(row)}{initial(row)};"
        text = plain_names(row.doc).removeprefix("Sampling: ").removeprefix("With a shortlist: ")
        text = text[0].upper() + text[1:]
        if row.zero:
            text += f" 0: {plain_names(row.zero)}."
        if len(member) + 4 + len(text) <= 100:
            lines.append(f"{member}  // {text}")
        else:
            lines += wrap(text, 98, "  // ") + [member]
    return lines


def member(row):
    """Of DecodeOptions or another struct that the engine checks."""
    return row.name if row.part != "sampling" else "sampling.on" if row.name == "sampling" else f"sampling.{row.name}"


def path(row):
    """Of the struct that the C struct becomes: TranslateOptions has DecodeOptions and Shortlist inside."""
    if row.part == "shortlist":
        return f"shortlist.{short_name(row)}"
    return row.name if row.table != "decoding" or row.part == "text" else f"decode.{member(row)}"


def short_name(row):
    return row.name.removeprefix("shortlist_")


def real(value):
    return "kNoLimit" if value >= UNLIMITED else "-kNoLimit" if value <= -UNLIMITED else plain(value)


def field(row):
    parts = [f'.name = "{row.name}"']
    if row.json != row.name:
        parts.append(f'.key = "{row.json}"')
    if row.fixed:
        parts.append(".fixed = true")
    if row.phase:
        parts.append(".phase = true")
    if row.unless_default:
        parts.append(".unless_default = true")
    if row.range:
        parts.append(f".low = {real(row.range.low)}")
        parts.append(f".high = {real(row.range.high)}")
        if not row.range.low_inside:
            parts.append(".low_inside = false")
        if not row.range.high_inside:
            parts.append(".high_inside = false")
    if row.zero:
        parts.append(f'.zero = "{plain_names(row.zero)}"')
    return "{" + ", ".join(parts) + "}"


def enums_header(schema, path):
    """The enums of a header, with their names in files."""
    lines = ["// Written by scripts/generate_options.py from schema/enums.toml: change that.", "// clang-format off", "#pragma once",
             "", '#include "engine/core/enum_names.h"', "", "namespace trafo {"]
    for enum in schema.enums.values():
        if enum.header != path or enum.declared or not enum.engine:
            continue
        lines += ["", *wrap(f"{enum.doc} Values are part of the C ABI.", 98, "// "), f"enum class {enum.engine} : int32_t {{"]
        for number, value in enumerate(enum.values):
            lines += wrap(value["doc"], 98, "  // ") + [f"  {value['name']} = {number},"]
        lines += ["};", *names_of(enum)]
    return lines + ["", "}  // namespace trafo"]


def names_of(enum):
    names = ", ".join(f'"{value["text"]}"' for value in enum.engine_values)
    return ["template <>", f"struct EnumNames<{enum.engine}> {{",
            f"  static constexpr std::array<const char*, {len(enum.engine_values)}> names{{{names}}};", "};"]


def names_header(enum):
    """The names of an enum that is written by hand."""
    return ["// Written by scripts/generate_options.py from schema/enums.toml: change that.", "// clang-format off", "#pragma once", "",
            '#include "engine/core/enum_names.h"', f'#include "{enum.declared}"', "", "namespace trafo {", "", *names_of(enum), "", "}  // namespace trafo"]


def metrics(schema):
    """The rows of engine/metrics/registry.h."""
    lines = ["// Written by scripts/generate_options.py from schema/metrics.toml: change that.", "// clang-format off"]
    for metric in schema.metrics:
        row = f'"{metric.name}", "{metric.title}", {metric.bit}, {str(metric.lower).lower()}, {metric.needs}'
        lines.append(f"TRAFO_METRIC({row}, {metric.score})" if metric.score else f"TRAFO_MODEL_METRIC({row})")
    return lines


def rows_of(schema, enum, macro, columns):
    """A row for each value of an enum of which the engine has a registry. A column that a value leaves out is none."""
    lines = ["// Written by scripts/generate_options.py from schema/enums.toml: change that.", "// clang-format off"]
    for value in schema.enums[enum].values:
        cells = [value.get(column, "none") for column in columns]
        words = [str(cell).lower() if isinstance(cell, bool) else cell for cell in cells]
        lines.append(f"{macro}({', '.join([value['name'], *words])})")
    return lines


def architecture_rules(schema, table):
    """Checks that an option has its default in the architectures that do not have it."""
    called = {value["name"]: value["called"] for value in schema.enums["architecture"].values}

    def is_set(name):
        return f"c.{name} != usual.{name}"

    def refused(row):
        others = [f"c.architecture != Architecture::{name}" for name in row.architectures]
        others += [f"c.{name} == usual.{name}" for name in row.or_with]
        lacks = " && ".join(others)
        return f"{is_set(row.name)} && " + (f"({' || '.join([lacks, *map(is_set, row.without)])})" if row.without else lacks)

    rows = [row for row in table.engine_rows if row.architectures]
    lines = [f"// Written by scripts/generate_options.py from {table.source}: change that.", "// clang-format off"]
    features = [row for row in rows if row.feature]
    owners = listed([called[name] for name in dict.fromkeys(name for row in features for name in row.architectures)], "and")
    options = listed(list(dict.fromkeys(name for row in features for name in row.or_with)), "and")
    lines += ["  if (" + " ||\n      ".join(f"({refused(row)})" for row in features) + ")",
              '    refuse("architecture", concat(" ", architecture, " has none of '
              f'{listed([row.feature for row in features], "and")}, which are for {owners}, and some for {options}"));']
    for row in rows:
        if row.feature:
            continue
        reason = f'" is for {listed([called[name] for name in row.architectures], "or")}'
        reason += f' without {listed(row.without, "and")}"' if row.without else '"'
        if row.stack:
            reason = f'concat(" is of an {row.stack}, which a ", architecture, " does not have")'
        lines += [f"  if ({refused(row)})", f'    refuse("{row.name}", {reason});']
    return lines


def rule_includes(schema, ending):
    """Includes of a file in the folder of each optimizer."""
    lines = ["// Written by scripts/generate_options.py from schema/enums.toml: change that."]
    return lines + sorted(f'#include "engine/optim/{value["name"]}/{value["name"]}_rule{ending}"' for value in schema.enums["optimizer"].values)


def optimizer_options(training):
    """The options that not all optimizers have, with the optimizers that have them."""
    lines = ["// Written by scripts/generate_options.py from schema/enums.toml: change that.", "// clang-format off"]
    return lines + [f"TRAFO_OPTIMIZER_OPTION({', '.join([row.name, *(value['name'] for value in row.optimizers)])})"
                    for row in training.part("optimizers") if row.optimizers]


def fields_header(schema, table, header, rows, struct):
    """for_each_field of a struct."""
    guard = [f"// Written by scripts/generate_options.py from {table.source}: change that.", "// clang-format off", "#pragma once", "",
             '#include "engine/core/option_field.h"', f'#include "{header}"', "", "namespace trafo {", ""]
    lines = []
    lines += [f"// visit(OptionField, member) for every member of {struct}.", "template <class Options, class Visit>",
              f"void for_each_field_of_{table.name}(Options& o, Visit visit) {{"]
    for row in rows:
        lines.append(f"  visit(OptionField{field(row)}, o.{member(row)});")
    return guard + lines + ["}", "", "}  // namespace trafo"]
