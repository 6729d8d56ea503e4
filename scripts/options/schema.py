"""Reads schema/*.toml, checks that rows are complete, and answers what every emitter asks of a row."""
import math
import pathlib
import re
import textwrap
import tomllib

ROOT = pathlib.Path(__file__).resolve().parents[2]
TABLES = ROOT / "schema"
KEYS = {"name", "type", "default", "range", "zero", "fixed", "phase", "set_by", "json", "unless_default", "only", "section", "objective", "flag", "alias",
        "part", "architectures", "or_with", "without", "stack", "feature", "required", "group", "value", "count", "in_run", "plan", "cli_values", "complete", "type_of_flag", "help", "doc"}
PLAIN = {"int", "seed", "bytes", "real", "flag", "period", "metrics", "metric", "layers", "dtype", "handle"}
GROUPS = ["Data", "Model", "Training", "Validation and checkpoints", "Machine", "Output", "Text", "Search", "Sampling, instead of the search",
          "Batches", "Metrics"]
UNITS = {"u": "updates", "t": "target tokens", "e": "epochs"}
UNLIMITED = 2.0**62
ENUM_HEADER = "engine/core/generated/option_enums.h"


class Enum:
    def __init__(self, name, spec):
        self.name, self.doc, self.c = name, spec["doc"], spec["c"]
        self.engine, self.rust, self.go, self.declared = (spec.get(key) for key in ("engine", "rust", "go", "declared"))
        self.exhaustive = spec.get("exhaustive", False)
        self.go_type, self.go_from_one = spec.get("go_type", "int32"), spec.get("go_from_one", False)
        self.with_table, self.default, self.open = spec.get("with"), spec.get("default"), spec.get("open", False)
        self.header, self.names = spec.get("header", ENUM_HEADER), spec.get("names")
        self.choices, self.words = spec.get("choices", False), spec.get("words", True)
        self.all_values = spec["values"]  # of C
        self.values = [value for value in self.all_values if value.get("only") != "c"]
        self.engine_values = [value for value in self.all_values if value.get("only") != "bindings"]
        self.fields = any("fields" in value for value in self.values)
        for number, value in enumerate(self.all_values):
            value["number"] = number
            value.setdefault("text", value["name"].upper() if spec.get("upper") else value["name"])
            value["rust_doc"] = value["doc"]
            value["doc"] = " ".join(filter(None, [value["doc"], *map(part_of_event, value.get("fields", []))]))
            value.setdefault("cli", value["text"])
            value.setdefault("engine", value["name"])
            value.setdefault("c", f"{self.c}_{value['name'].upper()}")
            value.setdefault("rust", camel(value["name"]))
            value.setdefault("go", (self.go or "") + camel(value["name"]))

    def value(self, name):
        return next(value for value in self.values if value["name"] == name)


def part_of_event(field):
    """The words of C and Go on the texts of an event of this kind; they need none on its other members."""
    name, words = field.get("from", field.get("name")), field.get("c_doc", field.get("doc"))
    return f"{name.capitalize()}: {words[0].lower()}{words[1:]}" if name in ("message", "path") else ""


def words_of(value):
    """The names of a value in files and on the command line; the first is the one that is printed."""
    return list(dict.fromkeys([value["text"], *value["cli"].split("|"), value["name"]]))


class Metric:
    """A row of metrics.toml."""
    KEYS = {"name", "id", "bit", "title", "short", "decimals", "better", "needs", "score", "go", "doc"}

    def __init__(self, spec):
        where = f"metrics: {spec.get('name')}"
        if set(spec) - self.KEYS or self.KEYS - {"go", "score"} - set(spec):
            raise SystemExit(f"{where}: wants the keys {', '.join(sorted(self.KEYS))}; go and score may be missing")
        if spec["better"] not in ("higher", "lower") or spec["needs"] not in ("model", "objective", "translations", "words"):
            raise SystemExit(f"{where}: better is higher or lower; needs is model, objective, translations or words")
        if (spec["needs"] in ("model", "objective")) != ("score" not in spec):
            raise SystemExit(f"{where}: score is the function of a metric that needs translations")
        self.name, self.bit, self.title, self.short, self.doc = (spec[key] for key in ("name", "bit", "title", "short", "doc"))
        self.decimals, self.needs, self.score = spec["decimals"], spec["needs"], spec.get("score")
        self.lower = spec["better"] == "lower"
        self.c, self.rust, self.go = f"TRAFO_METRIC_{spec['id']}", camel(spec["id"].lower()), "Metric" + spec.get("go", spec["id"])


def read_metrics():
    metrics = [Metric(spec) for spec in tomllib.loads((TABLES / "metrics.toml").read_text())["metric"]]
    if len({metric.name for metric in metrics}) < len(metrics) or sum(metric.bit for metric in metrics) != 2**len(metrics) - 1:
        raise SystemExit("metrics: every metric has a name and a bit of its own, and no bit is left out")
    return metrics


class Row:
    def __init__(self, table, spec, enums):
        unknown = set(spec) - KEYS
        if unknown:
            raise SystemExit(f"{table}: option {spec.get('name')} has unknown keys: {', '.join(sorted(unknown))}")
        self.table, self.name = table, spec["name"]
        self.only = spec.get("only")
        self.type = spec.get("type", "text")
        self.enum = enums.get(self.type)
        self.default = spec.get("default")
        self.fixed, self.phase = spec.get("fixed", False), spec.get("phase", False)
        self.set_by, self.unless_default = spec.get("set_by"), spec.get("unless_default", False)
        self.json, self.section, self.zero = spec.get("json", self.name), spec.get("section"), spec.get("zero")
        self.flag, self.alias = spec.get("flag"), spec.get("alias", [])
        self.group, self.meta = spec.get("group"), spec.get("value")
        self.count = spec.get("count", [0, 1] if self.meta == "on|off" else [1, 1])
        self.in_run, self.plan = spec.get("in_run", True), spec.get("plan", False)
        self.cli_values, self.complete, self.type_of_flag = spec.get("cli_values"), spec.get("complete"), spec.get("type_of_flag")
        self.help, self.doc, self.part = spec.get("help"), spec.get("doc"), spec.get("part")
        if self.help and self.enum:
            self.help = self.help.replace("{values}", listed([value["cli"].split("|")[0] for value in self.enum.values], "or"))
        self.optimizers = []  # the ones that have the option; none: all of them
        self.architectures, self.or_with, self.without = (spec.get(key, []) for key in ("architectures", "or_with", "without"))
        self.stack, self.feature = spec.get("stack"), spec.get("feature")
        self.required, self.objective = spec.get("required", False), spec.get("objective")
        self.range = parse_range(spec["range"]) if "range" in spec else None
        where = f"{table}: option {self.name}"
        if unknown := set(self.architectures) - {value["name"] for value in enums["architecture"].values}:
            raise SystemExit(f"{where}: there is no architecture {', '.join(sorted(unknown))}")
        if not self.architectures and (self.or_with or self.without or self.stack or self.feature):
            raise SystemExit(f"{where}: or_with, without, stack and feature go with architectures")
        if self.only not in (None, "engine", "cli", "bindings"):
            raise SystemExit(f"{where}: only is engine, cli or bindings")
        if self.only != "cli":
            if self.type not in PLAIN and not self.enum:
                raise SystemExit(f"{where}: unknown type {self.type}")
            if self.doc is None or (self.default is None and self.type != "handle"):
                raise SystemExit(f"{where}: needs a default and a doc")
            if self.type in ("int", "bytes", "real") and self.range is None:
                raise SystemExit(f"{where}: needs a range")
        if (self.flag or self.only == "cli") and not (self.flag and self.group in GROUPS and self.meta and self.help):
            raise SystemExit(f"{where}: needs flag, group, value and help")

    @property
    def in_engine(self):
        return self.only in (None, "engine")

    @property
    def in_c(self):
        return self.only in (None, "bindings")


def listed(words, last):
    """The words as a list, such as `a, b or c`."""
    return f" {last} ".join(filter(None, [", ".join(words[:-1]), words[-1]]))


class Range:
    """[low, high): a bracket includes its end, a parenthesis does not; an end that is left out is as far as the type goes."""

    def __init__(self, text, low, high, low_inside, high_inside):
        self.text, self.low, self.high = text, low, high
        self.low_inside, self.high_inside = low_inside, high_inside

    def contains(self, value):
        above = value >= self.low if self.low_inside else value > self.low
        return above and (value <= self.high if self.high_inside else value < self.high)


def number(text):
    text = text.strip()
    if match := re.fullmatch(r"(\d+)\^(\d+)", text):
        return float(int(match[1]) ** int(match[2]))
    if text.startswith("k"):
        return float(limit(text))
    return float(text)


def limit(name):
    found = re.search(rf"constexpr \w+ {name} = ([^;]+);", (ROOT / "engine/core/limits.h").read_text())
    if not found:
        raise SystemExit(f"engine/core/limits.h has no {name}")
    value = re.sub(r"int64_t\{(\d+)\}", r"\1", found[1])
    left, _, shift = value.partition("<<")
    return int(left) << int(shift or 0)


def parse_range(text):
    if text == "any":
        return Range(text, -UNLIMITED, UNLIMITED, True, True)
    match = re.fullmatch(r"([\[(])([^,]+),([^\])]*)([\])])", text)
    if not match:
        raise SystemExit(f"{text!r} is no range")
    low = number(match[2])
    high = number(match[3]) if match[3].strip() else UNLIMITED
    return Range(text, low, high, match[1] == "[", match[4] == "]")


def camel(name):
    return "".join(part.capitalize() for part in name.split("_"))


class Table:
    def __init__(self, name, enums):
        raw = tomllib.loads((TABLES / f"{name}.toml").read_text())
        first, last = ([spec for file in raw["table"].get(key, []) for spec in tomllib.loads((TABLES / f"{file}.toml").read_text())["option"]]
                       for key in ("before", "after"))
        self.name, self.source = name, f"schema/{name}.toml"
        self.engine, self.c = raw["table"]["engine"], raw["table"]["c"]
        self.rust, self.go = raw["table"]["rust"], raw["table"]["go"]
        self.go_structs = {self.go: raw["go"], **({"Sampling": raw["go_sampling"]} if "go_sampling" in raw else {})}
        self.rows = [Row(name, spec, enums) for spec in [*first, *raw["option"], *last]]
        names = [row.name for row in self.rows]
        for row_name in names:
            if names.count(row_name) > 1:
                raise SystemExit(f"{name}: option {row_name} is there twice")
        for row in self.rows:
            if unknown := {*row.or_with, *row.without} - set(names):
                raise SystemExit(f"{name}: option {row.name} names {', '.join(sorted(unknown))}, which is no option")

    @property
    def engine_rows(self):
        return [row for row in self.rows if row.in_engine]

    @property
    def c_rows(self):
        return [row for row in self.rows if row.in_c]

    @property
    def flags(self):
        return [row for row in self.rows if row.flag]

    def part(self, name):
        """The rows of a part; the row that has its name switches it on."""
        return [row for row in self.rows if row.part == name and row.name != name]

    def row(self, name):
        return next((row for row in self.rows if row.name == name), None)


METRICS = read_metrics()


def metrics_named(names):
    """The metrics of a default."""
    return [next(metric for metric in METRICS if metric.name == name) for name in names]


class Schema:
    def __init__(self):
        enums = tomllib.loads((TABLES / "enums.toml").read_text())
        self.enums = {name: Enum(name, spec) for name, spec in enums.items()}
        self.metrics = METRICS
        self.tables = {name: Table(name, self.enums) for name in ("model", "training", "decoding", "evaluation")}
        self.assign_optimizers()
        presets = tomllib.loads((TABLES / "presets.toml").read_text())
        self.common = presets.pop("all")
        self.preset_docs = {name: values.pop("doc") for name, values in presets.items()}
        self.presets = {name: {**self.common, **values} for name, values in presets.items()}
        for name, values in self.presets.items():
            for option in values:
                if not self.of_preset("model", option) and not self.of_preset("training", option):
                    raise SystemExit(f"preset {name}: there is no option {option}")

    def assign_optimizers(self):
        """Options that are not of all optimizers say so."""
        rows = {row.name: row for row in self.tables["training"].part("optimizers")}
        for value in self.enums["optimizer"].values:
            if missing := {"type", "options"} - set(value):
                raise SystemExit(f"optimizer {value['name']}: needs {', '.join(sorted(missing))}")
            for option in value["options"]:
                if option not in rows:
                    raise SystemExit(f"optimizer {value['name']}: there is no option {option} of part optimizers")
                rows[option].optimizers.append(value)
        for row in rows.values():
            names = [value["cli"].split("|")[0] for value in row.optimizers]
            if names:
                plural = len(names) > 1
                row.doc += f" Only the optimizer{'s' * plural} {listed(names, 'and')} {'have' if plural else 'has'} it. INVALID_ARGUMENT: another value than the default, with another optimizer."
                if row.help:
                    row.help = f"of {listed(names, 'and')}: {row.help}"

    def of_preset(self, table, option):
        row = self.tables[table].row(option)
        return row if row and row.in_c else None

    def enums_of(self, table):
        """The enums that a table uses, in the order of its rows, and those that are declared with it."""
        found = []
        for row in table.rows:
            if row.enum and row.enum not in found and row.enum.with_table not in ("ops", "library", "results"):
                found.append(row.enum)
        return found + [enum for enum in self.enums.values() if enum.with_table == table.name]

    def has_encoder(self, values):
        """Whether a preset's model reads its source with an encoder."""
        architecture = values.get("architecture", self.tables["model"].row("architecture").default)
        return self.enums["architecture"].value(architecture)["has_encoder"]

    def varies_by_task(self, row):
        return any(row.name in values for values in self.presets.values())


def plain(value):
    """A number as a reader writes it: 0.002, 1e-9, 10000."""
    if isinstance(value, float):
        if value == math.floor(value) and abs(value) < 1e15:
            return str(int(value))
        return repr(value).replace("e-0", "e-")
    return str(value)


def period(text):
    return int(text[:-1]), text[-1]


def default_text(row, names=lambda enum, value: enum.value(value)["text"]):
    """The default in words; `names` gives the type of an enum."""
    if row.enum:
        return names(row.enum, row.default)
    if row.type == "flag":
        return "true" if row.default else "false"
    if row.type == "period":
        value, unit = period(row.default)
        return f"{value} {UNITS[unit]}"
    if row.type == "metrics":
        return ", ".join(row.default)
    if row.type == "layers":
        return "none"
    return plain(row.default)


def plain_names(text):
    """The text with the plain names of the options that it refers to."""
    return text.replace("{", "").replace("}", "")


def described(row, default, refer):
    """The doc of a row with what 0 means and its default; `refer` writes the name of another option."""
    def referred(words):
        return re.sub(r"\{(\w+)\}", lambda match: refer(match[1]), words)

    text = referred(row.doc)
    if row.default is None or row.required or row.name == row.part:
        return text
    if row.type == "layers":
        return f"{text} Default: none are shared."
    zero = row.default == 0 and row.type != "flag"
    if row.zero and zero:
        return f"{text} Default 0: {referred(row.zero)}."
    if row.zero:
        return f"{text} 0: {referred(row.zero)}. Default {default}."
    return f"{text} Default {default}."


def wrap(text, width, first, rest=None):
    return textwrap.wrap(text, width, initial_indent=first, subsequent_indent=rest or first, break_long_words=False,
                         break_on_hyphens=False)
