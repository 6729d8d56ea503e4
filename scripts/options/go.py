"""The structs of the Go package and their conversions."""
import re

from schema import metrics_named, camel, described, default_text, wrap

INITIALS = {"Ffn": "FFN", "Kv": "KV"}
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


INTEGER = {"model": "int", "training": "int64", "decoding": "int64", "evaluation": "int64"}
TYPES = {"seed": "uint64", "bytes": "int64", "real": "float64", "flag": "bool", "period": "Period", "metrics": "Metric",
         "metric": "Metric", "layers": "[TiedLayers]uint8", "dtype": "DType"}
C = {"int": "int64_t", "seed": "uint64_t", "bytes": "int64_t", "real": "double", "metrics": "int32_t", "metric": "int32_t",
     "dtype": "int32_t"}


def type_of(table, row):
    return row.enum.go if row.enum else INTEGER[table.name] if row.type == "int" else TYPES[row.type]


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
    own = {place: [line for member in spec.get(place, []) for line in [*doc(member["doc"], "\t"), f"\t{member['name']} {member['type']}"]]
           for place in ("first", "last")}
    lines = doc(spec["doc"], "") + [f"type {name} struct {{"] + own["first"] + [""] * bool(own["first"]) + struct_fields(table, rows)
    lines += [""] * bool(own["last"]) + own["last"]
    lines += ["", "\texplicit bool // made by the library: fields that are zero are meant", "}", ""]
    return lines + conversions(table, name, rows)


def struct_fields(table, rows):
    lines = []
    for row in rows:
        if row.section:
            lines += [""] * bool(lines) + doc(row.section, "\t") + [""]
        text = described(row, default(row), name_of).removeprefix("Sampling: ")
        text = text[0].upper() + text[1:]
        lines += doc(text, "\t") + [f"\t{name_of(row.name)} {type_of(table, row)}"]
    return lines


def shift(table, row):
    """1 for an enum whose value 0 is not the default: its Go constants are C's plus 1, so that 0 can mean the default."""
    return 1 if row.enum and row.enum.values[0]["name"] != row.default else 0


def shifts(schema):
    """The enums with a shift, by their Go types."""
    return ({row.enum.go for table in schema.tables.values() for row in table.c_rows if shift(table, row)} |
            {enum.go for enum in schema.enums.values() if enum.default not in (None, enum.values[0]["name"])})


def enum_type(enum, shifted):
    first = enum.doc[0].lower() + enum.doc[1:]
    lines = doc(f"{enum.go}: {first}", "") + [f"type {enum.go} {enum.go_type}", "", "const ("]
    for value in enum.values:
        lines += doc(value["doc"], "\t") + [f"\t{value['go']} {enum.go} = C.{value['c']}{' + 1' if shifted else ''}"]
    lines += [")", ""]
    if enum.go_names:
        texts = ", ".join(f'{value["go"]}: "{value["text"]}"' for value in enum.values)
        name = f"{enum.go[0].lower()}{enum.go[1:]}Names"
        lines += [f"var {name} = map[{enum.go}]string{{{texts}}}", "", '// String is the name; "unknown" of other numbers.',
                  f"func (value {enum.go}) String() string {{", f"\tif name, ok := {name}[value]; ok {{", "\t\treturn name", "\t}",
                  '\treturn "unknown"', "}", ""]
    return lines


def conversions(table, go, rows):
    """fromC marks the struct as explicit; toC of one that is not leaves the default where a field has its zero value."""
    lines = [f"func (o *{go}) fromC(c *C.{table.c}) {{", "\to.explicit = true"]
    for row in rows:
        field, value = name_of(row.name), f"c.{row.name}"
        if row.type == "layers":
            lines.append(f"\to.{field} = layersFromC(&{value})")
            continue
        if row.type == "flag":
            value += " != 0"
        elif row.type == "period":
            value = f"Every(int64({value}.value), Unit({value}.unit))"
        else:
            value = f"{type_of(table, row)}({value})" + " + 1" * shift(table, row)
        lines.append(f"\to.{field} = {value}")
    lines += ["}", "", f"func (o *{go}) toC(c *C.{table.c}) {{"]
    for row in rows:
        value = f"o.{name_of(row.name)}"
        if row.type == "layers":
            lines += [f"\tif o.explicit || {value} != [TiedLayers]uint8{{}} {{", f"\t\tc.{row.name} = layersToC(&{value})", "\t}"]
            continue
        given = value if row.type == "flag" else f"{value} != (Period{{}})" if row.type == "period" else f"{value} != 0"
        if row.type == "flag":
            value = f"cBool({value})"
        elif row.type == "period":
            value = f"C.trafo_period{{value: C.int64_t({value}.Value), unit: C.int32_t({value}.Unit)}}"
        else:
            value = f"C.{'int32_t' if row.enum else C[row.type]}({value}{' - 1' * shift(table, row)})"
        lines += [f"\tif o.explicit || {given} {{", f"\t\tc.{row.name} = {value}", "\t}"]
    return lines + ["}", ""]


def file(source, lines):
    return [f"// Code generated by scripts/generate_options.py from {source}. DO NOT EDIT.", "", "package trafo", "",
            '// #include "trafo.h"', 'import "C"', "", *lines[:-1]]


def enums(schema):
    lines = ["// The metrics.", "const ("]
    for metric in schema.metrics:
        lines += doc(metric.doc, "\t") + [f"\t{metric.go} Metric = C.{metric.c}"]
    names = ", ".join(f'{metric.go}: "{metric.name}"' for metric in schema.metrics)
    lines += [")", "", f"var metricNames = map[Metric]string{{{names}}}", ""]
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
