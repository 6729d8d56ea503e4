"""The ops: schema/ops.toml as functions of C, Rust and Go, and as the table of the docs."""
import re
import tomllib

import c_abi
import go
import rust
from schema import TABLES, camel, wrap

SOURCE = "schema/ops.toml"
REQUIRED = {"attention_options"}
KEYS = {"name", "section", "note", "in", "out", "header", "call", "self", "rust", "rust_also", "go", "go_also", "by_hand", "doc", "doc_c", "example",
        "torch", "operator", "gradient"}


class Parameter:
    """One entry of `in`. Each form lists what a language declares for it and what it passes on."""

    def __init__(self, schema, text):
        self.name, _, kind = (part.strip() for part in text.partition(":"))
        self.optional = kind.endswith("?")
        self.kind = kind.removesuffix("?") or "tensor"
        self.enum = schema.enums.get(self.kind)
        self.options = self.kind if self.kind.endswith("_options") else None
        if self.kind not in FORMS and not self.enum and not self.options:
            raise SystemExit(f"ops: {self.name} has the unknown type {self.kind}")

    @property
    def nullable(self):
        """Whether C takes NULL."""
        return self.optional or self.kind == "dropout" or (self.options is not None and self.options not in REQUIRED)

    def c(self):
        if self.options:
            return [f"const trafo_{self.options} *{self.name}"]
        forms = ["int32_t {name}"] if self.enum else FORMS[self.kind]["c"]
        return [form.format(name=self.name) for form in forms]

    def engine(self):
        """The engine's value."""
        name = self.name
        if self.optional and self.kind == "tensor":
            return f'call.optional_tensor({name}, "{name}")'
        if self.options:
            return f"to_{self.options.removesuffix('_options')}(call, {name})"
        if self.enum:
            return f'to_enum<{self.enum.engine}>(call, {name}, {len(self.enum.values)}, "{name}")'
        return FORMS[self.kind]["engine"].format(name=name)

    def go(self):
        """The type, None: it is part of the options. Options that must be set are no pointer."""
        if self.options:
            return "*" * (self.options not in REQUIRED) + camel(self.options)
        if self.enum:
            return self.enum.go
        return "*Dropout" if self.kind == "dropout" and self.optional else FORMS[self.kind]["go"]

    def rust(self):
        if self.options:
            return f"&{camel(self.options)}<'_>"
        if self.enum:
            return self.enum.rust
        kind = FORMS[self.kind]["rust"]
        return f"Option<{kind}>" if self.optional else kind


# The declaration and the argument of each form in each language; {name} is the parameter.
FORMS = {
    "tensor": {"c": ["const trafo_tensor *{name}"], "engine": 'call.tensor({name}, "{name}")', "go": "*Tensor", "go_arg": "{name}.handle()",
               "rust": "&Tensor", "rust_arg": "{name}.as_ptr()"},
    "tensors": {"c": ["const trafo_tensor *const *{name}", "size_t count"], "engine": "tensors_of(call, {name}, count)", "go": "...*Tensor",
                "go_before": "handles := handlesOf({name})", "go_arg": "first(handles), C.size_t(len(handles))", "rust": "&[&Tensor]",
                "rust_arg": "pointers({name}).as_ptr(), {name}.len()"},
    "real": {"c": ["double {name}"], "engine": "{name}", "go": "float64", "go_arg": "C.double({name})", "rust": "f64", "rust_arg": "{name}"},
    "int": {"c": ["int64_t {name}"], "engine": "{name}", "go": "int", "go_arg": "C.int64_t({name})", "rust": "usize", "rust_arg": "to_i64({name})"},
    "bytes": {"c": ["int64_t {name}"], "engine": "{name}", "go": None, "go_arg": "C.int64_t(o.{camel})", "rust": "usize",
              "rust_arg": "to_i64({name})"},
    "offset": {"c": ["int64_t {name}"], "engine": "{name}", "go": "int", "go_arg": "C.int64_t({name})", "rust": "i64", "rust_arg": "{name}"},
    "range": {"c": ["int64_t start", "int64_t stop"], "engine": "start, stop", "go": "int", "go_arg": "C.int64_t(start), C.int64_t(stop)",
              "rust": "Range<usize>", "rust_arg": "to_i64(range.start), to_i64(range.end)"},
    "dim": {"c": ["int32_t {name}"], "engine": "{name}", "go": "int", "go_arg": "cInt({name})", "rust": "i32", "rust_arg": "{name}"},
    "dims": {"c": ["const int32_t *{name}", "size_t count"], "engine": "dimensions(call, {name}, count)", "go": "[]int",
             "go_before": "numbers := cInts({name})", "go_arg": "first(numbers), C.size_t(len(numbers))", "rust": "&[i32]",
             "rust_arg": "{name}.as_ptr(), {name}.len()"},
    "shape": {"c": ["const int64_t *{name}", "int32_t rank"], "engine": "checked_shape(call, {name}, rank)", "go": "...int",
              "go_before": "sizes := toDims({name})", "go_arg": "first(sizes), C.int32_t(len(sizes))", "rust": "&[i64]",
              "rust_arg": "{name}.as_ptr(), rank({name})"},
    "flag": {"c": ["int32_t {name}"], "engine": 'call.flag({name}, "{name}")', "go": "bool", "go_arg": "cBool({name})", "rust": "bool",
             "rust_arg": "{name}.into()"},
    "dtype": {"c": ["int32_t {name}"], "engine": "checked_dtype(call, {name})", "go": "DType", "go_arg": "C.int32_t({name})", "rust": "DType",
              "rust_arg": "{name}.as_raw()"},
    "dropout": {"c": ["const trafo_dropout *{name}"], "engine": "to_dropout(call, {name})", "go": "Dropout", "go_arg": "{name}.c()",
                "rust": "Dropout", "rust_arg": "&{name}.to_raw()"},
}
FORMS["order"] = {**FORMS["dims"], "go": "...int"}  # all dimensions


class Op:
    def __init__(self, schema, spec):
        unknown = set(spec) - KEYS
        if unknown or {"name", "in", "doc", "torch"} - set(spec):
            raise SystemExit(f"ops: {spec.get('name')} needs name, in, doc and torch; unknown: {', '.join(sorted(unknown))}")
        self.name, self.section, self.note = spec["name"], spec.get("section"), spec.get("note")
        self.parameters = [Parameter(schema, text) for text in spec["in"].split(",")]
        self.outputs = [name.removesuffix("?") for name in spec.get("out", ["out"])]
        self.last_may_be_null = spec.get("out", [""])[-1].endswith("?")
        self.header = spec.get("header", self.name)
        self.doc, self.doc_c, self.example = spec["doc"], spec.get("doc_c"), spec.get("example")
        self.rust, self.rust_also = spec.get("rust", self.name), spec.get("rust_also")
        self.go, self.go_also = spec.get("go", camel(self.name)), spec.get("go_also")
        self.by_hand, self.torch = spec.get("by_hand", []), spec["torch"]
        self.operator, self.gradient = spec.get("operator"), spec.get("gradient", "yes")
        tensors = [parameter.name for parameter in self.parameters if parameter.kind == "tensor"]
        self.self = spec.get("self", tensors[0] if tensors else None)
        self.call = spec.get("call", f"ops::{self.name}(c, " + ", ".join("$" + parameter.name for parameter in self.parameters) + ")")


def read(schema):
    ops = [Op(schema, spec) for spec in tomllib.loads((TABLES / "ops.toml").read_text())["op"]]
    if len({op.name for op in ops}) < len(ops):
        raise SystemExit("ops: an op is there twice")
    return ops


def enums(schema):
    return [enum for enum in schema.enums.values() if enum.with_table == "ops"]


def words(ops, op, language, text=None):
    """The doc of an op in the names of a language; Rust keeps the backticks."""
    named = {each.name: each for each in ops}
    go_words = {parameter.name: go.name_of(parameter.name) if parameter.kind == "bytes" else go_name(parameter.name) for parameter in op.parameters}
    text = op.doc if text is None else text

    def other(match):
        each = named[match[1]]
        return {"c": f"trafo_op_{each.name}", "go": each.go, "rust": f"[`{each.rust}`](Tensor::{each.rust})"}[language]

    def own(match):
        if language == "rust":
            return f"`{rust_names(op).get(match[1], match[1])}`"
        return go_words.get(match[1], go_name(match[1])) if language == "go" else match[1]

    text = re.sub(r"\{op:(\w+)\}", other, text)
    text = re.sub(r"\{\.(\w+)\}", lambda match: go.name_of(match[1]) if language == "go" else f"`{match[1]}`", text)
    text = re.sub(r"\{(\w+)\}", own, text)
    if language == "go":  # also in formulas
        for name, word in go_words.items():
            text = re.sub(rf"\b{name}\b", word, text) if "_" in name else text
    return text if language == "rust" else text.replace("`", "")


def all_of(names):
    return " and ".join(filter(None, [", ".join(names[:-1]), *names[-1:]]))


# ---- C ----

GLUE = "\x1f"  # a space at which no line ends


def unbroken(lines):
    return [line.replace(GLUE, " ") for line in lines]


def c_parameters(op):
    return (["trafo_context *context"] + [text for parameter in op.parameters for text in parameter.c()] +
            [f"trafo_tensor **{name if name == 'out' else 'out_' + name}" for name in op.outputs])


def declaration(op):
    """The prototype, with parameters below each other's beginning where they fit."""
    head = f"TRAFO_API TRAFO_MUST_USE trafo_error *trafo_op_{op.name}("
    parameters = ", ".join(text.replace(" ", GLUE) for text in c_parameters(op)) + ");"
    if len(head) + len(parameters) <= c_abi.WIDTH:
        return unbroken([head + parameters])
    if len(head) + max(map(len, c_parameters(op))) + 2 > c_abi.WIDTH or len(parameters) > 3 * (c_abi.WIDTH - len(head)):
        return [head, *unbroken(wrap(parameters, c_abi.WIDTH, "    "))]
    lines = unbroken(wrap(parameters, c_abi.WIDTH - len(head), ""))
    return [head + lines[0]] + [" " * len(head) + line for line in lines[1:]]


def c_doc(ops, op):
    null = [parameter.name for parameter in op.parameters if parameter.nullable]
    null += ["out_" + op.outputs[-1]] * op.last_may_be_null
    sentences = [words(ops, op, "c")] + ([op.doc_c] if op.doc_c else []) + [f"{all_of(null)} may be NULL."] * bool(null)
    return unbroken(wrap(" ".join(sentences) + f" since{GLUE}0.1{GLUE}*/", c_abi.WIDTH, "/* ", " * "))


def header(schema, ops):
    guard = "TRAFO_GENERATED_OPS_H"
    lines = [f"/* Written by scripts/generate_options.py from {SOURCE}: change that. Include trafo.h. */", f"#ifndef {guard}", f"#define {guard}"]
    for op in ops:
        if op.section:
            lines += ["", f"/* ---- Ops: {op.section[0].lower()}{op.section[1:]} ---- */"]
            lines += wrap(op.note + " */", c_abi.WIDTH, "/* ", " * ") if op.note else []
            lines += [""]
        lines += c_doc(ops, op) + declaration(op)
    return lines + ["", f"#endif /* {guard} */"]


def glue(ops):
    lines = [f"// Written by scripts/generate_options.py from {SOURCE}: change that.", "// clang-format off", '#include "capi/src/op_arguments.h"']
    lines += [f'#include "engine/ops/{name}/{name}.h"' for name in sorted({op.header for op in ops})]
    lines += ["", "using namespace trafo;", "using namespace trafo::capi;"]
    for op in ops:
        values = {parameter.name: parameter.engine() for parameter in op.parameters}
        call = re.sub(r"\$(\w+)", lambda match: values[match[1]], op.call)
        outs = [name if name == "out" else "out_" + name for name in op.outputs]
        lines += ["", f"trafo_error* trafo_op_{op.name}({', '.join(c_parameters(op))}) {{"]
        if len(outs) == 1:
            lines += [f"  return op_of_one(__func__, context, {outs[0]}, [&](const Call& call, Context& c) {{", f"    return {call};"]
        else:
            slots = ", ".join(f'{{{name}, "{name}"}}' for name in outs)
            null = str(op.last_may_be_null).lower()
            lines += [f"  return op_of_two(__func__, context, {slots}, {null}, [&](const Call& call, Context& c) {{", f"    auto result = {call};",
                      "    return std::pair(result." + ", result.".join(op.outputs) + ");"]
        lines += ["  });", "}"]
    return lines


# ---- Go ----


def go_name(name):
    return re.sub(r"^([A-Z]+?)(?=[A-Z][a-z]|[^A-Z]|$)", lambda match: match[1].lower(), go.name_of(name))


def go_signature(op):
    """Parameters with equal types beside each other share one; a variadic one is last."""
    groups = []
    parameters = sorted(op.parameters, key=lambda parameter: (parameter.go() or "").startswith("..."))
    for parameter in parameters:
        names = ["start", "stop"] if parameter.kind == "range" else [go_name(parameter.name)]
        kind = parameter.go()
        if kind is None:
            continue
        if groups and groups[-1][1] == kind:
            groups[-1][0].extend(names)
        else:
            groups.append((names, kind))
    return ", ".join(", ".join(names) + " " + kind for names, kind in groups)


def go_argument(parameter):
    if parameter.options:
        return "&filled"
    if parameter.enum:
        return f"C.int32_t({go_name(parameter.name)})"
    return FORMS[parameter.kind]["go_arg"].format(name=go_name(parameter.name), camel=go.name_of(parameter.name))


def go_function(ops, op):
    text = words(ops, op, "go")
    first = text if op.doc.startswith(("{", "`")) or not text[1:2].islower() else text[0].lower() + text[1:]
    nil = [go_name(parameter.name) for parameter in op.parameters if parameter.optional or (parameter.go() or "").startswith("*") and parameter.options]
    first += f" {all_of(nil)} may be nil." if nil else ""
    options = next((parameter for parameter in op.parameters if parameter.options), None)
    tensors = [go_name(parameter.name) for parameter in op.parameters if parameter.kind == "tensor"]
    if any(parameter.kind == "tensors" for parameter in op.parameters):
        inputs = "tensors..."
    elif options:
        inputs = f"append([]*Tensor{{{', '.join(tensors)}}}, o.tensors()...)..."
    else:
        inputs = ", ".join(tensors)
    one = op.outputs == ["out"]
    results = "(*Tensor, error)" if one else f"({', '.join(op.outputs)} *Tensor, err error)"
    lines = go.doc(f"{op.go}: {first}", "") + [f"func (c *Context) {op.go}({go_signature(op)}) {results} {{"]
    lines += [f"\t{FORMS[parameter.kind]['go_before'].format(name=go_name(parameter.name))}" for parameter in op.parameters
              if parameter.kind in ("dims", "order", "shape")]
    lines += [f"\to := {go_name(options.name)}.filled()"] if options else []
    slots = "out" if one else ", ".join(op.outputs)
    lines += [f'\treturn c.{"op1" if one else "op2"}("Context.{op.go_also or op.go}", func(ptr *C.trafo_context, {slots} **C.trafo_tensor) *C.trafo_error {{']
    lines += [f"\t\t{FORMS['tensors']['go_before'].format(name='tensors')}" for parameter in op.parameters if parameter.kind == "tensors"]
    if options:
        lines += [f"\t\tvar filled C.trafo_{options.options}", "\t\tif e := o.fill(&filled); e != nil {", "\t\t\treturn e", "\t\t}"]
    arguments = ", ".join(["ptr", *map(go_argument, op.parameters), slots])
    return lines + [f"\t\treturn C.trafo_op_{op.name}({arguments})", f"\t}}, {inputs})", "}", ""]


def go_source(schema, ops):
    lines = [f"// Code generated by scripts/generate_options.py from {SOURCE}. DO NOT EDIT.", "", "package trafo", "", '// #include "trafo.h"',
             'import "C"', ""]
    shifted = go.shifts(schema)
    for enum in enums(schema):
        lines += go.enum_type(enum, enum.go in shifted)
    for op in ops:
        if "go" not in op.by_hand:
            lines += go_function(ops, op)
    return lines[:-1]


# ---- Rust ----


def rust_names(op):
    """Names of parameters in Rust, where the first tensor is self."""
    names = {op.self: "self"} if op.self else {}
    if op.self == "a" and any(parameter.name == "b" for parameter in op.parameters):
        names["b"] = "other"
    for parameter in op.parameters:
        if parameter.kind == "range":
            names[parameter.name] = "range"
        elif parameter.name in ("transpose_a", "transpose_b"):
            names[parameter.name] = {"a": "transpose_self", "b": "transpose_other"}[parameter.name[-1]]
    return names


def rust_argument(op, parameter):
    name = rust_names(op).get(parameter.name, parameter.name)
    if name == "self":
        return "x"
    if parameter.options:
        return f"&{name}.to_raw()"
    if parameter.enum:
        return f"{name}.as_raw()"
    if parameter.optional:
        return f"optional({name})" if parameter.kind == "tensor" else f"OptionalDropout::new({name}).as_ptr()"
    return FORMS[parameter.kind]["rust_arg"].format(name=name)


def rust_function(ops, op):
    text = words(ops, op, "rust")
    if op.self and op.self != op.parameters[0].name:
        text = f"Called on `{op.self}`: {text}"
    if op.operator:
        text += f" Also `&a {op.operator} &b`." if op.parameters[1].kind == "tensor" else f" Also `&x {op.operator} {op.parameters[1].name}`."
    lines = rust.doc(text, "    ")
    if op.example:
        lines += ["    ///", "    /// ```", *(f"    /// {line}".rstrip() for line in op.example.strip().split("\n")), "    /// ```"]
    names = rust_names(op)
    declared = [f"{names.get(parameter.name, parameter.name)}: {parameter.rust()}" for parameter in op.parameters if parameter.name != op.self]
    one = op.outputs == ["out"]
    result = "Tensor" if one else "(Tensor, Tensor)"
    slots = "out" if one else ", ".join(op.outputs)
    arguments = ", ".join(["context" if op.self else "self.as_ptr()", *(rust_argument(op, parameter) for parameter in op.parameters), slots])
    run = "Tensor::make(self, |" if not op.self else f"self.{'op' if one else 'op_of_two'}(|context, x, "
    return lines + [f"    pub fn {op.rust}({', '.join(['&self', *declared])}) -> Result<{result}> {{",
                    f"        {run}{slots}| unsafe {{ sys::trafo_op_{op.name}({arguments}) }})", "    }"]


def rust_source(schema, ops):
    lines = []
    for enum in enums(schema):
        lines += rust.enum_type(enum)
        lines += (rust.from_raw(enum) + ["}"] + rust.named(enum)) if not enum.declared else ["}"]
    inside = None  # the impl block that is open
    for op in ops:
        if "rust" in op.by_hand:
            continue
        kind = "Tensor" if op.self else "Context"
        if op.section or kind != inside:
            lines += ["}"] if inside else []
            if kind == "Tensor" and op.section:
                lines += ["", f"/// # {op.section}"] + (["///"] + rust.doc(re.sub(r"\b(keep_dim|dim|scatter_add|scatter|gather)\b", r"`\1`", op.note), "")
                                                        if op.note else [])
            lines += [f"impl {kind} {{"]
            inside = kind
        lines += rust_function(ops, op)
    return rust.file(SOURCE, lines + ["}"])


# ---- docs ----


def page(ops):
    lines = ["# Table of ops", "", f"<!-- Written by scripts/generate_options.py from {SOURCE}: change that. -->", "",
             "[ops.md](../ops.md) says how they are called and tested. In C every name begins with `trafo_op_`.", "",
             "| PyTorch | C | Rust | Go | gradient |", "|---|---|---|---|---|"]
    for op in ops:
        in_rust = [*([op.rust_also] if op.rust_also else []), op.rust] + ([op.operator] if op.operator else [])
        in_go = [*([op.go_also] if op.go_also else []), op.go]
        lines.append(f"| {op.torch} | `{op.name}` | " + ", ".join(f"`{name}`" for name in in_rust) + " | " +
                     ", ".join(f"`{name}`" for name in in_go) + f" | {op.gradient} |")
    return lines
