#!/usr/bin/env python3
"""Writes the C program of the misuse table from the headers of the C ABI.

    generate.py OUT.c HEADER...

For every function: its good arguments, and for every parameter - members of structs and elements of arrays too - one wrong value
of each class that fits its kind. A parameter or a member that no rule in rules.py knows ends this with its name.
"""

import pathlib
import sys

import headers
import rules

OUT, API = [], None
KINDS = []  # handle types, in the order of the C enum


def kind_of(ctype):
    bare = ctype.replace("const ", "").replace("*", "").replace("const", "").strip()
    return bare if bare in KINDS else None


class Writer:
    """The arguments of one function and their wrong values."""

    def __init__(self, function):
        self.f = function
        self.fields, self.good, self.clean, self.bends, self.variants = [], [], [], [], []
        for p in function.parameters:
            self.parameter(p)

    def where(self, name):
        return f"{self.f.name}.{name}"

    def bend(self, name, cls, expect, code):
        self.bends.append(f"    case {len(self.variants)}: {code} break;")
        self.variants.append((name, cls, expect))

    def null(self, name, accepted=None):
        says = headers.says_null(self.f, name)
        expect = rules.NULL.get(self.where(name)) or ("accepted" if says else "refused")
        self.bend(name, "NULL", accepted or expect, f"a->{name} = NULL;")

    def handles(self, name, target, kind, expect):
        """Every handle that is not a live one of this kind, put where `target` is."""
        self.bend(name, "freed handle", expect, f"{target} = freed(KIND_{kind});")
        for other in KINDS:
            if other != kind:
                self.bend(name, "wrong kind", expect, f"{target} = live(KIND_{other});")

    def scalar(self, label, name, ctype, target):
        """Wrong values of a number."""
        rule = rules.number(self.f.name, label, name, ctype)
        if rule is None:
            sys.exit(f"misuse: no rule for {self.where(label)} ({ctype}); add one to rules.py")
        for cls, value, expect in rule:
            self.bend(label, cls, expect, f"{target} = {value};")

    def sizes(self, label, target):
        for cls, value in rules.STRUCT_SIZES:
            self.bend(f"{label}.struct_size", cls, "refused", f"{target}.struct_size = {value};")
        larger = f"{target}.struct_size = sizeof {target} + 8;"
        self.bend(f"{label}.struct_size", "newer struct", "refused",
                  f"{larger} ((unsigned char *)&{target})[sizeof {target}] = 1;")
        self.bend(f"{label}.struct_size", "newer struct", "accepted", larger)

    def struct(self, label, name, target):
        for m in API.structs[name]:
            path, own = f"{label}.{m.name}", f"{target}.{m.name}"
            if m.ctype in API.structs and m.ctype != "trafo_string_view":
                self.struct(path, m.ctype, own)
            elif m.ctype == "trafo_string_view":
                self.view(path, own)
            elif kind_of(m.ctype):
                self.bend(path, "NULL", "either", f"{own} = NULL;")
                self.handles(path, own, kind_of(m.ctype), "refused")
            elif m.ctype in ("const trafo_string_view *", "const int32_t *", "const trafo_token_bias *"):  # its count is 0
                self.bend(path, "NULL", "either", f"{own} = NULL;")
            elif m.name in rules.LAYERS:
                self.bend(path, "INT64_MAX", "refused", f"{own}[0] = 255;")
                self.bend(path, "overflow", "refused", f"{own}[0] = 0; {own}[1] = 1;")
            elif m.name == "struct_size":
                self.sizes(label, target)
            else:
                self.scalar(path, m.name, m.ctype, own)

    def view(self, label, target):
        self.bend(label, "NULL", "refused", f"{target}.data = NULL; {target}.length = 4;")
        for cls, value in rules.LENGTHS:
            self.bend(label, cls, "refused",
                      f"if (!{target}.data) {target}.data = \"\"; {target}.length = {value};")
        self.bend(label, "NUL or not UTF-8", "either",
                  f"{target}.data = \"a\\0\\xff\\xfe\"; {target}.length = 4;")

    def ids(self, label, target, ids):
        self.bend(label, "NULL", "refused", f"{target}.ids = NULL; {target}.count = 4;")
        for cls, value in rules.LENGTHS:
            self.bend(label, cls, "refused", f"if (!{target}.ids) {target}.ids = {ids}; {target}.count = {value};")
        for cls, value, expect in (("negative", "-1", "refused"), ("negative", "INT32_MIN", "refused"), ("INT64_MAX", "INT32_MAX", "either")):
            self.bend(label, cls, expect, f"{ids}[0] = {value}; {ids}[1] = TRAFO_TOKEN_EOS; {target}.ids = {ids}; {target}.count = 2;")
        self.bend(label, "zero", "either", f"{target}.count = 0;")

    def parameter(self, p):
        name, ctype, where = p.name, p.ctype, self.where(p.name)
        arg = f"a->{name}"
        kind = kind_of(ctype)
        struct = ctype.replace("const ", "").replace(" *", "")
        free = self.f.result == "void"
        if where in rules.GOOD and isinstance(rules.GOOD[where], dict):
            self.special(p, rules.GOOD[where])
        elif kind and ctype.count("*") == 1:
            self.fields.append(f"{ctype}{name};" + (f" {ctype}{name}_v;" if free else ""))
            expect = "accepted" if self.f.result != "trafo_error *" else "refused"
            if free:
                self.good.append(f"{arg} = {arg}_v = fresh(KIND_{kind});")
                self.clean.append(f"free_handle(KIND_{kind}, {arg}_v);")
                self.bend(name, "NULL", "accepted", f"{arg} = NULL;")
                self.bend(name, "second free", "accepted",
                          f"free_handle(KIND_{kind}, {arg});")
            else:
                self.good.append(f"{arg} = {rules.handle(self.f.name, name, kind)};")
                self.null(name, "accepted" if expect == "accepted" else None)
            self.handles(name, arg, kind, expect)
        elif free:
            self.fields.append(f"{ctype}{name};")
            self.good.append(f"{arg} = {rules.MEMORY[ctype]};")
            self.clean.append(f"{self.f.name}({arg});")
            self.bend(name, "NULL", "accepted", f"{arg} = NULL;")
            self.bend(name, "second free", "accepted", f"{self.f.name}({arg});")
            for other in KINDS:
                self.bend(name, "wrong kind", "accepted", f"{arg} = live(KIND_{other});")
            for other in rules.MEMORY.values():
                if other != rules.MEMORY[ctype]:
                    self.bend(name, "wrong kind", "accepted", f"{arg} = (void *){other};")
        elif kind and ctype.endswith("**") and "const" not in ctype and name.startswith("out"):
            self.output(p)
            self.clean.append(f"if ({arg}) {{ free_handle(KIND_{kind}, *{arg}); *{arg} = NULL; }}")
        elif ctype in rules.OUTPUTS and where not in rules.ARRAYS and (name.startswith("out") or where in rules.PLAIN_OUTPUTS):
            self.output(p)
            if rules.OUTPUTS[ctype]:
                self.clean.append(f"if ({arg}) {{ {rules.OUTPUTS[ctype]}(*{arg}); *{arg} = NULL; }}")
        elif struct in API.structs and ctype.endswith(" *") and struct not in ("trafo_string_view", "trafo_ids_view"):
            self.fields.append(f"{ctype}{name}; union {{ {struct} v; unsigned char room[70000]; }} {name}_v;")
            self.good.append(f"memset(&{arg}_v, 0, sizeof {arg}_v);")
            self.good += [line.replace("@", f"{arg}_v.v") for line in rules.struct_values(API, struct)]
            self.good.append(f"{arg} = &{arg}_v.v;")
            self.null(name)
            if "const" in ctype:
                self.struct(name, struct, f"{arg}_v.v")
            elif where in rules.READ_SIZES:
                self.sizes(name, f"{arg}_v.v")
        elif ctype == "const trafo_string_view *":
            values = rules.GOOD.get(where, "good_lines")
            self.fields.append(f"{ctype}{name}; trafo_string_view {name}_v[3];")
            self.good.append(f"memcpy({arg}_v, {values}(), sizeof {arg}_v); {arg} = {arg}_v;")
            self.null(name)
            for i in (0, 1):
                if not (where in rules.GOOD and i):
                    self.view(f"{name}[{i}]", f"{arg}_v[{i}]")
        elif ctype == "const trafo_ids_view *":
            values = rules.GOOD.get(where, "good_rows")
            self.fields.append(f"{ctype}{name}; trafo_ids_view {name}_v[3]; int32_t {name}_ids[3];")
            self.good.append(f"memcpy({arg}_v, {values}(), sizeof {arg}_v); {arg} = {arg}_v;")
            self.null(name)
            for i in (0, 1):
                self.ids(f"{name}[{i}]", f"{arg}_v[{i}]", f"{arg}_ids")
        elif ctype in API.callbacks:
            self.fields.append(f"{ctype} {name};")
            self.good.append(f"{arg} = {rules.GOOD.get(where) or rules.CALLBACKS[ctype]};")
            self.null(name)
        elif ctype == "void (*)(void *)":
            self.fields.append(f"void (*{name})(void *);")
            self.good.append(f"{arg} = ignore_user_data;")
            self.null(name, "accepted")
        elif ctype == "void *" and name == "user_data":
            self.fields.append(f"void *{name};")
            self.good.append(f"{arg} = &misuse_user_data;")
            self.null(name, "accepted")
        elif ctype in ("const char *", "const uint8_t *", "const void *", "void *") or where in rules.ARRAYS:
            self.array(p)
        elif "*" not in ctype:
            self.fields.append(f"{ctype} {name};")
            good = rules.value(self.f.name, name, ctype)
            if good is None:
                sys.exit(f"misuse: no good value for {where} ({ctype}); add one to rules.py")
            self.good.append(f"{arg} = {good};")
            self.scalar(name, name, ctype, arg)
        else:
            sys.exit(f"misuse: no rule for {where} ({ctype}); add one to generate.py")

    def output(self, p):
        inner = p.ctype.rstrip("* ") + " " + "*" * (p.ctype.count("*") - 1)
        self.fields.append(f"{p.ctype}{p.name}; {inner}{p.name}_v;")
        self.good.append(f"memset(&a->{p.name}_v, 0, sizeof a->{p.name}_v); a->{p.name} = &a->{p.name}_v;")
        self.null(p.name)

    def special(self, p, rule):
        """Storage, good value and bends as rules.py writes them."""
        self.fields.append(rule.get("field") or f"{p.ctype}{'' if p.ctype.endswith('*') else ' '}{p.name};")
        self.good.append(rule["good"].replace("@", f"a->{p.name}"))
        if "clean" in rule:
            self.clean.append(rule["clean"].replace("@", f"a->{p.name}"))
        self.null(p.name)
        for cls, expect, code in rule.get("bends", []):
            self.bend(p.name, cls, expect, code.replace("@", f"a->{p.name}"))
        if "handles" in rule:
            target, kind = rule["handles"]
            target = target.replace("@", f"a->{p.name}")
            self.bend(p.name, "NULL element", "refused", f"{target} = NULL;")
            self.handles(p.name, target, kind, "refused")

    def array(self, p):
        where, arg = self.where(p.name), f"a->{p.name}"
        rule = rules.ARRAYS.get(where) or rules.ARRAYS.get(p.name)
        if rule is None:
            sys.exit(f"misuse: no rule for {where} ({p.ctype}); add one to ARRAYS in rules.py")
        self.fields.append(f"{p.ctype}{p.name};")
        if "store" in rule:
            self.fields.append(f"{rule['store'].replace('@', p.name + '_v')};")
        self.good.append(rule["good"].replace("@", arg))
        self.null(p.name)
        for cls, expect, code in rule.get("bends", []):
            self.bend(p.name, cls, expect, code.replace("@", arg))

    def emit(self):
        f, name = self.f, self.f.name
        args = ", ".join(f"a->{p.name}" for p in f.parameters)
        fields = " ".join(self.fields) or "int none;"
        OUT.append(f"typedef struct {{ {fields} }} args_{name};")
        unused = "" if f.parameters else " (void)a;"
        for verb, lines in (("good", self.good), ("clean", self.clean)):
            OUT.append(f"static void {verb}_{name}(void *p) {{\n  args_{name} *a = p; (void)a;")
            OUT.extend("  " + line for line in lines)
            OUT.append("}")
        call = f"{name}({args})"
        returned = (f"return {call};" if f.result == "trafo_error *" else
                    f"{call}; return NULL;" if f.result == "void" else f"keep_result({call}); return NULL;")
        if f.result not in ("trafo_error *", "void", "int32_t"):
            returned = f"keep_text({call}); return NULL;"
        OUT.append(f"static trafo_error *run_{name}(void *p) {{ args_{name} *a = p;{unused or ' (void)a;'} {returned} }}")
        OUT.append(f"static void bend_{name}(void *p, int v) {{\n  args_{name} *a = p; (void)a;\n  switch (v) {{")
        OUT.extend(self.bends)
        OUT.append("    default: break;\n  }\n}")
        OUT.append(f"static const misuse_variant variants_{name}[] = {{")
        for label, cls, expect in self.variants:
            OUT.append(f'  {{"{label}", CLASS_{rules.symbol(cls)}, {expect.upper()}}},')
        OUT.append('  {NULL, 0, EITHER}};')
        busy = [p for p in f.parameters if kind_of(p.ctype) and p.ctype.count("*") == 1]
        if f.result == "void" and busy:
            OUT.append(f"static void busy_{name}(void *p) {{ args_{name} *a = p; a->{busy[0].name} = live(KIND_{kind_of(busy[0].ctype)}); }}")

    def row(self):
        name = self.f.name
        # 1: the one that is at work; 2: another one of its context.
        takes = any(kind_of(p.ctype) == "trafo_trainer" and "const" not in p.ctype and p.ctype.count("*") == 1
                    for p in self.f.parameters) and self.f.result != "void"
        trainer = 0 if not takes else 2 if f"{name}.trainer" in rules.GOOD else 1
        free = self.f.result == "void" and kind_of(self.f.parameters[0].ctype)
        return (f'  {{"{name}", sizeof(args_{name}), good_{name}, run_{name}, clean_{name}, bend_{name}, '
                f'{"busy_" + name if free else "NULL"}, variants_{name}, {len(self.variants)}, {int(trainer)}}},')


def main():
    global API
    if len(sys.argv) < 3 or sys.argv[1].startswith("-"):
        sys.exit("usage: generate.py TABLE.c HEADER...")
    API = headers.read([pathlib.Path(p) for p in sys.argv[2:]])
    KINDS.extend(API.handles)
    missing = [h for h in KINDS if h not in rules.HANDLES]
    if missing:
        sys.exit(f"misuse: no good handle of {', '.join(missing)}; add it to rules.py and to world.c")
    writers = [Writer(f) for f in API.functions]
    OUT.append('#include "misuse.h"\n')
    for w in writers:
        w.emit()
    OUT.append("const misuse_function misuse_functions[] = {")
    OUT.extend(w.row() for w in writers)
    OUT.append("};")
    OUT.append(f"const int misuse_function_count = {len(writers)};")
    OUT.append("const char *const misuse_class_names[CLASS_COUNT] = {")
    OUT.extend(f'  "{c}",' for c in rules.CLASSES)
    OUT.append("};")
    pathlib.Path(sys.argv[1]).write_text("\n".join(OUT) + "\n")
    header = ["#pragma once", "enum {"]
    header += [f"  KIND_{k}," for k in KINDS] + ["  KIND_COUNT", "};", "enum {"]
    header += [f"  CLASS_{rules.symbol(c)}," for c in rules.CLASSES] + ["  CLASS_COUNT", "};"]
    pathlib.Path(sys.argv[1]).with_name("misuse_kinds.h").write_text("\n".join(header) + "\n")


main()
