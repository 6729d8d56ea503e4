"""The flags of translate-train: their table, and how they become the C structs."""
import json
import re

from schema import GROUPS, UNLIMITED, default_text, plain


def cli_default(row):
    """The default as the command line writes it; None: there is none."""
    if row.only == "cli":
        return row.default
    if row.cli_values:
        return row.cli_values[row.default]
    if row.enum:
        return row.enum.value(row.default)["cli"].split("|")[0]
    if row.type == "flag":
        return "on" if row.default else "off"
    if row.type == "period":
        return row.default
    if row.type == "metrics":
        return " ".join(row.default)
    return default_text(row)


def either(words):
    """The words as a list with "or" before the last."""
    return ", ".join(words[:-1]) + " or " + words[-1]


def help_text(schema, row):
    text = row.help.replace("{presets}", either(list(schema.presets)))
    text = text.replace("{metrics}", ", ".join(metric.name for metric in schema.metrics))
    if row.enum:
        text = text.replace("{values}", either([value["cli"].split("|")[0] for value in row.enum.values]))
    if "(default" in text:
        return text
    if schema.varies_by_task(row):
        return f"{text} (default by task)"
    default = cli_default(row)
    return text if default is None else f"{text} (default {default})"


def completions(schema, row):
    """The values that a shell offers, separated by blanks."""
    if row.complete:
        lists = {"{presets}": schema.presets, "{metrics}": [metric.name for metric in schema.metrics]}
        words = [word for text in row.complete for word in lists.get(text, [text])]
    elif row.enum:
        words = [value["cli"].split("|")[0] for value in row.enum.values]
    else:
        words = row.cli_values or (["on", "off"] if row.meta == "on|off" else [])
    return " ".join(words)


def spec(schema, row):
    low, high = row.count
    default = row.default if row.only == "cli" else None
    return ("    {" + ", ".join([json.dumps(row.flag), json.dumps(",".join(row.alias)),
                                 json.dumps(row.group), json.dumps(row.meta)]) + ",\n     " +
            json.dumps(help_text(schema, row)) + ",\n     " + json.dumps(completions(schema, row)) + ", " +
            ", ".join([str(low), str(high), str(row.in_run).lower(), str(row.plan).lower(),
                       json.dumps(default) if default is not None else "nullptr"]) + "},")


def choices(row):
    if row.cli_values:
        return "{" + ", ".join(json.dumps(value) for value in row.cli_values) + "}"
    return "{" + ", ".join(json.dumps(value["cli"]) for value in row.enum.values) + "}"


def bounds(schema, row):
    """A Bounds, in the words that the engine has for it, with flags for the names of options."""
    r = row.range
    open_end = r.high >= UNLIMITED
    zero = f"0 ({with_flags(schema, row.zero)}) or " if row.zero and (r.low > 0 or row.type == "int" and open_end) else ""
    if row.type == "int":
        words = "above" if zero and open_end else f"at least {plain(r.low)}" if open_end else f"{plain(r.low)} to {plain(r.high)}"
    else:
        words = f"{'at least' if r.low_inside else 'above'} {plain(r.low)}"
        words += "" if open_end else f" and {'at most' if r.high_inside else 'below'} {plain(r.high)}"
    high = "0x1p62" if r.high == UNLIMITED else "HUGE_VAL" if open_end else plain(r.high)
    flags = [r.low_inside, r.high_inside, bool(row.zero)]
    return f"{{{json.dumps(zero + words)}, {plain(r.low)}, {high}, " + ", ".join(str(flag).lower() for flag in flags) + "}"


def with_flags(schema, text):
    """The text with --flags for the options that it refers to as {name}."""
    rows = {row.name: row for table in schema.tables.values() for row in table.flags}
    return re.sub(r"\{(\w+)\}", lambda match: "--" + rows[match[1]].flag, text)


def reader(schema, row):
    flag, target = json.dumps(row.flag), f"o.{row.name}"
    if row.read:
        return f"{row.read}(s, {flag}, {target if row.type == 'layers' else 'o'})"
    if row.enum or row.cli_values:
        return f"{target} = s.choice({flag}, k{''.join(part.capitalize() for part in row.name.split('_'))})"
    kind = {"int": "integer", "seed": "seed", "bytes": "bytes", "real": "real", "flag": "flag"}.get(row.type)
    if row.type == "period":
        return f"{target} = parse_period(s, {flag}, s.text({flag}))"
    return f"{target} = s.{kind}({flag}" + (f", {bounds(schema, row)})" if row.type in ("int", "real") else ")")


def writer(row):
    value = f"o.{row.name}"
    if row.enum or row.cli_values:
        name = f"k{''.join(part.capitalize() for part in row.name.split('_'))}"
        return f"first_name({name}[{value}])"
    return {"layers": f"layer_names({value})", "flag": f'{value} != 0 ? "on" : "off"', "period": f"period_text({value})",
            "metrics": "metric_names(o)"}.get(row.type, f'fmt::format("{{}}", {value})')


def source(schema):
    tables = [schema.tables["training"], schema.tables["model"]]
    rows = sorted((row for table in tables for row in table.flags), key=lambda row: GROUPS.index(row.group))
    lines = ["// Written by scripts/generate_options.py from schema/*.toml: change those.", "// clang-format off",
             '#include <fmt/format.h>', "", "#include <cmath>", "", '#include "settings/setting_types.h"', "", "namespace translate_train {", "namespace {", "",
             "constexpr SettingSpec kSpecs[] = {"]
    lines += [spec(schema, row) for row in rows] + ["};", ""]
    decoding = schema.tables["decoding"]
    lines += ["constexpr SettingSpec kTranslateSpecs[] = {"]
    lines += [spec(schema, row) for row in sorted(decoding.flags, key=lambda row: GROUPS.index(row.group))] + ["};", ""]
    evaluation = schema.tables["evaluation"]
    lines += ["constexpr SettingSpec kEvalSpecs[] = {", *[spec(schema, row) for row in evaluation.flags], "};", ""]
    for table in [*tables, evaluation]:
        for row in table.flags:
            if (row.enum or row.cli_values) and row.only != "cli":
                name = "".join(part.capitalize() for part in row.name.split("_"))
                lines.append(f"constexpr const char* k{name}[] = {choices(row)};")
    presets = ", ".join(json.dumps(name) for name in schema.presets)
    lines += ["", f"constexpr const char* kTasks[] = {{{presets}}};", "", "}  // namespace", "",
              "std::span<const SettingSpec> setting_specs() { return kSpecs; }",
              "std::span<const SettingSpec> translate_specs() { return kTranslateSpecs; }",
              "std::span<const SettingSpec> eval_specs() { return kEvalSpecs; }",
              "std::span<const char* const> task_names() { return kTasks; }"]
    for table in [*tables, decoding, evaluation]:
        readers = [row for row in table.flags if row.only != "cli" or row.read]
        lines += ["", f"void read_options(const Settings& s, {table.c}& o) {{"]
        lines += [f"  if (s.has({json.dumps(row.flag)})) {reader(schema, row)};" for row in readers]
        if table not in tables:
            lines.append("}")
            continue
        lines += ["}", "", f"void set_defaults(Settings& s, const {table.c}& o) {{"]
        for row in table.flags:
            if row.only == "cli":
                continue
            value = writer(row)
            lines.append(f"  s.set_default({json.dumps(row.flag)}, " + (f"{value});" if row.type in ("metrics", "layers") else f"{{{value}}});"))
        lines.append("}")
    for function, those in [("member_flags", tables), ("decoding_member_flags", [decoding])]:
        members = sorted({(row.name, row.flag or row.set_by) for table in those for row in table.rows
                          if (row.flag or row.set_by) and row.only != "cli"})
        lines += ["", f"std::span<const MemberFlag> {function}() {{", "  static constexpr MemberFlag kMembers[] = {"]
        lines += [f"      {{{json.dumps(name)}, {json.dumps('--' + flag)}}}," for name, flag in members]
        lines += ["  };", "  return kMembers;", "}"]
    architectures = ", ".join(f"{{{json.dumps(value['cli'])}, {str(value['has_encoder']).lower()}}}"
                              for value in schema.enums["architecture"].values)
    lines += ["", "std::span<const Architecture> architectures() {",
              f"  static constexpr Architecture kArchitectures[] = {{{architectures}}};", "  return kArchitectures;", "}"]
    shape = ", ".join(json.dumps(row.flag) for row in schema.tables["model"].flags if row.fixed)
    rows = ", ".join(f'{{"{metric.name}", "{metric.title}", "{metric.short}", {metric.c}, {metric.decimals}, {str(metric.lower).lower()}}}'
                     for metric in schema.metrics)
    lines += ["", "std::span<const MetricSpec> metric_specs() {", f"  static constexpr MetricSpec kMetrics[] = {{{rows}}};", "  return kMetrics;",
              "}"]
    return lines + ["", "std::span<const char* const> shape_settings() {", f"  static constexpr const char* kShape[] = {{{shape}}};",
                    "  return kShape;", "}", "", "}  // namespace translate_train"]
