"""Sentences that are translated word by word: enough for losses that move."""
import random


def write(folder, train_lines, valid_lines):
    """t.src, t.trg, v.src and v.trg in `folder`."""
    draw = random.Random(5)
    words = [(a + b, b + a) for a in ("ka", "lo", "mi", "tu") for b in ("ren", "sal", "dor", "fin", "gel")]
    for name, lines in (("t", train_lines), ("v", valid_lines)):
        pairs = [[draw.choice(words) for _ in range(draw.randint(3, 9))] for _ in range(lines)]
        for side, language in enumerate(("src", "trg")):
            (folder / f"{name}.{language}").write_text("".join(" ".join(word[side] for word in pair) + "\n" for pair in pairs))
