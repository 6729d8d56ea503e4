"""Reads the C ABI's headers: functions, structs, callbacks, handle types and what the comments say of NULL."""

import re
from dataclasses import dataclass, field


@dataclass
class Member:
    """A parameter of a function or a member of a struct."""
    ctype: str
    name: str
    array: int = 0


@dataclass
class Function:
    name: str
    result: str
    parameters: list
    comment: str


@dataclass
class Api:
    functions: list = field(default_factory=list)
    structs: dict = field(default_factory=dict)
    callbacks: dict = field(default_factory=dict)
    handles: list = field(default_factory=list)


def squeeze(text):
    return re.sub(r"\s+", " ", text).strip()


def split_type(declaration):
    """'const trafo_tensor *const *inputs' -> type and name; 'void (*f)(void *)' too."""
    declaration = squeeze(declaration)
    function = re.match(r"(.*?)\(\*(\w+)\)(\(.*\))$", declaration)
    if function:
        return Member(squeeze(function[1]) + " (*)" + function[3], function[2])
    named = re.match(r"(.*?)(\w+)(?:\[(\d+)\])?$", declaration)
    return Member(squeeze(named[1]), named[2], int(named[3] or 0))


def split_list(text):
    """Splits at commas outside parentheses."""
    parts, depth, start = [], 0, 0
    for i, c in enumerate(text):
        depth += (c == "(") - (c == ")")
        if c == "," and depth == 0:
            parts.append(text[start:i])
            start = i + 1
    return parts + [text[start:]]


def read(paths):
    api = Api()
    for path in paths:
        source = path.read_text()
        source = re.sub(r"^\s*#.*(\\\n.*)*", "", source, flags=re.M)
        plain = re.sub(r"/\*.*?\*/", "", source, flags=re.S)
        for name in re.findall(r"typedef struct (\w+) \1;", plain):
            api.handles.append(name)
        for name, body in re.findall(r"typedef struct (\w+) \{(.*?)\} \1;", plain, flags=re.S):
            members = []
            for line in body.split(";")[:-1]:
                first, *more = line.split(",")
                members.append(split_type(first))
                members += [Member(members[-1].ctype, squeeze(m)) for m in more]
            api.structs[name] = members
        for name in re.findall(r"typedef \w+ \(\*(\w+)\)\(", plain):
            api.callbacks[name] = True
        last_end = 0
        for m in re.finditer(r"TRAFO_API ((?:TRAFO_MUST_USE )?)([^;(]*?)(\w+)\(([^;]*)\);", source):
            comments = re.findall(r"/\*(.*?)\*/", source[last_end:m.start()], flags=re.S)
            last_end = m.end()
            listed = [] if m[4].strip() == "void" else [split_type(p) for p in split_list(m[4])]
            comment = re.sub(r"\s*\*\s", " ", squeeze(comments[-1])) if comments else ""
            api.functions.append(Function(m[3], squeeze(m[2]), listed, comment))
    return api


def says_null(function, name):
    """Whether a function's comment lets the parameter be NULL: 'A, B may be NULL', 'A or NULL', 'A (NULL: ...)'."""
    others = "|".join(re.escape(p.name) for p in function.parameters if p.name != name) or "$^"
    comment = re.sub(r"\[[^\]]*\]", "#", function.comment)  # shapes
    for sentence in re.split(r"(?<=\w)\. |;", comment):
        for phrase in (r"may be NULL", r"or NULL", r"if not NULL", r"\(NULL: "):
            for found in re.finditer(r"\b%s\b(?=(.*?)%s)" % (re.escape(name), phrase), sentence):
                # Another parameter between the two is the one that is meant, unless they are a list.
                between = re.sub(r"^(\s*(,|and)\s*(%s)\b)+" % others, "", found[1])
                if not re.search(r"\b(%s)\b" % others, between) and not re.search(r"\b%s\b" % name, between):
                    return True
    return False
