"""The flags of translate-train: their table, and how they become the C structs."""
import json
import re

from schema import GROUPS, UNLIMITED, camel, default_text, plain


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


# The types of values that only the program has.
TYPES = {"int": "int64_t", "bytes": "int64_t", "real": "double", "flag": "int32_t", "choice": "int32_t", "text": "std::string",
         "words": "std::vector<std::string>", "reals": "std::vector<double>", "limits": "std::vector<RunLimit>"}
PREFIXES = {"model": "", "training": "", "decoding": "translate_", "evaluation": "eval_"}
MEMBERS = {"model": "model", "training": "trainer", "decoding": "translate", "evaluation": "evaluation"}


def kind(row):
    """The type of the value on the command line."""
    return row.type_of_flag or ("choice" if row.enum or row.cli_values else row.type)


def setting(row):
    """The name of the setting in the program."""
    return PREFIXES[row.table] + row.flag.replace("-", "_")


def slot(row):
    """The place of the value in Values."""
    if row.only == "cli":
        return f"&v.program.{setting(row)}"
    place = f"v.{MEMBERS[row.table]}"
    if row.type == "metrics":
        return f"Metrics{{&{place}.{row.name}, &{place}.first_metric}}"
    return f"&{place}.{row.name}"


def spec(schema, row):
    low, high = row.count
    default = row.default if row.only == "cli" else None
    words = f"k{camel(setting(row))}Words" if kind(row) == "choice" else "{}"
    limits = bounds(schema, row) if row.range and kind(row) in ("int", "real") else "{}"
    return ("    {" + ", ".join([json.dumps(row.flag), json.dumps(",".join(row.alias)),
                                 json.dumps(row.group), json.dumps(row.meta)]) + ",\n     " +
            json.dumps(help_text(schema, row)) + ",\n     " + json.dumps(completions(schema, row)) + ", " +
            ", ".join([str(low), str(high), str(row.in_run).lower(), str(row.plan).lower(),
                       json.dumps(default) if default is not None else "nullptr",
                       f"SettingSource::{'program' if row.only == 'cli' else MEMBERS[row.table]}", f"SettingKind::{kind(row) if kind(row) in ('bytes', 'share', 'choice') else 'plain'}"]) +
            f",\n     [](Values& v) -> Slot {{ return {slot(row)}; }}, {limits}, {words}}},")


def choices(schema, row):
    if row.name == "task":
        return "{" + ", ".join(json.dumps(name) for name in schema.presets) + "}"
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


def tables_of(schema):
    """The rows of flags of each command, in the order of its help."""
    def sorted_by_group(rows):
        return sorted(rows, key=lambda row: GROUPS.index(row.group))

    return [("setting_specs", sorted_by_group(row for name in ("training", "model") for row in schema.tables[name].flags)),
            ("translate_specs", sorted_by_group(schema.tables["decoding"].flags)), ("eval_specs", schema.tables["evaluation"].flags)]


def header(schema):
    """The settings by name, and the values that only the program has."""
    rows = [row for _, table in tables_of(schema) for row in table]
    lines = ["// Written by scripts/generate_options.py from schema/*.toml: change those.", "// clang-format off", "#pragma once", "",
             "#include <cstddef>", "#include <cstdint>", "#include <string>", "#include <vector>", "", '#include "trafo.h"', "",
             "namespace translate_train {", "",
             "// A limit of a run or, with of_phase, of a phase.", "struct RunLimit {", "  trafo_period period;", "  bool of_phase;", "};", "",
             "enum class Setting : size_t {"]
    lines += [f"  {setting(row)}," for row in rows] + ["};", f"inline constexpr size_t kSettingCount = {len(rows)};", "",
              "// Values of flags that set no option of the library.", "struct ProgramSettings {"]
    lines += [f"  {TYPES[kind(row)]} {setting(row)}{{}};" for row in rows if row.only == "cli"]
    return lines + ["};", "", "}  // namespace translate_train"]


def choices_header(schema):
    """The words of flags that commands read."""
    lines = ["// Written by scripts/generate_options.py from schema/enums.toml: change that.", "// clang-format off", "#pragma once", "",
             "#include <cstdint>", "", '#include "trafo.h"', "", "namespace translate_train {", "",
             "struct Choice {", "  const char* name;", "  int32_t value;", '  const char* alias = "";', "};"]
    for enum in schema.enums.values():
        if enum.choices:
            words = [(value["cli"].split("|"), value["c"]) for value in enum.values]
            items = ", ".join(f'{{"{names[0]}", {constant}' + "".join(f', "{name}"' for name in names[1:]) + "}" for names, constant in words)
            lines += ["", f"inline constexpr Choice k{enum.engine}Choices[] = {{{items}}};"]
    return lines + ["", "}  // namespace translate_train"]


def further_value(row):
    """The value of an option of a model as the program shows it."""
    if row.enum:
        return f"text_of_value(k{camel(row.name)}Texts, c.{row.name})"
    return f"c.{row.name} != 0" if row.type == "flag" else f"c.{row.name}"


def further_default(row):
    return row.enum.value(row.default)["c"] if row.enum else int(row.default) if row.type == "flag" else plain(row.default)


def source(schema):
    tables = tables_of(schema)
    lines = ["// Written by scripts/generate_options.py from schema/*.toml: change those.", "// clang-format off",
             "#include <cmath>", "", '#include "settings/setting_types.h"', '#include "settings/settings.h"', "",
             "namespace translate_train {", "namespace {", ""]
    for _, rows in tables:
        lines += [f"constexpr const char* k{camel(setting(row))}Words[] = {choices(schema, row)};" for row in rows if kind(row) == "choice"]
    lines += ["", "constexpr SettingSpec kSpecs[] = {"] + [spec(schema, row) for _, rows in tables for row in rows]
    lines += ["};", "static_assert(std::size(kSpecs) == kSettingCount);", "",
              "// A number of a later version has no text.",
              "std::string text_of_value(std::span<const char* const> texts, int32_t value) {",
              "  return value >= 0 && value < std::ssize(texts) ? texts[static_cast<size_t>(value)] : std::to_string(value);", "}", "",
              "}  // namespace", "", "std::span<const SettingSpec> all_specs() { return kSpecs; }"]
    first = 0
    for function, rows in tables:
        lines.append(f"std::span<const SettingSpec> {function}() {{ return all_specs().subspan({first}, {len(rows)}); }}")
        first += len(rows)
    training, model, decoding = (schema.tables[name] for name in ("training", "model", "decoding"))
    for function, those in [("member_flags", [training, model]), ("decoding_member_flags", [decoding])]:
        members = sorted({(row.name, row.flag or row.set_by) for table in those for row in table.rows
                          if (row.flag or row.set_by) and row.only != "cli"})
        lines += ["", f"std::span<const MemberFlag> {function}() {{", "  static constexpr MemberFlag kMembers[] = {"]
        lines += [f"      {{{json.dumps(name)}, {json.dumps('--' + flag)}}}," for name, flag in members]
        lines += ["  };", "  return kMembers;", "}"]
    architectures = ", ".join(f"{{{json.dumps(value['cli'])}, {str(value['has_encoder']).lower()}}}"
                              for value in schema.enums["architecture"].values)
    lines += ["", "std::span<const Architecture> architectures() {",
              f"  static constexpr Architecture kArchitectures[] = {{{architectures}}};", "  return kArchitectures;", "}"]
    metric = {row.name: row.c for row in schema.metrics}
    those = {value["name"]: [metric[name] for name in value.get("valid_metrics", [])] for value in schema.enums["objective"].values}
    arrays = [f"  static constexpr int32_t k{camel(name)}Metrics[] = {{{', '.join(each)}}};" for name, each in those.items() if each]
    objectives = ", ".join(f"{{{json.dumps(value['cli'])}, {json.dumps(value.get('other_model', 'none'))}, {str(value['preferences']).lower()}, "
                           f"{'k' + camel(value['name']) + 'Metrics' if those[value['name']] else '{}'}}}"
                           for value in schema.enums["objective"].values)
    lines += ["", "std::span<const ObjectiveSpec> objectives() {", *arrays,
              f"  static constexpr ObjectiveSpec kObjectives[] = {{{objectives}}};", "  return kObjectives;", "}"]
    special = ", ".join(f"{{Setting::{setting(row)}, {schema.enums['objective'].value(row.objective)['c']}}}" for row in training.flags if row.objective)
    lines += ["", "std::span<const ObjectiveSetting> objective_settings() {",
              f"  static constexpr ObjectiveSetting kSettings[] = {{{special}}};", "  return kSettings;", "}"]
    special = [row for row in training.flags if row.optimizers]
    arrays = [f"  static constexpr int32_t k{camel(row.name)}Optimizers[] = {{{', '.join(value['c'] for value in row.optimizers)}}};" for row in special]
    rows = ", ".join(f"{{Setting::{setting(row)}, k{camel(row.name)}Optimizers}}" for row in special)
    lines += ["", "std::span<const OptimizerSetting> optimizer_settings() {", *arrays,
              f"  static constexpr OptimizerSetting kSettings[] = {{{rows}}};", "  return kSettings;", "}"]
    shape = ", ".join(f"Setting::{setting(row)}" for row in model.flags if row.fixed)
    rows = ", ".join(f'{{"{metric.name}", "{metric.title}", "{metric.short}", {metric.c}, {metric.decimals}, {str(metric.lower).lower()}, '
                     f'{str(metric.score is not None).lower()}}}' for metric in schema.metrics)
    lines += ["", "std::span<const MetricSpec> metric_specs() {", f"  static constexpr MetricSpec kMetrics[] = {{{rows}}};", "  return kMetrics;",
              "}"]
    lines += ["", "std::vector<FurtherOption> further_options(const trafo_model_config& c) {"]
    further = [row for row in model.c_rows if row.unless_default]
    for row in further:
        if row.enum:
            words = ", ".join(json.dumps(value["text"]) for value in row.enum.values)
            lines.append(f"  static constexpr const char* k{camel(row.name)}Texts[] = {{{words}}};")
    lines.append("  std::vector<FurtherOption> found;")
    lines += [f"  if (c.{row.name} != {further_default(row)}) found.push_back({{{json.dumps(row.name)}, {further_value(row)}}});" for row in further]
    lines += ["  return found;", "}"]
    return lines + ["", "std::span<const Setting> shape_settings() {", f"  static constexpr Setting kShape[] = {{{shape}}};",
                    "  return kShape;", "}", "", "}  // namespace translate_train"]
