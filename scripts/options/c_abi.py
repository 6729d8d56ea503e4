"""The structs and constants of the C header, their defaults, and how they become the engine's."""
from engine import path as engine_path
from schema import metrics_named, described, default_text, limit, plain, wrap

WIDTH = 128
C = {"int": "int64_t", "seed": "uint64_t", "bytes": "int64_t", "real": "double", "flag": "int32_t", "period": "trafo_period",
     "metrics": "int32_t", "metric": "int32_t", "layers": "uint8_t", "dtype": "int32_t"}
NOTES = {"metrics": "Bits TRAFO_METRIC_*.", "metric": "One bit TRAFO_METRIC_*.", "dtype": "TRAFO_FLOAT32 and so on. Not part of files."}


def metrics(schema):
    """The bits of metrics."""
    rows = [(f"#define {metric.c} {metric.bit}", metric.doc) for metric in sorted(schema.metrics, key=lambda metric: metric.bit)]
    count = f"#define TRAFO_METRIC_COUNT {len(rows)} /* metrics that this release knows */"
    return [f"{line} /* bit: {words} */" for line, words in rows] + [count]


def constants(enum):
    width = max(len(value["c"]) for value in enum.all_values)
    lines = [f"/* {enum.doc} */"]
    for value in enum.all_values:
        line = f"#define {value['c']:<{width}} {value['number']}"
        lines += [f"{line} /* {value['doc']} */"] if len(line) + len(value["doc"]) + 7 <= WIDTH else (
            wrap(value["doc"] + " */", WIDTH, "/* ", " * ") + [line])
    return lines


def constants_header(schema):
    guard = "TRAFO_GENERATED_CONSTANTS_H"
    lines = ["/* Written by scripts/generate_options.py from schema/enums.toml: change that. Include trafo.h. */", f"#ifndef {guard}",
             f"#define {guard}"]
    for enum in schema.enums.values():
        lines += [""] + constants(enum) if enum.with_table in ("ops", "library", "results") else []
    return lines + ["", f"#endif /* {guard} */"]


def default(row):
    if row.type == "flag":
        return "1" if row.default else "0"
    if row.type == "metrics":
        return " | ".join(metric.c for metric in metrics_named(row.default))
    if row.type == "metric":
        return metrics_named([row.default])[0].c
    if row.type == "dtype":
        return "TRAFO_" + row.default.upper()
    return default_text(row, lambda enum, value: enum.value(value)["c"])


def text(row):
    words = described(row, default(row), lambda name: name)
    if row.type == "flag":
        return words.replace("Whether", "1:", 1)
    if row.enum:
        words = f"{row.enum.c}_*. {words}" if row.enum.c != "TRAFO" else words
    if row.type == "layers":
        words += " 0 ends the list."
    return f"{NOTES[row.type]} {words}" if row.type in ("metrics", "metric") else words


def member(row):
    if row.type == "handle":
        return f"const trafo_{row.name} *{row.name}"
    length = f"[{limit('kTiedLayers')}]" if row.type == "layers" else ""
    return f"{'int32_t' if row.enum else C[row.type]} {row.name}{length}"


def is_small(row):
    return row.enum is not None or C.get(row.type) == "int32_t"


def has_holes(rows):
    small = 0
    for row in rows:
        if is_small(row):
            small += 1
        elif small % 2:
            return True
    return False


def ordered(table):
    """The rows as the C struct has them. Where fields of 4 bytes do not come in pairs, the ones of a section are at its end."""
    rows = table.c_rows
    if not has_holes(rows):
        return rows
    result, section = [], []
    for row in [*rows, None]:
        if row is None or row.section:
            result += sorted(section, key=is_small)
            section = []
        section.append(row)
    return result


def reserved(table):
    """Names of the fields that fill the struct up, by the row they follow: no struct has implicit padding."""
    rows, holes, small = ordered(table), [], 0
    for before, row in zip([None, *rows], [*rows, None]):
        if row is not None and is_small(row):
            small += 1
        else:
            if small % 2:
                holes.append(before.name)
            small = 0
    return {name: f"reserved{i + 1}" if i else "reserved" for i, name in enumerate(holes)}


def header(schema, table):
    """The public header of a table: the constants of its enums, and the struct."""
    guard = f"TRAFO_GENERATED_{table.c.removeprefix('trafo_').upper()}_H"
    lines = [f"/* Written by scripts/generate_options.py from {table.source}: change that. Include trafo.h. */", f"#ifndef {guard}", f"#define {guard}"]
    for enum in schema.enums_of(table):
        lines += [""] + constants(enum)
    if table.name == "training":
        lines += [""] + metrics(schema)
    return lines + ["", f"typedef struct {table.c} {{", *struct_fields(table), f"}} {table.c};", "", *init_declaration(table.c), "", f"#endif /* {guard} */"]


def init_declaration(struct):
    head, name = f"TRAFO_API TRAFO_MUST_USE trafo_error *{struct}_init(", struct.rpartition("_")[2]
    one = f"{head}{struct} *{name}, size_t struct_size);"
    return ["/* Fills in the defaults. struct_size is the size of the caller's struct. since 0.1 */",
            *([one] if len(one) <= WIDTH else [f"{head}{struct} *{name},", " " * len(head) + "size_t struct_size);"])]


def struct_fields(table):
    holes, section_of, section = reserved(table), {}, None
    for row in table.c_rows:
        section = row.section or section
        section_of[row.name] = section
    lines, section = ["  size_t struct_size;"], None
    for row in ordered(table):
        if section_of[row.name] != section:
            section = section_of[row.name]
            lines += wrap(f"---- {section} ---- */", WIDTH, "  /* ", "   * ")
        line, words = f"  {member(row)};", text(row)
        if len(line) + len(words) + 7 <= WIDTH:
            lines.append(f"{line} /* {words} */")
        else:
            lines += wrap(words + " */", WIDTH, "  /* ", "   * ") + [line]
        if row.name in holes:
            lines.append(f"  int32_t {holes[row.name]}; /* 0 */")
    return lines


def literal(row, value):
    if row.enum:
        return row.enum.value(value)["c"]
    if row.type == "flag":
        return "1" if value else "0"
    return repr(value)


def to_c(table):
    lines = [f"{table.c} trafo::capi::to_c(const {table.engine}& o) {{", f"  {table.c} c{{}};", "  c.struct_size = sizeof c;"]
    for row in table.c_rows:
        if row.only == "bindings":
            if row.type == "dtype":
                lines.append(f"  c.{row.name} = TRAFO_{row.default.upper()};")
            elif row.type == "metric":
                lines.append(f"  c.{row.name} = first_bit(o.valid_metrics);")
            elif row.type != "handle":
                lines.append(f"  c.{row.name} = {literal(row, row.default)};")
            continue
        value = f"o.{engine_path(row)}"
        if row.enum:
            value = f"static_cast<int32_t>({value})"
        elif row.type == "flag":
            value = f"{value} ? 1 : 0"
        elif row.type == "period":
            value = f"to_c({value})"
        elif row.type == "metrics":
            value = f"metric_bits({value})"
        elif row.type == "layers":
            lines.append(f"  layers_to_c({value}, c.{row.name});")
            continue
        lines.append(f"  c.{row.name} = {value};")
    return lines + ["  return c;", "}"]


def from_c(table):
    lines = [f"{table.engine} trafo::capi::from_c(const Call& call, const {table.c}& c) {{"]
    for name in reserved(table).values():
        lines.append(f"  call.reserved(c.{name}, \"{name}\");")
    lines.append(f"  {table.engine} o;")
    for row in table.c_rows:
        if row.only == "bindings":
            continue
        value = f"c.{row.name}"
        if row.enum:
            value = f"static_cast<{row.enum.engine}>({value})"
        elif row.type == "flag":
            value = f'call.flag({value}, "{row.name}")'
        elif row.type == "period":
            value = f'to_period(call, {value}, "{row.name}")'
        elif row.type == "metrics":
            value = f"to_metrics(call, {value}, c.first_metric)"
        elif row.type == "layers":
            value = f'to_layers(call, {value}, "{row.name}")'
        lines.append(f"  o.{engine_path(row)} = {value};")
    return lines + ["  return o;", "}"]


def wrong_value(row):
    """(lvalue, value that is refused), or None where every value is allowed."""
    if row.enum or row.type == "dtype":
        return row.name, "99"
    if row.type == "layers":
        return f"{row.name}[1]", "1"  # behind the 0 that ends the list
    if row.type == "period":
        return f"{row.name}.value", "-1"
    real = plain(row.range.high + 1) if row.range and row.range.contains(-1) else "-1"
    values = {"int": "-1", "bytes": "-1", "real": real, "flag": "2", "metrics": "1 << 20", "metric": "1 << 20"}
    return (row.name, values[row.type]) if row.type in values and not (row.range and row.range.text == "any") else None


def wrong_options(tables):
    """For tests/capi/c_api_fields.c: each option with a value that must be refused in its name."""
    lines = ["// Written by scripts/generate_options.py from schema/*.toml: change those.", "// clang-format off"]
    for table in tables:
        lines += ["", f"#define WRONG_{table.c.upper()}(wrong) \\"]
        for row in table.c_rows:
            found = wrong_value(row)
            if found:
                lines.append(f'  wrong("{row.name}", {found[0]}, {found[1]}) \\')
                if row.type == "real":
                    lines.append(f'  wrong("{row.name}", {found[0]}, NAN) \\')
        lines.append("  /* the end */")
    return lines


def source(schema):
    lines = ["// Written by scripts/generate_options.py from schema/*.toml: change those.", "// clang-format off",
             '#include "capi/src/options.h"', "", '#include "capi/src/option_types.h"',
             *(f'#include "{path}"' for path in sorted({enum.declared or enum.header for enum in schema.enums.values() if enum.engine})), "", "using namespace trafo;",
             "using namespace trafo::capi;", ""]
    for enum in schema.enums.values():
        for value in enum.engine_values if enum.engine else []:
            lines.append(f"static_assert(static_cast<int32_t>({enum.engine}::{value['engine']}) == {value['c']});")
    for table in schema.tables.values():
        lines += [""] + to_c(table) + [""] + from_c(table)
    lines += ["", "namespace {", "", "constexpr Preset kPresets[] = {"]
    for name, values in schema.presets.items():
        lines.append(f'  {{"{name}",')
        for table in ("model", "training"):
            rows = [(schema.of_preset(table, option), value) for option, value in values.items()]
            lines.append(f"   []({schema.tables[table].c}& c) {{")
            lines += [f"     c.{row.name} = {literal(row, value)};" for row, value in rows if row]
            lines.append("   }," if table == "model" else "   }},")
    return lines + ["};", "", "}  // namespace", "", "std::span<const Preset> trafo::capi::presets() { return kPresets; }"]
