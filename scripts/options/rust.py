"""The builders of the Rust crate: their enums and setters. The files are taken in with include!."""
from schema import metrics_named, described, default_text, period, words_of, wrap

DOC = 120


def doc(text, indent):
    return wrap(text, DOC, f"{indent}/// ")


def enum_type(enum):
    lines = doc(enum.doc, "") + [f"#[derive(Clone, Copy, Debug, {'Default, ' * bool(enum.default)}PartialEq, Eq, Hash)]"] + ["#[non_exhaustive]"] * (not enum.exhaustive)
    lines += [f"pub enum {enum.rust} {{"]
    for value in enum.values:
        lines += doc(value["doc"], "    ") + ["    #[default]"] * (value["name"] == enum.default) + [f"    {value['rust']},"]
    if enum.open:
        lines += doc("A value that this crate does not know yet.", "    ") + ["    Unknown(i32),"]
    lines += ["}", f"impl {enum.rust} {{", *(doc("The number in the C ABI.", "    ") if enum.open else []),
              *(["    #[must_use]"] if enum.open else []),
              f"    pub{'' if enum.open else '(crate)'} fn as_raw(self) -> i32 {{", "        match self {"]
    lines += [f"            {enum.rust}::{value['rust']} => sys::{value['c']}," for value in enum.values]
    lines += [f"            {enum.rust}::Unknown(raw) => raw,"] * enum.open
    return lines + ["        }", "    }"] + (from_raw(enum) if enum.open else [])


def library(schema):
    """The enums that are declared beside the options."""
    used = [row.enum for table in schema.tables.values() for row in table.c_rows]
    return [line for enum in schema.enums.values() if enum.rust and enum.with_table == "library"
            for line in [*enum_type(enum), *(from_raw(enum) if enum in used and not enum.open else []), "}", *named(enum)]]


def named(enum):
    if not enum.words:
        return []
    lines = [f"named! {{ {enum.rust}{'?' * enum.open}:"]
    lines += [f"    {value['rust']} = " + " | ".join(f'"{word}"' for word in words_of(value)) + "," for value in enum.values]
    return lines + ["}"]


def from_raw(enum):
    lines = ["    pub(crate) fn from_raw(raw: i32) -> Self {", "        match raw {"]
    lines += [f"            sys::{value['c']} => {enum.rust}::{value['rust']}," for value in enum.values[0 if enum.open else 1:]]
    lines.append(f"            other => {enum.rust}::Unknown(other)," if enum.open else f"            _ => {enum.rust}::{enum.values[0]['rust']},")
    return lines + ["        }", "    }"]


def default(row):
    if row.type == "metrics":
        return ", ".join(f"[`Metric::{metric.rust}`]" for metric in metrics_named(row.default))
    if row.type == "dtype":
        return {"float32": "[`DType::F32`]"}[row.default]
    if row.type == "flag":
        return str(row.default).lower()
    return default_text(row, lambda enum, value: f"[`{enum.rust}::{enum.value(value)['rust']}`]")


def words(row):
    return described(row, default(row), lambda name: f"`{name}`").replace("<eos>", "`<eos>`")


# type in Rust, to the C struct, from it
TYPES = {"int": ("usize", "to_count", "from_i64"), "bytes": ("usize", "to_count", "from_i64"), "seed": ("u64", "same", "same"),
         "real": ("f64", "same", "same"), "flag": ("bool", "i32::from", "from_flag"), "period": ("Period", "Period::to_raw", "Period::from_raw"),
         "layers": ("Vec<usize>", "to_layers", "from_layers"), "dtype": ("DType", "DType::as_raw", "DType::from_raw")}


def fields(macro, rows):
    """The fields of a struct of options, for options! in options.rs."""
    lines = [f"{macro}! {{"]
    for row in rows:
        kind, to, back = TYPES.get(row.type) or (row.enum.rust, f"{row.enum.rust}::as_raw", f"{row.enum.rust}::from_raw")
        text = words(row).removeprefix("Sampling: ")
        lines += doc(text[0].upper() + text[1:], "    ") + [f"    {row.name}: {kind} = {to}, {back};"]
    return lines + ["}"]


def enums_of(schema, table):
    used = [row.enum for row in table.c_rows]
    return [line for enum in schema.enums_of(table)
            for line in [*enum_type(enum), *(from_raw(enum) if enum in used else []), "}", *named(enum)]]


def model(schema):
    table = schema.tables["model"]
    return enums_of(schema, table) + fields("model_config", table.c_rows)


def metrics(schema):
    """The enum Metric and its bits in the C ABI."""
    lines = ["/// A metric of validations.", "#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]", "#[non_exhaustive]",
             "pub enum Metric {"]
    for metric in schema.metrics:
        lines += doc(metric.doc, "    ") + [f"    {metric.rust},"]
    names = ", ".join(f"Metric::{metric.rust}" for metric in schema.metrics)
    lines += ["}", "impl Metric {", f"    const ALL: [Metric; {len(schema.metrics)}] = [{names}];", "    pub(crate) fn bit(self) -> i32 {",
              "        match self {"]
    lines += [f"            Metric::{metric.rust} => sys::{metric.c}," for metric in schema.metrics]
    lines += ["        }", "    }", "}", "named! { Metric:"]
    return lines + [f'    {metric.rust} = "{metric.name}",' for metric in schema.metrics] + ["}"]


def training(schema):
    table = schema.tables["training"]
    return (metrics(schema) + enums_of(schema, table) +
            fields("trainer_options", [row for row in table.c_rows if row.type not in ("metrics", "metric")]))


def decoding(schema):
    table = schema.tables["decoding"]
    rows = [row for row in table.c_rows if row.part != "sampling" and row.type != "handle"]
    return fields("translate_options", rows) + fields("sampling", table.part("sampling"))


def evaluation(schema):
    table = schema.tables["evaluation"]
    return enums_of(schema, table) + fields("evaluation_options", [row for row in table.c_rows if row.type != "handle"])


def file(source, lines):
    return [f"// Written by scripts/generate_options.py from {source}: change that."] + lines
