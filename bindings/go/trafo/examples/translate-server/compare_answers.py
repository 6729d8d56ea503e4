#!/usr/bin/env python3
"""Compares a translation server's answers with a baseline file: run it before a new version or model gets requests.

    compare_answers.py --server URL --baseline answers.jsonl --write lines.txt    asks, and writes the baseline
    compare_answers.py --server URL --baseline answers.jsonl [--allow SHARE]      asks again and compares

A baseline has a line of JSON for each input: {"text", "answer", "score"}. An answer differs if its text does; scores may differ by 1e-3.
Exit status: 0 if at most SHARE (default 0) of the answers differ, 1 if more do or a request fails, 2 for wrong usage.
"""

import argparse
import json
import sys
import time
import urllib.error
import urllib.request

LINES_OF_A_REQUEST = 32
SCORES_DIFFER = 1e-3


def ask(server, lines, timeout):
    """The translations of lines, with the seconds that it took."""
    request = urllib.request.Request(server.rstrip("/") + "/translate", json.dumps({"text": lines}).encode(),
                                     {"Content-Type": "application/json"})
    began = time.monotonic()
    try:
        with urllib.request.urlopen(request, timeout=timeout) as answer:
            translations = json.load(answer)["translations"]
    except urllib.error.HTTPError as error:
        sys.exit(f"compare_answers: {server} answers {error.code}: {error.read(500).decode(errors='replace').strip()}")
    except (OSError, ValueError, KeyError) as error:
        sys.exit(f"compare_answers: {server}: {error}")
    if len(translations) != len(lines):
        sys.exit(f"compare_answers: {server} gives {len(translations)} translations of {len(lines)} lines")
    return translations, time.monotonic() - began


def answers(server, lines, timeout):
    found, seconds = [], []
    for begin in range(0, len(lines), LINES_OF_A_REQUEST):
        translations, took = ask(server, lines[begin:begin + LINES_OF_A_REQUEST], timeout)
        found += translations
        seconds.append(took)
    return found, seconds


def read(path):
    try:
        with open(path, encoding="utf-8") as file:
            return file.read().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        sys.exit(f"compare_answers: {path}: {error}")


def read_baseline(path):
    entries = []
    for number, line in enumerate(read(path), 1):
        try:
            entry = json.loads(line)
            entries.append((entry["text"], entry["answer"], float(entry["score"])))
        except (ValueError, KeyError, TypeError) as error:
            sys.exit(f"compare_answers: {path}:{number}: no line of a baseline: {error!r}")
    if not entries:
        sys.exit(f"compare_answers: {path}: is empty")
    return entries


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--server", required=True, help="http://HOST:PORT")
    parser.add_argument("--baseline", required=True, help="the file of answers")
    parser.add_argument("--write", metavar="LINES", help="ask for the lines of this file and write the baseline")
    parser.add_argument("--allow", type=float, default=0.0, help="share of answers that may differ, 0 to 1 (default 0)")
    parser.add_argument("--timeout", type=float, default=60.0, help="seconds for a request (default 60)")
    options = parser.parse_args()
    if not 0 <= options.allow <= 1:
        parser.error("--allow is a share, 0 to 1")

    if options.write:
        lines = read(options.write)
        if not lines:
            sys.exit(f"compare_answers: {options.write}: is empty")
        found, _ = answers(options.server, lines, options.timeout)
        with open(options.baseline, "w", encoding="utf-8") as file:
            for line, translation in zip(lines, found):
                entry = {"text": line, "answer": translation["text"], "score": translation["score"]}
                file.write(json.dumps(entry, ensure_ascii=False) + "\n")
        print(f"{len(lines)} answers written to {options.baseline}")
        return 0

    baseline = read_baseline(options.baseline)
    found, seconds = answers(options.server, [text for text, _, _ in baseline], options.timeout)
    different = 0
    scores = 0
    for (text, answer, score), translation in zip(baseline, found):
        if translation["text"] != answer:
            different += 1
            if different <= 10:
                print(f"{text}\n  baseline: {answer}\n  now:      {translation['text']}")
        elif abs(translation["score"] - score) > SCORES_DIFFER:
            scores += 1
    share = different / len(baseline)
    print(f"{different} of {len(baseline)} answers differ ({100 * share:.1f} %), {scores} more have another score; "
          f"a request of {LINES_OF_A_REQUEST} lines took {1000 * sorted(seconds)[len(seconds) // 2]:.0f} ms (median)")
    return 0 if share <= options.allow else 1


if __name__ == "__main__":
    sys.exit(main())
