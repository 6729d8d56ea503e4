#!/usr/bin/env python3
"""Writes a synthetic parallel corpus of any size: words of a made-up language and their "translations".

  make_corpus.py PAIRS SOURCE TARGET [--gzip] [--seed N]

The words follow Zipf's law, a sentence has 3 to 25 of them, and the target says them in the order source 2 1 4 3 ...
"""
import argparse
import gzip
import itertools
import random

WORDS = 20000


def words(random_numbers, syllables):
    made = set()
    while len(made) < WORDS:
        made.add("".join(random_numbers.choices(syllables, k=random_numbers.randint(1, 4))))
    return sorted(made)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pairs", type=int)
    parser.add_argument("source")
    parser.add_argument("target")
    parser.add_argument("--gzip", action="store_true")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()

    numbers = random.Random(arguments.seed)
    source_words = words(numbers, [c + v for c in "bdfgklmnprst" for v in "aeiou"])
    target_words = words(numbers, [v + c for c in "hjlmnrstvwz" for v in ("a", "e", "ä", "ö", "u")])
    numbers.shuffle(source_words)
    numbers.shuffle(target_words)
    cumulative = list(itertools.accumulate(1 / (rank + 3) for rank in range(WORDS)))
    places = range(WORDS)

    opener = (lambda path: gzip.open(path, "wt", encoding="utf-8", compresslevel=1)) if arguments.gzip else (
        lambda path: open(path, "w", encoding="utf-8"))
    with opener(arguments.source) as source, opener(arguments.target) as target:
        pool = []
        for _ in range(arguments.pairs):
            length = numbers.randint(3, 25)
            if len(pool) < length:  # drawn in bulk: much faster
                pool = numbers.choices(places, cum_weights=cumulative, k=200000)
            sentence, pool[-length:] = pool[-length:], []
            source.write(" ".join([source_words[i] for i in sentence]) + "\n")
            sentence[0:len(sentence) // 2 * 2:2], sentence[1::2] = (
                sentence[1::2], sentence[0:len(sentence) // 2 * 2:2])
            target.write(" ".join([target_words[i] for i in sentence]) + "\n")


if __name__ == "__main__":
    main()
