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
              f"    pub{'' if enum.open else '(crate)'} fn as_raw(self) -> i32 {{", "        match self {"]
    lines += [f"            {enum.rust}::{value['rust']} => sys::{value['c']}," for value in enum.values]
    lines += [f"            {enum.rust}::Unknown(raw) => raw,"] * enum.open
    return lines + ["        }", "    }"] + (from_raw(enum) if enum.open else [])


def library(schema):
    """The enums that no option is made of."""
    return [line for enum in schema.enums.values() if enum.rust and enum.with_table == "library" for line in [*enum_type(enum), "}"]]


def named(enum):
    lines = [f"named! {{ {enum.rust}:"]
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
MODEL = {"int": ("usize", "to_i64", "from_i64"), "real": ("f64", "same", "same"), "flag": ("bool", "i32::from", "from_flag"),
         "layers": ("Vec<usize>", "to_layers", "from_layers"), "dtype": ("DType", "DType::as_raw", "DType::from_raw")}
TRAINING = {"int": ("i64", "same"), "bytes": ("i64", "same"), "seed": ("u64", "same"), "real": ("f64", "same"),
            "flag": ("bool", "i32::from"), "period": ("Period", "Period::to_raw")}


def model(schema):
    table = schema.tables["model"]
    lines = []
    for enum in schema.enums_of(table):
        lines += enum_type(enum) + from_raw(enum) + ["}"] + named(enum)
    lines.append("config_fields! {")
    for row in table.c_rows:
        kind, to, back = MODEL.get(row.type) or (row.enum.rust, f"{row.enum.rust}::as_raw", f"{row.enum.rust}::from_raw")
        lines += doc(words(row), "    ") + [f"    {row.name} / get_{row.name}: {kind} = {to}, {back};"]
    return lines + ["}"]


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
    return lines + ["        }", "    }", "}"]


def training(schema):
    table = schema.tables["training"]
    lines = metrics(schema)
    for enum in schema.enums_of(table):
        lines += enum_type(enum) + ["}"] + named(enum)
    lines.append("setters! {")
    for row in table.c_rows:
        if row.type in ("metrics", "metric"):
            continue
        kind, to = TRAINING.get(row.type) or (row.enum.rust, f"{row.enum.rust}::as_raw")
        lines += doc(words(row), "    ") + [f"    {row.name}: {kind} = {to};"]
    return lines + ["}"]


DECODING = {"int": ("usize", "to_i64"), "seed": ("u64", "same"), "real": ("f64", "same"), "flag": ("bool", "i32::from")}


def decoding(schema):
    table = schema.tables["decoding"]
    lines = ["setters! {"]
    for row in table.c_rows:
        if row.part in (None, "text"):
            kind, to = DECODING[row.type]
            lines += doc(words(row), "    ") + [f"    {row.name}: {kind} = {to};"]
    lines += ["}"]
    switch = table.row("sampling")
    lines += doc("How [`TranslateOptions::sampling`] draws. " + words(switch).partition(". ")[2], "")
    lines += ["#[must_use]", "#[derive(Clone, Debug, PartialEq)]", "pub struct Sampling {"]
    rows = table.part("sampling")
    for row in rows:
        text = words(row).removeprefix("Sampling: ")
        lines += doc(text[0].upper() + text[1:], "    ")
        lines.append(f"    pub {row.name}: {DECODING[row.type][0]},")
    lines += ["}", "impl Sampling {", "    fn write(&self, raw: &mut sys::trafo_translate_options) {", "        raw.sampling = 1;"]
    lines += [f"        raw.{row.name} = {DECODING[row.type][1]}(self.{row.name});" for row in rows]
    lines += ["    }", "}", "impl Default for Sampling {", "    fn default() -> Self {", "        Sampling {"]
    lines += [f"            {row.name}: {float(row.default) if row.type == 'real' else row.default}," for row in rows]
    return lines + ["        }", "    }", "}"]


EVALUATION = {"int": ("usize", "to_i64"), "seed": ("u64", "same"), "flag": ("bool", "i32::from")}


def evaluation(schema):
    table = schema.tables["evaluation"]
    lines = []
    for enum in schema.enums_of(table):
        lines += enum_type(enum) + ["}"] + named(enum)
    lines.append("setters! {")
    for row in table.c_rows:
        if row.type == "handle":
            continue
        kind, to = EVALUATION.get(row.type) or (row.enum.rust, f"{row.enum.rust}::as_raw")
        lines += doc(words(row), "    ") + [f"    {row.name}: {kind} = {to};"]
    return lines + ["}"]


def file(source, lines):
    return [f"// Written by scripts/generate_options.py from {source}: change that."] + lines
