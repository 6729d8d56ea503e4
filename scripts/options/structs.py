"""The structs of options of schema/structs.toml as C structs with their defaults."""
import tomllib

from c_abi import WIDTH, init_declaration
from schema import TABLES, camel, plain, wrap

SOURCE = "schema/structs.toml"
C = {"int": "int64_t", "int32": "int32_t", "real": "double", "flag": "int32_t", "reserved": "int32_t", "strings": "const trafo_string_view *",
     "ids": "const int32_t *", "biases": "const trafo_token_bias *", "trafo_string_view": "trafo_string_view", "trafo_dropout": "trafo_dropout"}
HANDLES = ("trafo_tensor", "trafo_tokenizer", "trafo_corpus")
ARRAYS = ("strings", "ids", "biases")
EMPTY = {"trafo_dropout": "off", "trafo_string_view": "empty", **{kind: "none" for kind in ARRAYS}}


class Member:
    def __init__(self, schema, struct, spec):
        self.name, self.type, self.count = spec["name"], spec["type"], spec.get("count")
        self.default, self.source, self.doc = spec.get("default"), spec.get("from"), spec.get("doc")
        self.enum = schema.enums.get(self.type)
        self.none, self.path, self.setter = spec.get("none"), spec.get("path", False), spec.get("setter", True)
        if set(spec) - {"name", "type", "count", "default", "from", "doc", "none", "path", "setter"}:
            raise SystemExit(f"structs: {struct}.{self.name} has unknown keys")
        if self.type not in C and self.type not in HANDLES and not self.enum:
            raise SystemExit(f"structs: {struct}.{self.name} has the unknown type {self.type}")
        if (self.type == "reserved") == (self.doc is not None) or (self.type in ARRAYS) != (self.count is not None):
            raise SystemExit(f"structs: {struct}.{self.name} needs a doc, and an array the name of its count")

    def c(self):
        kind = f"const {self.type} *" if self.type in HANDLES else "int32_t" if self.enum else C[self.type]
        lines = [f"{kind}{'' if kind.endswith('*') else ' '}{self.name};"]
        return lines + [f"size_t {self.count};"] * bool(self.count)

    def default_text(self):
        if self.type in HANDLES:
            return "NULL"
        if self.default is None:
            return EMPTY.get(self.type, "")
        return self.default if isinstance(self.default, str) else plain(self.default)

    def text(self):
        """In C: the constants of an enum are named, and a flag says what 1 means."""
        words, default = self.doc.replace("`", ""), self.default_text()
        words = words.replace("Whether", "1:", 1) if self.type == "flag" else f"{self.enum.c}_*. {words}" if self.enum else words
        return f"{words} Default {default}{': none' * bool(self.none)}." if default else words

    def initial(self):
        """An expression, None: zero."""
        if self.source:
            return self.source
        return None if self.default in (None, 0) else self.default if isinstance(self.default, str) else repr(self.default)


class Struct:
    def __init__(self, schema, spec):
        self.name, self.doc, self.include = "trafo_" + spec["name"], spec.get("doc"), spec.get("include")
        self.file, self.rust = spec["name"], spec.get("rust")
        self.serde = spec.get("serde", False)
        self.rust_doc, self.rust_new = spec.get("rust_doc", self.doc), spec.get("rust_new")
        self.rust_example = spec.get("rust_example")
        self.members = [Member(schema, self.name, member) for member in spec["members"]]


def read(schema):
    return [Struct(schema, spec) for spec in tomllib.loads((TABLES / "structs.toml").read_text())["struct"]]


def commented(line, text):
    if len(line) + len(text) + 7 <= WIDTH:
        return [f"{line} /* {text} */"]
    return wrap(text + " */", WIDTH, "  /* ", "   * ") + [line]


def header(struct):
    guard = f"TRAFO_GENERATED_{struct.file.upper()}_H"
    lines = [f"/* Written by scripts/generate_options.py from {SOURCE}: change that. Include trafo.h. */", f"#ifndef {guard}", f"#define {guard}", ""]
    lines += wrap(struct.doc + " */", WIDTH, "/* ", " * ") if struct.doc else []
    lines += [f"typedef struct {struct.name} {{", "  size_t struct_size;"]
    for member in struct.members:
        first, *rest = member.c()
        lines += commented(f"  {first}", "0" if member.type == "reserved" else member.text()) + [f"  {line}" for line in rest]
    return lines + [f"}} {struct.name};", "", *init_declaration(struct.name), "", f"#endif /* {guard} */"]


def declarations(structs, tables):
    """The functions that read_options of capi/src/handles.h calls."""
    lines = ["// Written by scripts/generate_options.py from the tables in schema: change those.", "// clang-format off", "#pragma once", "",
             '#include "capi/include/trafo.h"', "", "namespace trafo::capi {", "", "// The argument chooses the type alone."]
    lines += [f"{name} defaults(const {name}*);" for name in names_of(structs, tables)]
    return lines + ["", "}  // namespace trafo::capi"]


def names_of(structs, tables):
    return [*(struct.name for struct in structs), *(table.c for table in tables)]


def source(structs, tables):
    """The defaults of all structs, and their _init functions."""
    lines = [f"// Written by scripts/generate_options.py from the tables in schema: change those.", "// clang-format off",
             '#include "capi/src/options.h"']
    lines += [f'#include "{path}"' for path in sorted({struct.include for struct in structs if struct.include})]
    lines += ["", "using namespace trafo;", "using namespace trafo::capi;"]
    for struct in structs:
        lines += ["", f"{struct.name} trafo::capi::defaults(const {struct.name}*) {{", f"  {struct.name} c{{}};", "  c.struct_size = sizeof c;"]
        lines += [f"  c.{member.name} = {member.initial()};" for member in struct.members if member.initial() is not None]
        lines += ["  return c;", "}"]
    for table in tables:
        made = "k" + camel(table.c.removeprefix("trafo_"))
        lines += ["", "// Made when the library is loaded: an engine's struct may have a list on the heap, and _init allocates nothing.",
                  f"static const {table.c} {made} = capi::to_c({table.engine}{{}});",
                  f"{table.c} trafo::capi::defaults(const {table.c}*) {{ return {made}; }}"]
    for name in names_of(structs, tables):
        lines += ["", f"trafo_error* {name}_init({name}* options, size_t struct_size) {{",
                  f"  return api(__func__, [&](const Call& call) {{ init_options(call, options, struct_size, defaults(options)); }});", "}"]
    return lines


def page(structs):
    lines = ["## Structs of functions", "", "Rust and Go have types for these too, with the same defaults."]
    for struct in structs:
        lines += ["", f"### {struct.name}", "", "| C | default | meaning |", "|---|---|---|"]
        for member in struct.members:
            if member.doc:
                text = member.doc.replace("|", "\\|").replace("<", "&lt;")
                lines.append(f"| `{member.name}` | {member.default_text()} | {text} |")
    return lines
