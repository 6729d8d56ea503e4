#!/usr/bin/env python3
"""Exported ONNX graphs in TensorRT for RTX: its parser takes each of them, and it compiles them for a GPU that this machine need not have.

    python3 tests/parity/tensorrt_parity.py [--cases build/release/tests/onnx_cases] [--compute-capability 89]

Takes the random models of onnx_parity.py, of every form. Each graph in float32 must be parsed, and compiled with dynamic batches and lengths. Graphs
in int8 are refused for an operator that TensorRT lacks. Nothing is run: that needs a GPU.

The packages go into a separate environment of 0.3 GB (--environment, kept between runs). Exit codes: 0 all as it should be, 1 not, 77 the packages
cannot be had here.
"""
import argparse
import collections
import json
import os
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "tests/tools"))
import export_parity
import own_environment

PACKAGES = ["tensorrt-rtx-cu13==1.7.1.116"]
LACKED = {"DynamicQuantizeLinear", "MatMulInteger"}
SIZES = {"batch_size": (1, 2, 4), "past": (1, 8, 16), "length": (1, 4, 16)}  # least, usual and largest


class Messages:
    """A logger that keeps the errors of a compilation."""

    def __new__(cls):
        import tensorrt_rtx as trt

        class Logger(trt.ILogger):
            def __init__(self):
                super().__init__()
                self.errors = []

            def log(self, severity, text):
                if severity in (trt.ILogger.ERROR, trt.ILogger.INTERNAL_ERROR):
                    self.errors.append(text)
        return Logger()


def sizes_of(dimension):
    """(least, usual, largest) of a dimension that the graph names; a sum of two names is the sum."""
    kind = lambda name: "past" if "past" in name else "length" if "length" in name else name
    parts = [SIZES[kind(name)] for name in dimension.split(" + ")]
    return tuple(map(sum, zip(*parts)))


def parse(path, logger):
    """A builder, a network with its parser, and the operators that are refused."""
    import tensorrt_rtx as trt
    builder = trt.Builder(logger)
    network = builder.create_network(0)
    parser = trt.OnnxParser(network, logger)
    is_good = parser.parse_from_file(path)
    return builder, (network, parser) if is_good else None, {parser.get_error(i).node_operator() for i in range(parser.num_errors)}


def compiled(builder, network, capability, logger):
    """The size of the engine, or the errors."""
    import tensorrt_rtx as trt
    config, profile = builder.create_builder_config(), builder.create_optimization_profile()
    config.num_compute_capabilities = 1
    config.set_compute_capability(getattr(trt.ComputeCapability, f"SM{capability}"), 0)
    for i in range(network.num_inputs):
        each = network.get_input(i)
        shapes = [[size if size >= 0 else sizes_of(each.get_dimension_name(d))[step] for d, size in enumerate(each.shape)] for step in range(3)]
        profile.set_shape(each.name, *shapes)
    config.add_optimization_profile(profile)
    engine = builder.build_serialized_network(network, config)
    return (engine.nbytes, []) if engine is not None else (0, logger.errors)


def check(checks, case, path, capability, counts):
    logger = Messages()
    name = os.path.join(case, os.path.basename(path))
    builder, parsed, refused = parse(path, logger)
    is_int8 = case.endswith("-int8")
    counts["int8" if is_int8 else "graphs"] += 1
    if is_int8 or parsed is None:
        checks.say(is_int8 and refused and refused <= LACKED, f"{name}: " + (f"{' and '.join(sorted(refused))} refused" if refused else "parsed"))
        return
    size, errors = compiled(builder, parsed[0], capability, logger)
    counts["compiled"] += size > 0
    checks.say(size > 0, f"{name}: parsed, " + (f"compiled, {size} bytes" if size else f"not compiled: {errors[-1:]}"))


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--cases", default=os.path.join(ROOT, "build/release/tests/onnx_cases"))
    parser.add_argument("--environment", default=os.path.join(ROOT, "build/tensorrt-environment"))
    parser.add_argument("--compute-capability", default="89", help="without a point")
    parser.add_argument("--only", default="", help="models whose names have this in them")
    arguments = parser.parse_args()
    own_environment.enter(arguments.environment, PACKAGES)
    began, checks, counts = time.time(), export_parity.Checks(), collections.Counter()
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([arguments.cases, folder], check=True)
        with open(os.path.join(folder, "cases.json"), encoding="utf-8") as file:
            names = [case["name"] + form for case in json.load(file) for form in ("", "-int8")]
        for name in [name for name in names if arguments.only in name]:
            for graph in sorted(file for file in os.listdir(os.path.join(folder, name)) if file.endswith(".onnx")):
                check(checks, name, os.path.join(folder, name, graph), arguments.compute_capability, counts)
    print(f"{counts['compiled']} of {counts['graphs']} graphs compiled for {arguments.compute_capability}, {counts['int8']} graphs in int8")
    export_parity.finish(checks, began)


if __name__ == "__main__":
    main()
