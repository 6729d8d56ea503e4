"""Both forms of many places in one file: mutated_here(NUMBER) in the text chooses between what is there and what a mutation puts there.

A token inside an expression cannot be chosen alone. The expression around it, up to the next delimiters, has both forms:
`f(a + b, c)` with + made - is `f((trafo::mutated_here(7) ? (a - b) : (a + b)), c)`. Places may lie in each other: the right form of the
outer one holds both forms of the inner one, the wrong form only its own change.
"""

import re

OPENING, CLOSING = {"(": ")", "[": "]", "{": "}"}, {")": "(", "]": "[", "}": "{"}
ASSIGNMENTS = {"=", "+=", "-=", "*=", "/=", "%=", "&=", "|=", "^=", "<<=", ">>="}
# Tokens that end an expression of arithmetic or relations, on both sides.
DELIMITERS = ASSIGNMENTS | {",", ";", "?", ":", "&&", "||"}
KEYWORDS = {"return", "else", "do", "case", "throw", "delete", "goto", "co_return", "co_yield", "co_await"}
CONTROL = {"if", "for", "while", "switch", "constexpr"}  # constexpr: of an `if constexpr`


def partners(texts):
    """Index of each bracket -> index of its partner."""
    found, open_at = {}, []
    for index, text in enumerate(texts):
        if text in OPENING:
            open_at.append(index)
        elif text in CLOSING and open_at and texts[open_at[-1]] == CLOSING[text]:
            found[index] = open_at.pop()
            found[found[index]] = index
    return found


def is_operand(text):
    return text[0].isalnum() or text[0] in "_.\"'"


def expression_around(texts, pairs, at):
    """(first token, token after the last) of the expression that token `at` belongs to, without && and || and what is below them."""
    begin = at
    while begin > 0:
        text = texts[begin - 1]
        if text in DELIMITERS or text in KEYWORDS or text in OPENING or text[0] == "#" or text in (")", "]", "}") and begin - 1 not in pairs:
            break
        if text in CLOSING:
            opening = pairs[begin - 1]
            before = texts[opening - 1] if opening else ";"
            if text == ")" and before in CONTROL:
                break
            # Braces that follow a name or a template argument initialise a temporary object; others are a block.
            if text == "}" and (not (is_operand(before) or before == ">") or before in KEYWORDS | {"try", "const", "noexcept", "mutable"}):
                break
            begin = opening
        else:
            begin -= 1
    end = at
    while end < len(texts):
        text = texts[end]
        if text in DELIMITERS or text in CLOSING or text[0] == "#":
            break
        end = pairs.get(end, end) + 1 if text in OPENING else end + 1
    return begin, end


class Place:
    """A span of a text and what a mutation makes of it. kind: "expression", "condition" (an expression that is negated) or "statement"
    (without its semicolon; it goes)."""

    def __init__(self, number, kind, begin, end, wrong):
        self.number, self.kind, self.begin, self.end, self.wrong = number, kind, begin, end, wrong

    def wrapped(self, right):
        """The text before and after `right`."""
        here = f"trafo::mutated_here({self.number})"
        if self.kind == "statement":
            return f"if (!{here}) ", ""
        if self.kind == "condition":
            return f"({here} != static_cast<bool>(", "))"
        return f"({here} ? ({self.wrong}) : (", "))"


class Text:
    """A text with both forms of all its places, and which of them a position belongs to."""

    def __init__(self, text, places, header):
        self.kept, self.left_out, outer_end = [], [], []
        ordered = sorted(places, key=lambda each: (each.begin, -each.end, each.kind == "statement" and -1 or 0, each.number))
        for place in ordered:  # spans must lie in each other or apart
            while outer_end and outer_end[-1] <= place.begin:
                outer_end.pop()
            if outer_end and place.end > outer_end[-1]:
                self.left_out.append(place)
            else:
                outer_end.append(place.end)
                self.kept.append(place)
        inserts = []  # (position, order, text, number): closing ones before opening ones at the same position
        for rank, place in enumerate(self.kept):
            before, behind = place.wrapped(text[place.begin:place.end])
            inserts.append((place.begin, 1, rank, before, place))
            inserts.append((place.end, 0, -rank, behind, place))
        parts, self.spans, starts, at, length = [header], [], {}, 0, len(header)
        for position, _, _, inserted, place in sorted(inserts, key=lambda each: each[:3]):
            parts += [text[at:position], inserted]
            length += position - at
            if place in starts:
                self.spans.append((starts.pop(place), length + len(inserted), place))
            else:
                starts[place] = length
            at, length = position, length + len(inserted)
        self.text = "".join([*parts, text[at:]])
        self.lines = [0, *(match.end() for match in re.finditer("\n", self.text))]

    def at(self, line, column):
        """The places that a compiler's message at this position (from 1, in bytes) may be about: the innermost around it, else all that
        share the line."""
        start = self.lines[min(line, len(self.lines)) - 1]
        end = self.lines[line] if line < len(self.lines) else len(self.text)
        position = start + len(self.text[start:end].encode()[:column - 1].decode(errors="ignore"))
        around = [(last - first, place) for first, last, place in self.spans if first <= position < last]
        if around:
            return [min(around, key=lambda each: each[0])[1]]
        return [place for first, last, place in self.spans if first < end and last > start]


MESSAGE = re.compile(r"^(?:In file included from |\s+from )?(.+?):(\d+):(\d+)(?:: (error|fatal error|note|warning|required from)|[,:]| )", re.M)


def blamed(messages, texts):
    """Places that errors of a compiler are about. texts: path -> Text. An error outside all places is about the places of its notes."""
    found, errors = set(), []
    for line in messages.splitlines():
        match = MESSAGE.match(line)
        if not match:
            continue
        path, number, column, kind = match[1], int(match[2]), int(match[3]), match[4]
        if kind in ("error", "fatal error"):
            errors.append([])
        if errors and path in texts:
            errors[-1].append(texts[path].at(number, column))
    for candidates in errors:
        first = next((each for each in candidates if each), [])
        found.update(first)
    return found
