"""C++ sources as tokens, and the definitions that the tokens belong to: enough of the grammar to find a text by meaning and not by place.

Whitespace, comments, line breaks and how a string literal is split make no difference. This is no compiler: it knows namespaces,
classes, functions, variables and their braces, which is what the engine is written in.
"""

import itertools
import re

TOKEN = re.compile(
    r"""(?P<skipped>\s+|//[^\n]*|/\*.*?\*/)
      | (?P<directive>(?:(?<=\n)|\A)[ \t]*\#(?:\\.|[^\n\\])*)
      | (?P<raw>(?:u8|u|U|L)?R"(?P<mark>[^()\\\s]{0,16})\(.*?\)(?P=mark)")
      | (?P<string>"(?:\\.|[^"\\\n])*")
      | (?P<character>'(?:\\.|[^'\\\n])+')
      | (?P<number>\.?\d(?:[eEpP][+-]|'?[\w.])*)
      | (?P<word>[A-Za-z_]\w*)
      | (?P<operator><<=|>>=|<=>|->\*|\.\.\.|::|->|\+\+|--|<<|>>|&&|\|\||[-+*/%^&|=!<>]=|.)""",
    re.VERBOSE | re.DOTALL)
# Words before a parenthesis that do not name what is defined.
NO_NAMES = {"noexcept", "requires", "alignas", "decltype", "__attribute__", "explicit", "sizeof", "throw", "static_assert"}
CLASSES = {"class", "struct", "union"}


def tokens_of(text):
    """(token, begin, end) of the code without comments; neighbouring string literals are one token, and so is a directive."""
    tokens = []
    for match in TOKEN.finditer("\n" + text):  # a directive follows a line break
        kind = match.lastgroup if match.lastgroup != "mark" else "raw"
        if kind == "skipped":
            continue
        token, begin, end = match.group().strip(), match.start() - 1, match.end() - 1
        if kind == "string" and tokens and tokens[-1][0][0] == '"' and tokens[-1][0][-1] == '"' and len(tokens[-1][0]) > 1:
            token, begin = tokens[-1][0][:-1] + token[1:], tokens.pop()[1]
        tokens.append((token, begin, end))
    return tokens


def occurrences(tokens, wanted):
    """Indices in `tokens` (texts) at which the sequence `wanted` begins."""
    if not wanted:
        return []
    first, count = wanted[0], len(wanted)
    return [at for at, token in enumerate(tokens) if token == first and tokens[at:at + count] == wanted]


def balanced_end(tokens, at, opening, closing):
    """The index after the bracket that closes the one at `at`."""
    depth = 0
    while at < len(tokens):
        if tokens[at] == opening:
            depth += 1
        elif tokens[at] in (closing, closing * 2) and closing == ">":
            depth -= len(tokens[at])
        elif tokens[at] == closing:
            depth -= 1
        at += 1
        if depth <= 0:
            break
    return at


def without_template(header):
    """The header after its template parameters, and without anything before them, such as calls of macros."""
    while "template" in header:
        header = header[balanced_end(header, header.index("template") + 1, "<", ">"):]
    return header


def top_level(header):
    """(index, token) outside of parentheses and brackets, which are included themselves."""
    depth, found = 0, []
    for at, token in enumerate(header):
        if token in (")", "]", "}"):
            depth -= 1
        if depth == 0:
            found.append((at, token))
        if token in ("(", "[", "{"):
            depth += 1
    return found


def is_word(token):
    return token[0].isalpha() or token[0] == "_"


def name_before(header, at):
    """The name, qualified as it is written, that ends before index `at`; template arguments are left out."""
    parts = []
    while at > 0:
        at -= 1
        if header[at] == ">":
            depth = 1
            while at > 0 and depth:
                at -= 1
                depth += {">": 1, ">>": 2, "<": -1}.get(header[at], 0)
            continue
        if not is_word(header[at]):
            break
        parts.append(("~" if at > 0 and header[at - 1] == "~" else "") + header[at])
        at -= parts[-1][0] == "~"
        if at < 1 or header[at - 1] != "::":
            break
        at -= 1
    return parts[::-1]


def declared(header):
    """(kind, name) of a declaration or definition, from its tokens before the body or the semicolon."""
    header = without_template([token for token in header if token[0] != "#"])
    if not header:
        return "block", []
    if header[0] == "inline" and header[1:2] == ["namespace"]:
        header = header[1:]
    if header[0] == "namespace":
        return "namespace", [token for token in header[1:] if is_word(token)]
    if header[0] == "extern" and len(header) == 2:
        return "namespace", []
    top = top_level(header)
    words = [token for _, token in top]
    if "operator" in words:
        at = header.index("operator")
        symbol = header[at + 1] + (")" if header[at + 1] == "(" else "]" if header[at + 1] == "[" else "")
        owner = name_before(header, at - 1) if header[at - 1:at] == ["::"] else []
        return "function", owner + ["operator" + symbol]
    assigned = next((at for at, token in top if token == "="), None)
    if assigned is not None:
        at = assigned
        while at > 0 and header[at - 1] == "]":
            at = max(index for index, token in top if token == "[" and index < at)
        return "variable", name_before(header, at)
    groups = []
    for position, (at, token) in enumerate(top):
        if token == "(" and at > 0 and (is_word(header[at - 1]) or header[at - 1] == ">") and header[at - 1] not in NO_NAMES:
            groups.append(at)
        if token in (":", "->") and groups:  # what initialises members; the type of the result
            break
    if groups:
        return "function", name_before(header, groups[-1])
    head = next((at for at, token in top if token in CLASSES or token == "enum"), None)
    if head is not None:
        names = list(itertools.takewhile(lambda token: token not in (":", "<"), [token for at, token in top if at > head]))
        names = [token for token in names if is_word(token) and token not in CLASSES and token not in NO_NAMES and token != "final"]
        return ("enum" if header[head] == "enum" else "class"), names[-1:]
    named = [at for at, token in top if is_word(token)]
    return "variable", ([header[named[-1]]] if named else [])


def definitions(tokens):
    """(qualified name as a tuple, first token, token after the last) of every function, variable, class and enumeration."""
    texts = [token for token, _, _ in tokens]
    found, scopes, saved = [], [], []
    start = parentheses = 0

    def path(name):
        return tuple(part for _, names, _, _ in scopes for part in names) + tuple(name)

    def declarative():
        return all(kind in ("namespace", "class") for kind, _, _, _ in scopes)

    for at, token in enumerate(texts):
        if token[0] == "#":
            word = token[1:].split(maxsplit=1)[:1]
            if word and word[0] in ("if", "ifdef", "ifndef"):
                saved.append((list(scopes), start, parentheses))
            elif word and word[0] in ("else", "elif") and saved:
                scopes, start, parentheses = list(saved[-1][0]), saved[-1][1], saved[-1][2]
            elif word == ["endif"] and saved:
                saved.pop()
            if declarative() and start == at:
                start = at + 1
            continue
        if token in ("(", "["):
            parentheses += 1
        elif token in (")", "]"):
            parentheses -= 1
        if not declarative():
            if token == "{":
                scopes.append(("block", [], at, parentheses))
            elif token == "}":
                kind, name, begin, parentheses = scopes.pop()
                if kind in ("function", "variable", "enum"):
                    found.append((path(name), begin, at + 1))
                if kind == "function" and declarative():
                    start = at + 1
            continue
        if token == "{":
            header = texts[start:at]
            kind, name = declared(header)
            before = header[-1] if header else ""
            member = (kind == "function" and ":" in [word for _, word in top_level(header)] and
                      (is_word(before) or before == ">") and before != "try")
            if parentheses or member:
                kind, name = "block", []
            scopes.append((kind, name, start, parentheses))
            if kind in ("namespace", "class"):
                start = at + 1
        elif token == "}":
            if scopes:
                kind, name, begin, parentheses = scopes.pop()
                if kind == "class":
                    found.append((path(name), begin, at + 1))
            start = at + 1
        elif token == ";" and parentheses == 0:
            if at > start:
                kind, name = declared(texts[start:at])
                if name:
                    found.append((path(name), start, at + 1))
            start = at + 1
        elif token == ":" and at - start == 1 and texts[start] in ("public", "private", "protected"):
            start = at + 1
    return found
