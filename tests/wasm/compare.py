#!/usr/bin/env python3
"""Compares the files of two runs of the steps, byte by byte but for times: compare.py NATIVE WASM"""
import json
import pathlib
import sys


def files(folder):
    return {path.relative_to(folder): path for path in sorted(folder.rglob("*")) if path.is_file() and not path.is_symlink()}


def without_times(path):
    content = json.loads(path.read_text())
    if path.name == "state.json":
        del content["train_seconds"]
    else:  # a manifest has the size and the checksum of state.json, and its own
        del content["files"]["state.json"], content["crc32"]
    return content


def same(one, other):
    if one.name in ("state.json", "manifest.json"):
        return without_times(one) == without_times(other)
    return one.read_bytes() == other.read_bytes()


def main():
    native, wasm = files(pathlib.Path(sys.argv[1])), files(pathlib.Path(sys.argv[2]))
    wasm.pop(pathlib.Path("pairs.tsv"), None)
    if native.keys() != wasm.keys():
        sys.exit(f"compare: other files: {sorted(map(str, native.keys() ^ wasm.keys()))}")
    different = [str(name) for name in native if not same(native[name], wasm[name])]
    if different:
        sys.exit(f"compare: these files differ: {', '.join(different)}")
    print(f"compare: {len(native)} files of models, checkpoints, losses and translations have the same bytes")


if __name__ == "__main__":
    main()
