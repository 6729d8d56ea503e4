"""The structs of options of schema/structs.toml in Rust: builders, with what C gets of them. The files are taken in with include!."""
import rust
from schema import plain

# The field, what the setter takes, the value of the setter's argument, the default from C, and the value for C.
TYPES = {
    "int": ("usize", "usize", "{}", "from_i64(raw.{})", "to_i64(self.{})"),
    "int32": ("i32", "i32", "{}", "raw.{}", "self.{}"),
    "real": ("f64", "f64", "{}", "raw.{}", "self.{}"),
    "flag": ("bool", "bool", "{}", "raw.{} != 0", "self.{}.into()"),
    "trafo_tensor": ("Option<&'a Tensor>", "&'a Tensor", "Some({})", "None", "optional(self.{})"),
    "trafo_dropout": ("Option<Dropout>", "Dropout", "Some({})", "None", "{}.to_raw()"),
    "trafo_string_view": ("Option<String>", "impl Into<String>", "Some({}.into())", "None", "view({})"),
    "path": ("std::path::PathBuf", "impl AsRef<Path>", "{}.as_ref().to_owned()", "Default::default()", "path_text(&self.{})"),
}
SERDE = ["#[non_exhaustive]",
         '#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(default, deny_unknown_fields))]']
NOTHING = ['    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Option::is_none"))]']
GIVEN = ("trafo_dropout", "trafo_string_view")  # left as C has them where they are not given


def forms(member):
    if member.enum:
        kind = member.enum.rust
        value = next(value["rust"] for value in member.enum.values if value["c"] == member.default)
        return kind, kind, "{}", f"{kind}::{value}", "self.{}.as_raw()"
    if member.type == "strings":
        return "Vec<String>", None, None, "Vec::new()", None
    field, taken, value, default, raw = TYPES["path" if member.path else member.type]
    return (f"Option<{field}>", taken, f"Some({value})", "None", "to_i64({})") if member.none else (field, taken, value, default, raw)


def words(member):
    if member.default is None or member.type in ("trafo_tensor", "strings") or member.none:
        return member.doc
    if member.enum:
        return f"{member.doc} Default [`{forms(member)[3]}`]."
    default = {0: "false", 1: "true"}[member.default] if member.type == "flag" else member.default
    return f"{member.doc} Default {default if isinstance(default, str) else plain(default)}."


def source(struct):
    members = [member for member in struct.members if member.type != "reserved"]
    tensors = any(member.type == "trafo_tensor" for member in members)
    life, any_life = ("<'a>", "<'_>") if tensors else ("", "")
    fields = [f"    {member.name}: {forms(member)[0]}," for member in members]
    copied = not any(member.type in ("strings", "trafo_string_view") for member in members)
    whole = not any(member.type == "real" for member in members)
    traits = ["Clone", *["Copy"] * copied, "Debug", *["PartialEq"] * (not tensors), *["Eq"] * (struct.serde and whole)]
    example = ["///", "/// ```", *(f"/// {line}" for line in struct.rust_example.splitlines()), "/// ```"] if struct.rust_example else []
    lines = rust.doc(struct.rust_doc, "") + [*example, "#[must_use]", f"#[derive({', '.join(traits)})]", *SERDE * struct.serde, f"pub struct {struct.rust}{life} {{"]
    for member, field in zip(members, fields):
        lines += rust.doc(words(member), "    ") * (struct.serde) + NOTHING * (struct.serde and "Option<" in field)
        lines.append("    pub " + field.strip() if struct.serde else field)
    lines += ["}", f"impl{life} {struct.rust}{life} {{"]
    if struct.rust_new is not False:
        lines += rust.doc(struct.rust_new or "The defaults.", "    ") + ["    pub fn new() -> Self {", "        Self::default()", "    }"]
    elif not struct.serde:
        lines += ["    fn with_defaults() -> Self {", *made(struct, members, "        "), "    }"]
    for member in members:
        _, taken, value, _, _ = forms(member)
        if member.setter and taken:
            lines += rust.doc(words(member), "    ") + [f"    pub fn {member.name}(mut self, {member.name}: {taken}) -> Self {{",
                                                        f"        self.{member.name} = {value.format(member.name)};", "        self", "    }"]
    arrays = [member for member in members if member.type == "strings"]
    views = "".join(f", {member.name}: &[sys::trafo_string_view]" for member in arrays)
    if arrays:
        lines += rust.doc("Points to " + " and ".join(f"`{member.name}`, the views of the option" for member in arrays) + ".", "    ")
    lines += [f"    pub(crate) fn to_raw({'' if copied else '&'}self{views}) -> sys::{struct.name} {{", f"        let mut raw = defaults(sys::{struct.name}_init);"]
    for member in members:
        raw = forms(member)[4]
        if member.type == "strings":
            lines += [f"        raw.{member.name} = {member.name}.as_ptr();", f"        raw.{member.count} = {member.name}.len();"]
        elif member.none or member.type in GIVEN and not member.path:
            given = "&" if member.type == "trafo_string_view" else ""
            lines += [f"        if let Some({member.name}) = {given}self.{member.name} {{", f"            raw.{member.name} = {raw.format(member.name)};", "        }"]
        else:
            lines.append(f"        raw.{member.name} = {raw.format(member.name)};")
    lines += ["        raw", "    }", "}"]
    if struct.rust_new is False and not struct.serde:
        return lines
    return lines + [f"impl Default for {struct.rust}{any_life} {{", "    fn default() -> Self {", *made(struct, members, "        "), "    }", "}"]


def made(struct, members, indent):
    """The expression with the defaults of C."""
    values = [f"{indent}    {member.name}: {forms(member)[3].format(member.name)}," for member in members]
    raw = [f"{indent}let raw = defaults(sys::{struct.name}_init);"] if any("raw." in value for value in values) else []
    return [*raw, f"{indent}{struct.rust} {{", *values, f"{indent}}}"]
