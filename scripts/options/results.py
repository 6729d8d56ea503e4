"""The structs that functions fill in: schema/results.toml as structs of C, Rust and Go, and how they become each other."""
import tomllib

import go
import rust
from c_abi import WIDTH
from schema import TABLES, wrap
from structs import commented

SOURCE = "schema/results.toml"
# C's type; then Rust's and Go's type, and their value of a C member.
TYPES = {
    "int": ("int64_t", ("i64", "{}"), ("int64", "int64({})")),
    "count": ("int64_t", ("usize", "from_i64({})"), ("int64", "int64({})")),
    "int32": ("int32_t", ("i32", "{}"), ("int32", "int32({})")),
    "real": ("double", ("f64", "{}"), ("float64", "float64({})")),
    "seconds": ("double", ("f64", "{}"), ("time.Duration", "seconds({})")),
    "flag": ("int32_t", ("bool", "{} != 0"), ("bool", "{} != 0")),
    "text": ("char", ("String", "text_of(&{})"), ("string", "C.GoString(&{}[0])")),
    "borrowed": ("const char *", ("String", "borrowed_text({})"), ("string", "C.GoString({})")),
    "view": ("trafo_string_view", ("String", "view_to_string(&{})"), ("string", "viewed({})")),
    "metric": ("int32_t", ("Option<Metric>", "Metric::from_bit({})"), ("Metric", "Metric({})")),
    "metrics": ("const trafo_metric_value *", ("Metrics", "Metrics::of_event(raw)"), ("Metrics", "newMetrics(unsafe.Slice({}, {count}))")),
    "objective_metrics": ("const trafo_objective_metric *", ("Vec<(String, f64)>", "named_values(raw)"),
                          ("map[string]float64", "newObjectiveMetrics(unsafe.Slice({}, {count}))")),
}
ABSENT = {"nan": "known", "negative": "not_negative"}
ARRAYS = {"metrics", "objective_metrics"}
UNSAFE = {"borrowed", "view", *ARRAYS}
NO_COPY = {"text", *UNSAFE}
NUMBERS = {"nan": "NaN", "negative": "Negative"}
KEYS = {"name", "type", "count", "length", "none", "absent", "short", "engine", "rust", "go", "go_not", "go_type", "json", "doc"}


class Member:
    def __init__(self, schema, result, structs, spec):
        self.name, self.type, self.doc = spec["name"], spec["type"], spec.get("doc")
        self.count, self.length, self.none = spec.get("count"), spec.get("length"), spec.get("none")
        self.absent, self.engine = spec.get("absent"), spec.get("engine")
        self.enum, self.struct = schema.enums.get(self.type), structs.get(self.type)
        self.short = spec.get("short", self.name)
        self.rust = spec.get("rust", self.short)
        self.go = spec.get("go", go.name_of(self.short.removesuffix("_seconds") if self.type == "seconds" else self.short))
        self.go_not, self.go_type = spec.get("go_not"), spec.get("go_type")
        self.json = spec.get("json", self.short.replace("_seconds", "_ns") if self.type == "seconds" else self.short)
        where = f"results: {result}.{self.name}"
        if set(spec) - KEYS:
            raise SystemExit(f"{where} has unknown keys")
        if self.type not in TYPES and self.type != "reserved" and not self.enum and not self.struct:
            raise SystemExit(f"{where} has the unknown type {self.type}")
        if (self.type == "reserved") == (self.doc is not None) or (self.type in ARRAYS) != (self.count is not None):
            raise SystemExit(f"{where} needs a doc, and an array the name of its count")
        if self.none not in (None, *ABSENT) or (self.type == "text" and not self.length) or (self.none is None) != (self.absent is None):
            raise SystemExit(f"{where}: none is nan or negative and wants absent, and a text has a length")

    def c(self):
        kind = self.struct.name if self.struct else "int32_t" if self.enum or self.type == "reserved" else TYPES[self.type][0]
        length = f"[{self.length}]" if self.length else ""
        lines = [f"{kind}{'' if kind.endswith('*') else ' '}{self.name}{length};"]
        return lines + [f"int64_t {self.count};"] * bool(self.count)

    def words(self, none=None):
        """The doc, with the value that means none."""
        return f"{self.doc} {none or NUMBERS[self.none]}: {self.absent}." if self.none else self.doc

    def c_doc(self, borrowed):
        if self.type == "reserved":
            return "0"
        words = self.words().replace("Whether", "1:", 1) if self.type == "flag" else self.words()
        prefix = f"{self.enum.c}_*. " if self.enum and self.enum.c != "TRAFO" else "One bit TRAFO_METRIC_*. " if self.type == "metric" else ""
        return prefix + words + f" Borrowed {borrowed}." * (self.type in UNSAFE)

    @property
    def rust_type(self):
        kind = self.struct.rust if self.struct else self.enum.rust if self.enum else TYPES[self.type][1][0]
        kind = f"[{kind}; {self.length}]" if self.length and self.type != "text" else kind
        return f"Option<{kind}>" if self.none else kind

    def from_raw(self):
        raw = f"raw.{self.name}"
        if self.struct:
            return f"{self.struct.rust}::{'known' if self.none else 'from_raw'}(&{raw})"
        if self.enum:
            return f"{self.enum.rust}::from_raw({'raw' if self.enum.with_table == 'results' else raw})"
        value = raw if self.length and self.type != "text" else TYPES[self.type][1][1].format(raw)
        return f"{ABSENT[self.none]}({value})" if self.none else value

    @property
    def go_type_name(self):
        kind = self.struct.go if self.struct else self.enum.go if self.enum else self.go_type or TYPES[self.type][2][0]
        return f"[{self.length}]{kind}" if self.length and self.type != "text" else kind

    def go_tag(self):
        """Members that not every event has, and scores that are not there, are left out of JSON. MarshalJSON leaves out numbers."""
        left_out = self.rust is False and self.type != "real" or self.struct and self.none
        return f'`json:"{self.json}{",omitempty" if self.type in ARRAYS else ",omitzero" if left_out else ""}"`'

    def from_c(self):
        value = f"c.{self.name}"
        if self.struct:
            return f"new{self.struct.go}(&{value})"
        if self.length and self.type != "text":
            items = ", ".join(TYPES[self.type][2][1].format(f"{value}[{i}]") for i in range(self.length))
            return f"{self.go_type_name}{{{items}}}"
        if self.enum or self.go_type:
            return f"{self.enum.go if self.enum else self.go_type}({value})"
        if self.type == "flag" and self.go_not:
            return f"{value} == 0"
        return TYPES[self.type][2][1].format(value, count=f"c.{self.count}")


class Result:
    def __init__(self, schema, spec, structs):
        self.file, self.name, self.doc = spec["name"], "trafo_" + spec["name"], spec.get("doc")
        self.rust, self.go, self.sized = spec.get("rust"), spec.get("go"), spec.get("sized", False)
        self.exhaustive = spec.get("exhaustive", False)
        self.engine, self.include, self.borrowed = spec.get("engine"), spec.get("include"), spec.get("borrowed")
        self.may_be_absent = False
        self.members = [Member(schema, self.name, structs, member) for member in spec["members"]]
        for member in self.members:
            if member.struct and member.none:
                member.struct.may_be_absent = True

    def of(self, language):
        return [member for member in self.members if member.type != "reserved" and getattr(member, language)]

    @property
    def unsafe(self):
        return any(member.type in UNSAFE for member in self.members)


def read(schema):
    results = {}
    for spec in tomllib.loads((TABLES / "results.toml").read_text())["result"]:
        results[spec["name"]] = Result(schema, spec, results)
    return list(results.values())


def header(result):
    guard = f"TRAFO_GENERATED_{result.file.upper()}_H"
    lines = [f"/* Written by scripts/generate_options.py from {SOURCE}: change that. Include trafo.h. */", f"#ifndef {guard}", f"#define {guard}", ""]
    lines += wrap(result.doc + " */", WIDTH, "/* ", " * ") if result.doc else []
    lines += [f"typedef struct {result.name} {{"] + ["  size_t struct_size;"] * result.sized
    for member in result.members:
        first, *rest = member.c()
        lines += commented(f"  {first}", member.c_doc(result.borrowed)) + [f"  {line}" for line in rest]
    return lines + [f"}} {result.name};", "", f"#endif /* {guard} */"]


def derived(members):
    """Copy and Eq where all members have them."""
    names = ["Clone", "Debug", "PartialEq"]
    if not any(member.type in NO_COPY or member.enum and member.enum.fields for member in members):
        names.insert(1, "Copy")
    if all(member.type in ("int", "count", "int32", "flag", "text") for member in members):
        names.append("Eq")
    return f"#[derive({', '.join(names)})]"


SAFETY = ["    /// # Safety", "    /// The texts and arrays of `raw` are valid during the call."]


def rust_struct(result):
    lines = rust.doc(result.doc, "") + [derived(result.of("rust")), *["#[non_exhaustive]"] * (not result.exhaustive), f"pub struct {result.rust} {{"]
    for member in result.of("rust"):
        lines += rust.doc(member.words("`None`"), "    ") + [f"    pub {member.rust}: {member.rust_type},"]
    values = [f"            {member.rust}: {member.from_raw()}," for member in result.of("rust")]
    lines += ["}", f"impl {result.rust} {{"]
    if result.may_be_absent:
        lines += [f"    fn known(raw: &sys::{result.name}) -> Option<Self> {{",
                  f"        (!raw.{result.members[0].name}.is_nan()).then(|| Self::from_raw(raw))", "    }"]
    if not result.unsafe:
        return lines + [f"    pub(crate) fn from_raw(raw: &sys::{result.name}) -> Self {{", f"        {result.rust} {{", *(f"{line}" for line in values),
                        "        }", "    }", "}"]
    return lines + SAFETY + [f"    pub(crate) unsafe fn from_raw(raw: &sys::{result.name}) -> Self {{", "        // SAFETY: the caller's promise.",
                             f"        unsafe {{ {result.rust} {{", *values, "        } }", "    }", "}"]


FORMS = {"optional": ("Option<PathBuf>", "some_path({})"), "given": ("bool", "({}).length != 0")}


def rust_payload(enum, result):
    """An enum whose values have the members of the struct that they give a meaning to."""
    members = {member.name: member for member in result.members}

    def field(spec):
        member = members[spec.get("from", spec.get("name"))]
        kind, value = member.rust_type, member.from_raw()
        if member.name == "path":
            kind, value = "PathBuf", f"view_to_path(&raw.{member.name})"
        if "form" in spec:
            kind, form = FORMS[spec["form"]]
            value = form.format(value if kind != "bool" else f"raw.{member.name}")
        return kind, value

    lines = rust.doc(enum.doc, "") + ["#[derive(Clone, Debug, PartialEq)]", "#[non_exhaustive]", f"pub enum {enum.rust} {{"]
    matched = []
    for value in enum.values:
        name, fields = value["rust"], value.get("fields", [])
        lines += rust.doc(value["rust_doc"], "    ")
        pattern = f"            sys::{value['c']} => {enum.rust}::{name}"
        if not fields:
            lines.append(f"    {name},")
            matched.append(f"{pattern},")
        elif "name" not in fields[0]:
            lines.append(f"    {name}({', '.join(field(spec)[0] for spec in fields)}),")
            matched.append(f"{pattern}({', '.join(field(spec)[1] for spec in fields)}),")
        else:
            lines.append(f"    {name} {{")
            for spec in fields:
                lines += rust.doc(spec["doc"], "        ") + [f"        {spec['name']}: {field(spec)[0]},"]
            lines.append("    },")
            matched.append(f"{pattern} {{ " + ", ".join(f"{spec['name']}: {field(spec)[1]}" for spec in fields) + " },")
    lines += rust.doc("A value that this crate does not know yet.", "    ") + ["    Unknown(i32),", "}", f"impl {enum.rust} {{"]
    lines += SAFETY + [f"    unsafe fn from_raw(raw: &sys::{result.name}) -> Self {{", "        // SAFETY: the caller's promise.", "        unsafe { match raw.kind {"]
    return lines + matched + [f"            other => {enum.rust}::Unknown(other),", "        } }", "    }", "}"]


def rust_source(schema, results):
    lines = [f"// Written by scripts/generate_options.py from {SOURCE} and enums.toml: change those."]
    for enum in schema.enums.values():
        if enum.with_table == "results":
            lines += rust_payload(enum, next(result for result in results if any(member.enum == enum for member in result.members)))
    for result in results:
        lines += rust_struct(result) if result.rust else []
        lines += ["// SAFETY: zero is a value of all members.", f"unsafe impl Zeroed for sys::{result.name} {{}}"]
    return lines


def go_source(results):
    lines = [f"// Code generated by scripts/generate_options.py from {SOURCE}. DO NOT EDIT.", "", "package trafo", "", '// #include "trafo.h"', 'import "C"', "",
             "import (", '\t"time"', '\t"unsafe"', ")", ""]
    for result in results:
        if not result.go:
            continue
        lines += go.doc(f"{result.go}: {result.doc[0].lower()}{result.doc[1:]}", "") + [f"type {result.go} struct {{"]
        for member in result.of("go"):
            lines += go.doc(member.go_not or member.words(), "\t") + [f"\t{member.go} {member.go_type_name} {member.go_tag()}"]
        lines += ["}", "", f"func new{result.go}(c *C.{result.name}) (r {result.go}) {{"]
        lines += [f"\tr.{member.go} = {member.from_c()}" for member in result.of("go")]
        lines += ["\treturn r", "}", ""]
    return lines[:-1]


def glue(results):
    """to_c of the structs that the engine has under the same names."""
    made = [result for result in results if result.engine]
    lines = ["// Written by scripts/generate_options.py from schema/results.toml: change that.", "// clang-format off", "#pragma once", "",
             '#include "capi/include/trafo.h"', *(f'#include "{path}"' for path in sorted({result.include for result in made})), "", "namespace trafo::capi {"]
    for result in made:
        lines += ["", f"// Borrows the texts of `o`; leaves {', '.join(member.name for member in result.members if member.engine is False)} zero." if result.unsafe else
                  f"// Leaves {', '.join(member.name for member in result.members if member.engine is False)} zero.",
                  f"inline {result.name} to_c(const {result.engine}& o) {{", f"  {result.name} c{{}};", "  c.struct_size = sizeof c;"]
        for member in result.members:
            value = f"o.{member.engine or member.short}"
            if member.engine is False:
                continue
            if member.enum:
                value = f"static_cast<int32_t>({value})"
            elif member.type == "view":
                value = f"{{{value}.data(), {value}.size()}}"
            lines.append(f"  c.{member.name} = {value};")
        lines += ["  return c;", "}"]
    return lines + ["", "}  // namespace trafo::capi"]


def page(results):
    lines = ["## Structs that functions fill in"]
    for result in results:
        lines += ["", f"### {result.name}", ""]
        names = [name for name in (result.rust and f"Rust `{result.rust}`", result.go and f"Go `{result.go}`") if name]
        lines += [", ".join(names) + f": {result.doc}", ""] if names else []
        lines += ["| C | Rust | Go | meaning |", "|---|---|---|---|"]
        for member in result.members:
            if member.doc:
                text = member.words().replace("|", "\\|").replace("<", "&lt;")
                in_rust = f"`{member.rust}`" if result.rust and member.rust else ""
                in_go = f"`{member.go}`" if result.go and member.go else ""
                lines.append(f"| `{member.name}` | {in_rust} | {in_go} | {text} |")
    return lines
