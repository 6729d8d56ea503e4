#!/usr/bin/env python3
"""Line coverage of the engine, branch coverage of what reads untrusted data, and line coverage of each parser under its fuzz corpus.

    tests/tools/coverage.py [--jobs N] [--only-corpus | --only-tests] [--no-run] [--gaps FILE] [--update-docs]

Compiles engine and C ABI with clang's source-based counters (build/coverage; the programs around them are the release build's, linked
again by relink.py), runs the tests, and reads llvm-cov's export. Lines are the lines of engine/ and capi/src that have code. A branch is one
outcome of one condition of the source, with the operands of && and || one by one and with the condition of every require() and check() at the
line that makes it; all instances of a template count together. Not counted: conditions that are constants (true, false, if constexpr)
and comparisons that the compiler writes (= default). A process that is killed or leaves by _exit() counts nothing.
--gaps writes the lines and branches that nothing took. Exit status 1 below a target, 77 without clang.
"""

import argparse
import collections
import concurrent.futures
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import relink  # noqa: E402

ROOT = relink.ROOT
WORK = ROOT / "build" / "coverage"
COPIES = WORK / "copies"
DOCUMENT = ROOT / "docs/lab/reliability-notes.md"
SKIPPED = 77
GROUPS = {
    "checkpoint": r"engine/os/(file|names)|engine/io/(atomic_file|checkpoint_directory|checksum|descriptor|file_lock|manifest|temporary_name)\.|"
                  r"engine/(train/(checkpoint|step)|models)/(average|checkpoint_files|model_io|optimizer_io|gemm_cache|user_gemm_cache|run_directory|state)\.",
    "parsers": r"engine/io/safetensors|engine/core/(checked|json)\.|engine/formats/|engine/models/model_config\.|"
               r"engine/(core|data|decode|text/tokenizer/sentencepiece)/(corpus|disk_text|lexical_table|spm_fields|spm_model|text_corpus|text_pairs|tokenized_corpus|utf8)\.",
    "C ABI": r"capi/src/",
}
# Target of tests/fuzz -> the files that read its inputs, and their functions that read nothing: writers, and what works on
# what was read.
PARSERS = {
    "safetensors": (r"engine/io/safetensors",
                    r"write_|save_|safetensors_to_memory|check_entry|check_metadata|encode_|is_valid_utf8_without_nul"),
    "checkpoint": (r"engine/io/(manifest|checksum|temporary_name)\.|engine/train/(checkpoint|step)/(checkpoint_files|state|gemm_cache)\.",
                   r"encode_|write_|read_gemm_cache|temporary_\w+_name|checkpoint_files\(|gemm_cache_file|restore_checkpoint|\bappend<|to_hex"),
    "config": (r"engine/core/strings/json\.|engine/models/model_config\.", None),
    "corpus": (r"engine/(core|data)/(corpus|disk_text|utf8)\.", r"append_utf8|truncate_utf8|to_code_points|read_lines"),
    "sentencepiece": (r"engine/text/tokenizer/sentencepiece/(spm_fields|spm_model)\.|engine/formats/tokenizers/spm_subwords\.", r"serialize_spm"),
    "vocabulary": (r"engine/decode/lexical_table\.", r"LexicalTable::(learn|write|of|candidates|size)|PairTable|sort_unique"),
    "importer": (r"engine/formats/",
                 r"write_|export_|serialize_spm|config_json|generation_json|express|refuse_what_is_not|interop::match|"
                 r"fast_tokenizer|base64|has_fast_form|put_special_ids|copy_to_host|fixed_|logit_difference|output_bias|gather\(|"
                 r"activation_to_name|activation_id|check_vocabulary|add_varint|add_bytes|UnfinishedDirectory"),
}
LINES_TARGET, BRANCHES_TARGET, PARSER_TARGET = 85, 95, 95
FUZZ_REPLAY = "tests/fuzz/fuzz_replay"
# Suites that take the engine as objects: they are linked again as the tests are.
SUITES = ["tests/save_faults", "tests/damaged_files", "tests/reliability/allocation_failure", FUZZ_REPLAY]
# And those that take the library, which is found by LD_LIBRARY_PATH.
WITH_LIBRARY = ["tests/misuse_suite", "tests/cli/cli_tests", "tests/capi/c_api_test", "tests/capi/c_api_threads_test",
                "tests/reliability/process_test", "tests/reliability/host_state"]
# A function check(bool condition, why...), whose callers' conditions are wanted one by one.
CHECKS = re.compile(r"(void check)(\(bool condition)|check = \[.*?\]\(bool condition")

def build(jobs):
    """The objects with counters, and the programs made of them."""
    if not shutil.which("clang++") or not shutil.which("llvm-cov"):
        print("SKIPPED, nothing was measured: there is no clang with llvm-cov (scripts/install-dependencies.sh --fuzz)")
        sys.exit(SKIPPED)
    relink.build_release(jobs, [*SUITES, *WITH_LIBRARY])
    COPIES.mkdir(parents=True, exist_ok=True)
    sources = WORK / "sources.txt"  # nothing of the libraries' headers is counted
    if not sources.is_file():
        sources.write_text("src:*/engine/*\nsrc:*/capi/src/*\n", encoding="utf-8")
    checking = set()
    for path in [*ROOT.glob("engine/**/*.cc"), *ROOT.glob("capi/src/**/*.cc")]:
        text = path.read_text(encoding="utf-8")
        name = str(path.relative_to(ROOT))
        if CHECKS.search(text):
            checking.add(name)
            copy = COPIES / name  # in which the macro of that name leaves the function itself alone
            copied = re.sub(r"(void )check(\(bool condition)", r"\1(check)\2", text)
            copy.parent.mkdir(parents=True, exist_ok=True)
            if not copy.is_file() or copy.read_text(encoding="utf-8") != copied:
                copy.write_text(copied, encoding="utf-8")

    def flags(source):
        result = ["-O0", "-fprofile-instr-generate", "-fcoverage-mapping", f"-fprofile-list={sources}",
                  "-include", str(ROOT / "tests/tools/coverage_conditions.h")]
        return result + (["-DTRAFO_CHECK_CONDITIONS"] if source in checking else [])

    relink.relink(lambda source, _: source.startswith(("engine/", "capi/src/")), WORK, jobs, copies=COPIES, compile_flags=flags,
                  link_flags=["-fprofile-instr-generate"], kernel_flags=["-O1"], compiler="clang++", programs=SUITES)

def run(commands, profile, jobs):
    """Runs the programs, with their counts added up in `profile`; whether one of them failed."""
    with tempfile.TemporaryDirectory(prefix="trafo-coverage-") as folder, concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        counts = pathlib.Path(folder) / "counts"
        environment = dict(os.environ, LD_LIBRARY_PATH=str(WORK), TMPDIR=folder, LLVM_PROFILE_FILE=f"{counts}/%4m.profraw",
                           TRAFO_BUILD=str(relink.RELEASE))

        def start(command):
            done = subprocess.run(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
            print(f"{' '.join(os.path.basename(word) for word in command[:2])}: exit status {done.returncode}", flush=True)
            if done.returncode != 0:
                print(done.stdout.decode(errors="replace")[-3000:], flush=True)
            return done.returncode

        failed = any(list(pool.map(start, commands)))
        subprocess.run(["llvm-profdata", "merge", "-sparse", "-o", str(profile), *map(str, counts.glob("*.profraw"))], check=True)
    return failed

def test_commands():
    quiet = {"tests/cli/cli_tests": ["--gtest_brief=1"]}
    return [*([str(relink.RELEASE / name), *quiet.get(name, [])] for name in WITH_LIBRARY),
            *([str(WORK / name)] for name in SUITES if name != FUZZ_REPLAY),
            *([str(WORK / name), "--gtest_brief=1"] for name in relink.TEST_PROGRAMS if name != "tests/op_tests"),
            [str(WORK / "tests/op_tests"), "--gtest_brief=1"],
            *corpus_commands()]

def corpus_commands(targets=None):
    corpus = ROOT / "tests/fuzz/corpus"
    return [[str(WORK / FUZZ_REPLAY), target, str(corpus / target)] for target in targets or sorted(os.listdir(corpus))]

class Counts:
    """Of a file: line -> times taken, and branch -> times taken, where a branch is (line, column, its number there, outcome)."""

    def __init__(self):
        self.lines = collections.Counter()
        self.branches = collections.Counter()

def name_of(path):
    path = os.path.normpath(path)
    for root in (COPIES, ROOT):
        if path.startswith(f"{root}/engine/") or path.startswith(f"{root}/capi/src/"):
            return os.path.relpath(path, root)
    return None

def exported(profile, form):
    command = ["llvm-cov", "export", f"-format={form}", f"-instr-profile={profile}", str(WORK / "libtrafo.so.0")]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout

class Source:
    """Lines of the sources, to tell a condition from a constant."""

    def __init__(self):
        self.texts = {}

    def is_constant(self, name, begin_line, begin, end_line, end):
        if name not in self.texts:
            self.texts[name] = (ROOT / name).read_text(encoding="utf-8").splitlines()
        line = self.texts[name][begin_line - 1]
        if "= default" in line:  # a comparison that the compiler writes
            return True
        return line[:begin - 1].endswith("if constexpr (") or (begin_line == end_line and line[begin - 1:end - 1] in ("true", "false"))

def add_branches(function, files, source):
    """llvm-cov's branches of one instance of a function; those inside a macro belong to the line that uses it."""
    uses = {region[6]: region for region in function["regions"] if region[7] == 1}  # file made by an expansion -> where
    numbers = collections.Counter()
    for begin_line, begin, end_line, end, taken, not_taken, file, *_ in function["branches"]:
        place = (begin_line, begin)
        inside = file in uses
        while file in uses:
            place, file = tuple(uses[file][:2]), uses[file][5]
        name = name_of(function["filenames"][file])
        if name is None or (not inside and source.is_constant(name, begin_line, begin, end_line, end)):
            continue
        numbers[name, place] += 1
        key = (*place, numbers[name, place])
        files[name].branches[(*key, True)] += taken
        files[name].branches[(*key, False)] += not_taken

def read_counts(profile, without=None):
    """Of every file; `without`: a pattern of functions that are left out."""
    files = collections.defaultdict(Counts)
    name = None
    for line in exported(profile, "lcov").splitlines():
        if line.startswith("SF:"):
            name = name_of(line[3:])
        elif line.startswith("DA:") and name:
            number, count = line[3:].split(",")[:2]
            files[name].lines[int(number)] += int(count)
    source = Source()
    functions = json.loads(exported(profile, "text"))["data"][0]["functions"]
    mangled = "\n".join(function["name"].split(":")[-1] for function in functions)  # local functions of a source have its name before theirs
    names = subprocess.run(["c++filt", "-i"], input=mangled, capture_output=True, text=True, check=True).stdout.splitlines()
    for function, signature in zip(functions, names):
        add_branches(function, files, source)
        whole = function["regions"][0]
        name = name_of(function["filenames"][whole[5]])
        if without and name and re.search(without, signature.replace("(anonymous namespace)::", "").split("(")[0] + "("):
            for line in range(whole[0], whole[2] + 1):
                files[name].lines.pop(line, None)
    return files

def share(counters):
    total = sum(len(counter) for counter in counters)
    taken = sum(1 for counter in counters for count in counter.values() if count > 0)
    return taken, total, 100.0 * taken / max(1, total)

def table(rows):
    """Prints rows of (part, what, (taken, of, share), target); the lines of the table and whether a target was missed."""
    lines = ["| part | what | taken | of | share | target |", "|---|---|---|---|---|---|"]
    missed = False
    for name, what, (taken, total, percent), target in rows:
        missed |= total == 0 or (target is not None and percent < target)
        lines.append(f"| {name} | {what} | {taken:,} | {total:,} | {percent:.1f} % | {f'{target} %' if target else ''} |")
    print("\n".join(lines), flush=True)
    return lines, missed

def rows_of_tests(files):
    rows = [("engine and C ABI", "lines", share([counts.lines for counts in files.values()]), LINES_TARGET)]
    for name, pattern in GROUPS.items():
        group = [counts for path, counts in files.items() if re.match(pattern, path)]
        rows.append((name, "lines", share([counts.lines for counts in group]), None))
        rows.append((name, "branches", share([counts.branches for counts in group]), BRANCHES_TARGET))
    return rows

def write_gaps(path, files):
    with open(path, "w", encoding="utf-8") as out:
        for name in sorted(files):
            counts = files[name]
            lines = sorted(number for number, count in counts.lines.items() if count == 0)
            branches = sorted(key for key, count in counts.branches.items() if count == 0 and key[0] not in lines)
            if lines or branches:
                shown = " ".join(f"{line}:{column}{f'#{number}' if number > 1 else ''}={str(outcome).lower()}"
                                 for line, column, number, outcome in branches)
                out.write(f"{name}: lines {share([counts.lines])[2]:.0f} % {lines}; branches {share([counts.branches])[2]:.0f} % {shown}\n")

def update_document(which, lines):
    begin, end = (f"<!-- table of tests/tools/coverage.py, {which}: {word} -->" for word in ("begin", "end"))
    text = DOCUMENT.read_text(encoding="utf-8")
    before, rest = text.split(begin)
    after = rest.split(end)[1]
    DOCUMENT.write_text(before + begin + "\n" + "\n".join(lines) + "\n" + end + after, encoding="utf-8")

def main():
    parser = argparse.ArgumentParser(description="Coverage of engine and C ABI.")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--only-corpus", action="store_true", help="only the parsers under their fuzz corpora")
    parser.add_argument("--only-tests", action="store_true", help="only the tests")
    parser.add_argument("--no-run", action="store_true", help="take the counts that are there")
    parser.add_argument("--gaps", help="write what nothing took into this file; of the corpora into FILE.corpus")
    parser.add_argument("--update-docs", action="store_true", help="write the tables into docs/lab/reliability-notes.md")
    options = parser.parse_args()
    if not options.no_run:
        build(options.jobs)
    missed = failed = False
    if not options.only_tests:
        rows, gaps = [], {}
        for target, (pattern, without) in PARSERS.items():
            profile = WORK / f"{target}.profdata"
            if not options.no_run:
                failed |= run(corpus_commands([target]), profile, 1)
            group = {path: counts for path, counts in read_counts(profile, without).items() if re.match(pattern, path)}
            gaps.update({f"{target} {path}": counts for path, counts in group.items()})
            rows.append((target, "lines", share([counts.lines for counts in group.values()]), PARSER_TARGET))
        lines, missed = table(rows)
        if options.gaps:
            write_gaps(f"{options.gaps}.corpus", gaps)
        if options.update_docs:
            update_document("fuzz corpora", lines)
    if not options.only_corpus:
        profile = WORK / "tests.profdata"
        if not options.no_run:
            failed |= run(test_commands(), profile, options.jobs)
        files = read_counts(profile)
        lines, below = table(rows_of_tests(files))
        missed |= below
        if options.gaps:
            write_gaps(options.gaps, files)
        if options.update_docs:
            update_document("tests", lines)
    if failed:
        print("coverage.py: programs failed, see above; what they counted until then is in the table")
    sys.exit(1 if missed or failed else 0)

if __name__ == "__main__":
    main()
