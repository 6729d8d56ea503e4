"""The structs of the Go package and their conversions."""
import re

from schema import metrics_named, camel, described, default_text, words_of, wrap

INITIALS = {"Bleu": "BLEU", "Bos": "BOS", "Chrf": "ChrF", "Dtype": "DType", "Ema": "EMA", "Eos": "EOS", "Eta": "ETA", "Ffn": "FFN", "Fp8": "FP8", "Gemm": "GEMM", "Kv": "KV",
            "Nll": "NLL", "Qkv": "QKV", "Tf32": "TF32"}
WIDTH = 110


def name_of(name):
    text = camel(name)
    for word, initials in INITIALS.items():
        text = re.sub(rf"{word}(?=[A-Z]|$)", initials, text)
    return text


def doc(text, indent):
    return wrap(text, WIDTH, f"{indent}// ")


def translate_rows(decoding):
    """The fields of TranslateOptions: the fields of sampling are a struct, the shortlist a handle."""
    return [row for row in decoding.c_rows if row.part != "sampling" and row.type != "handle"]


def without_handles(table):
    return [row for row in table.c_rows if row.type != "handle"]


TYPES = {"int": "int", "seed": "uint64", "bytes": "int64", "real": "float64", "flag": "bool", "period": "Period", "metrics": "Metric",
         "metric": "Metric", "layers": "[TiedLayers]uint8", "dtype": "DType"}
C = {"int": "int64_t", "seed": "uint64_t", "bytes": "int64_t", "real": "double", "metrics": "int32_t", "metric": "int32_t",
     "dtype": "int32_t"}


def is_optional(row):
    """Whether zero is a choice beside the default: zero cannot mean the default then."""
    if row.type == "flag":
        return row.default
    return row.type in ("int", "seed", "bytes", "real") and bool(row.default) and (row.type == "seed" or row.zero or row.range.contains(0))


def value_type(row):
    return row.enum.go if row.enum else TYPES[row.type]


def type_of(row):
    return f"Optional[{value_type(row)}]" if is_optional(row) else value_type(row)


def default(row):
    if row.type == "metrics":
        return " | ".join(metric.go for metric in metrics_named(row.default))
    if row.type == "metric":
        return metrics_named([row.default])[0].go
    if row.type == "dtype":
        return camel(row.default)
    return default_text(row, lambda enum, value: enum.value(value)["go"])


def struct_type(table, name, rows):
    """A struct with its conversions. Members that Go alone has come first or last."""
    spec = table.go_structs[name]
    own = {place: [line for member in spec.get(place, [])
                   for line in [*doc(member["doc"], "\t"), f"\t{member['name']} {member['type']} `json:\"{member['json']}\"`"]]
           for place in ("first", "last")}
    lines = doc(spec["doc"], "") + [f"type {name} struct {{"] + own["first"] + [""] * bool(own["first"]) + struct_fields(rows)
    return lines + [""] * bool(own["last"]) + own["last"] + ["}", ""] + conversions(table, name, rows)


def struct_fields(rows):
    lines = []
    for row in rows:
        if row.section:
            lines += [""] * bool(lines) + doc(row.section, "\t") + [""]
        text = described(row, default(row), name_of).removeprefix("Sampling: ")
        text = text[0].upper() + text[1:]
        lines += doc(text, "\t") + [f"\t{name_of(row.name)} {type_of(row)} `json:\"{row.name},omitzero\"`"]
    return lines


def shift(row):
    """1 for an enum whose value 0 is not the default: its Go constants are C's plus 1, so that 0 can mean the default."""
    return 1 if row.enum and row.enum.values[0]["name"] != row.default else 0


def shifts(schema):
    """The enums with a shift, by their Go types."""
    return ({row.enum.go for table in schema.tables.values() for row in table.c_rows if shift(row)} |
            {enum.go for enum in schema.enums.values() if enum.go_from_one or enum.default not in (None, enum.values[0]["name"])})


def enum_type(enum, shifted):
    first = enum.doc[0].lower() + enum.doc[1:]
    lines = doc(f"{enum.go}: {first}", "") + [f"type {enum.go} {enum.go_type}", "", "const ("]
    for value in enum.values:
        lines += doc(value["doc"], "\t") + [f"\t{value['go']} {enum.go} = C.{value['c']}{' + 1' if shifted else ''}"]
    lines += [")", ""]
    if not enum.words:
        return lines
    table = f"wordsOf{enum.go}"
    lines += [f"var {table} = words[{enum.go}]{{"] + ['\t{0, []string{""}},'] * shifted
    lines += [f"\t{{{value['go']}, []string{{" + ", ".join(f'"{word}"' for word in words_of(value)) + "}}," for value in enum.values]
    return lines + ["}", "", '// String gives the name; "unknown" of other numbers.',
                    *method(f"(value {enum.go}) String() string", f"{table}.name(value)"),
                    "// MarshalText gives the name.",
                    *method(f"(value {enum.go}) MarshalText() ([]byte, error)", f"{table}.marshal(value)"),
                    "// UnmarshalText reads a name, also one that only the command line has.",
                    *method(f"(value *{enum.go}) UnmarshalText(text []byte) error", f"{table}.unmarshal(value, text)")]


def method(signature, result):
    return [f"func {signature} {{", f"\treturn {result}", "}", ""]


def from_c(row):
    """The Go value of a C member."""
    value = f"c.{row.name}"
    if row.type == "layers":
        return f"layersFromC(&{value})"
    if row.type == "flag":
        return f"{value} != 0"
    if row.type == "period":
        return f"Every(int64({value}.value), Unit({value}.unit)+1)"
    return f"{value_type(row)}({value})" + " + 1" * shift(row)


def to_c(row, value):
    if row.type == "layers":
        return f"layersToC(&{value})"
    if row.type == "flag":
        return f"cBool({value})"
    if row.type == "period":
        return f"C.trafo_period{{value: C.int64_t({value}.Value), unit: C.int32_t({value}.Unit) - 1}}"
    return f"C.{'int32_t' if row.enum else C[row.type]}({value}{' - 1' * shift(row)})"


ZEROS = {"layers": "[TiedLayers]uint8{}", "period": "(Period{})"}


def conversions(table, go, rows):
    """toC leaves the default where a field has its zero value."""
    lines = [f"func (o *{go}) fromC(c *C.{table.c}) {{"]
    for row in rows:
        field, value = name_of(row.name), from_c(row)
        if row.type == "metric":  # zero follows the set, which the program may change
            lines += [f"\tif first := {value}; first != o.ValidMetrics.first() {{", f"\t\to.{field} = first", "\t}"]
            continue
        lines.append(f"\to.{field} = " + (f"Some({value})" if is_optional(row) else value))
    lines += ["}", "", f"func (o *{go}) toC(c *C.{table.c}) {{"]
    for row in rows:
        value = f"o.{name_of(row.name)}"
        if is_optional(row):
            lines += [f"\tif value, given := {value}.Get(); given {{", f"\t\tc.{row.name} = {to_c(row, 'value')}", "\t}"]
            continue
        given = value if row.type == "flag" else f"{value} != {ZEROS.get(row.type, '0')}"
        lines += [f"\tif {given} {{", f"\t\tc.{row.name} = {to_c(row, value)}", "\t}"]
        if row.type == "metric":
            lines[-1] = f"\t}} else if o.ValidMetrics != 0 {{"
            lines += [f"\t\tc.{row.name} = C.int32_t(o.ValidMetrics.first())", "\t}"]
    return lines + ["}", ""]


def file(source, lines):
    return [f"// Code generated by scripts/generate_options.py from {source}. DO NOT EDIT.", "", "package trafo", "",
            '// #include "trafo.h"', 'import "C"', "", *lines[:-1]]


def enums(schema):
    lines = ["// The metrics.", "const ("]
    for metric in schema.metrics:
        lines += doc(metric.doc, "\t") + [f"\t{metric.go} Metric = C.{metric.c}"]
    lines += [")", "", "var wordsOfMetric = words[Metric]{"]
    lines += [f'\t{{{metric.go}, []string{{"{metric.name}"}}}},' for metric in schema.metrics] + ["}", ""]
    shifted = shifts(schema)
    for enum in schema.enums.values():
        if enum.go and enum.with_table != "ops":
            lines += enum_type(enum, enum.go in shifted)
    return lines


def options(table):
    return struct_type(table, table.go, table.c_rows)


def decoding(table):
    return struct_type(table, table.go, translate_rows(table)) + struct_type(table, "Sampling", table.part("sampling"))


def evaluation(table):
    return struct_type(table, table.go, without_handles(table))
