#!/usr/bin/env python3
"""Exports of translate-train as ONNX, run by ONNX Runtime or, with --runtime openvino, by OpenVINO.

    python3 tests/parity/onnx_parity.py [--translate-train build/release/translate-train] [--cases build/release/tests/onnx_cases]

1. onnx_cases writes small random models of every form (norms before and after, RMS and layer norm, every activation, positions and
   feed-forward, shared keys, with and without biases, tied and not) and the engine's logits for a batch of three. Here: onnx.checker,
   and the logits within 1e-4 of the engine's, for the padded batch at once and for a first part and cached steps after it.
   The same models in int8: within INT8_GAP of the engine's float32 logits.
2. Three trained models: greedy translations equal translate-train's. In int8 the share of equal ones is told and not judged.

    python3 tests/parity/onnx_parity.py --model RUN ... --source FILE [--reference FILE] [--least-equal 0.99] [--runtime openvino]

Instead, the greedy translations of a file by models that are trained already: --least-equal of them must be equal to translate-train's.

Needs nothing: packages go into a separate environment (--environment, kept between runs). Exit codes: 0 all equal, 1 not, 77 the
packages cannot be had here.
"""
import argparse
import json
import os
import subprocess
import sys
import tempfile
import time

PACKAGES = ["onnxruntime==1.32.0", "onnx==1.23.2", "sentencepiece==0.2.3", "numpy==2.4.6"]
OPENVINO = ["openvino==2026.4.1"]
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "tests/tools"))
import export_parity
import own_environment

TOLERANCE = 1e-4  # of a logit, relative to the largest one if that is above 1
INT8_GAP = 0.1  # of the same; activations and weights are rounded
PAD = 0  # any id: padding is not seen
runtime = "onnxruntime"
threads = 1


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--translate-train", default=os.path.join(ROOT, "build/release/translate-train"))
    parser.add_argument("--cases", default=os.path.join(ROOT, "build/release/tests/onnx_cases"))
    parser.add_argument("--environment", default=os.path.join(ROOT, "build/onnx-environment"))
    parser.add_argument("--runtime", choices=["onnxruntime", "openvino"], default="onnxruntime")
    parser.add_argument("--data", help="a folder of corpora instead of the made-up one, as for export_parity.py")
    parser.add_argument("--updates", type=int, default=100, help="of the trained models")
    parser.add_argument("--sentences", type=int, default=100, help="of the test set")
    parser.add_argument("--model", nargs="+", metavar="RUN", help="only these trained models, with --source")
    parser.add_argument("--source", help="lines to translate, plain or .gz")
    parser.add_argument("--reference", help="their translations; BLEU says whether the text is worth comparing")
    parser.add_argument("--least-equal", type=float, default=0.99, help="the share of translations that must be equal")
    arguments = parser.parse_args()
    if bool(arguments.model) != bool(arguments.source):
        parser.error("--model and --source go together")
    return arguments


def padded(lists, left=False):
    """ids and mask, [lists, longest] int64"""
    import numpy as np
    longest = max(map(len, lists))
    ids, mask = np.full((len(lists), longest), PAD, np.int64), np.zeros((len(lists), longest), np.int64)
    for row, values in enumerate(lists):
        place = slice(longest - len(values), longest) if left else slice(0, len(values))
        ids[row, place], mask[row, place] = values, 1
    return ids, mask


class OpenVinoSession:
    """A graph in OpenVINO, with the methods of ONNX Runtime's session that are used here."""

    class Port:
        def __init__(self, port):
            self.name = port.get_any_name()
            self.shape = [size.get_length() if size.is_static else None for size in port.get_partial_shape()]

    def __init__(self, path):
        import openvino
        core = openvino.Core()
        self.model = core.compile_model(core.read_model(path), "CPU", {
            "INFERENCE_PRECISION_HINT": "f32", "INFERENCE_NUM_THREADS": threads, "EXECUTION_MODE_HINT": "ACCURACY"})

    def get_inputs(self):
        return [self.Port(port) for port in self.model.inputs]

    def get_outputs(self):
        return [self.Port(port) for port in self.model.outputs]

    def run(self, names, feeds):
        results = self.model(feeds)
        return [results[name] for name in names or [port.name for port in self.get_outputs()]]


def session(folder, name):
    if runtime == "openvino":
        return OpenVinoSession(os.path.join(folder, name))
    import onnxruntime
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(os.path.join(folder, name), options, providers=["CPUExecutionProvider"])


class Translation:
    """The three graphs of an encoder-decoder. step() takes the next tokens [batch, n] and gives their logits."""

    def __init__(self, folder):
        self.encoder, self.first, self.next = (session(folder, name) for name in (
            "encoder_model.onnx", "decoder_model.onnx", "decoder_with_past_model.onnx"))

    def start(self, sources):
        ids, self.mask = padded(sources)
        self.hidden, = self.encoder.run(None, {"input_ids": ids, "attention_mask": self.mask})
        self.past = None

    def step(self, ids):
        feeds = {"input_ids": ids, "encoder_attention_mask": self.mask}
        if self.past is None:
            names = [output.name for output in self.first.get_outputs()]
            logits, *present = self.first.run(names, feeds | {"encoder_hidden_states": self.hidden})
            self.past = {}
        else:
            names = [output.name for output in self.next.get_outputs()]
            logits, *present = self.next.run(names, feeds | self.past)
        self.past.update({name.replace("present", "past_key_values"): value for name, value in zip(names[1:], present)})
        return logits


class LanguageModel:
    """The graph of a decoder-only model. The tokens of a step may be masked: padding before a prompt, or after it."""

    def __init__(self, folder):
        self.graph = session(folder, "model.onnx")

    def start(self, batch):
        import numpy as np
        self.mask = np.zeros((batch, 0), np.int64)
        shapes = {item.name: item.shape for item in self.graph.get_inputs() if item.name.startswith("past")}
        self.past = {name: np.zeros((batch, heads, 0, width), np.float32) for name, (_, heads, _, width) in shapes.items()}

    def step(self, ids, mask=None):
        import numpy as np
        new = np.ones_like(ids) if mask is None else mask
        self.mask = np.concatenate([self.mask, new], 1)
        positions = np.maximum(self.mask.cumsum(1) - 1, 0)[:, -ids.shape[1]:]
        names = [output.name for output in self.graph.get_outputs()]
        logits, *present = self.graph.run(names, {"input_ids": ids, "attention_mask": self.mask, "position_ids": positions} | self.past)
        self.past = {name.replace("present", "past_key_values"): value for name, value in zip(names[1:], present)}
        return logits


# ---- 1: random models ----

def check_files(folder):
    import onnx
    names = sorted(name for name in os.listdir(folder) if name.endswith(".onnx"))
    for name in names:
        path = os.path.join(folder, name)
        onnx.checker.check_model(path, full_check=True)
        model = onnx.load(path, load_external_data=False)
        assert model.ir_version == 8 and [(o.domain, o.version) for o in model.opset_import] == [("", 17)], name
        for tensor in model.graph.initializer:
            assert tensor.data_location == onnx.TensorProto.EXTERNAL or len(tensor.raw_data) <= 8 * 64, tensor.name
    return names


def gap(wanted, logits, inputs, begins=None):
    """The largest difference of the logits of every sequence's tokens, relative to the largest logit if that is above 1."""
    import numpy as np
    largest, at = 0.0, 0
    for row, ids in enumerate(inputs):
        begin = begins[row] if begins is not None else 0
        largest = max(largest, float(np.abs(logits[row, begin:begin + len(ids)] - wanted[at:at + len(ids)]).max()))
        at += len(ids)
    assert at == len(wanted)
    return largest / max(1.0, float(np.abs(wanted).max()))


def in_steps(step, ids, cuts):
    import numpy as np
    return np.concatenate([step(ids[:, begin:end]) for begin, end in zip([0, *cuts], [*cuts, ids.shape[1]])], 1)


def case_gaps(case, folder, form=""):
    """(what, difference) of each way to compute the logits with the graphs NAME and `form`."""
    import numpy as np
    inputs = case["inputs"]
    wanted = np.fromfile(os.path.join(folder, case["name"] + ".f32"), np.float32).reshape(-1, case["vocabulary"])
    directory = os.path.join(folder, case["name"] + form)
    ids, mask = padded(inputs)
    cuts = [3, 4, 5, 9, *range(10, ids.shape[1])]  # the first tokens, single ones, some at once
    if case["encoder"]:
        assert check_files(directory) == ["decoder_model.onnx", "decoder_with_past_model.onnx", "encoder_model.onnx"]
        model = Translation(directory)
        model.start(case["sources"])
        yield "whole", gap(wanted, model.step(ids), inputs)
        model.start(case["sources"])
        yield "steps", gap(wanted, in_steps(model.step, ids, cuts), inputs)
        return
    assert check_files(directory) == ["model.onnx"]
    model = LanguageModel(directory)
    model.start(len(inputs))
    yield "whole", gap(wanted, model.step(ids, mask), inputs)
    left, left_mask = padded(inputs, left=True)
    begins = [left.shape[1] - len(one) for one in inputs]
    model.start(len(inputs))
    yield "left padding", gap(wanted, model.step(left, left_mask), inputs, begins)
    model.start(len(inputs))
    both = np.stack([left, left_mask])
    parts = [model.step(both[0, :, b:e], both[1, :, b:e]) for b, e in zip([0, *cuts], [*cuts, left.shape[1]])]
    yield "steps", gap(wanted, np.concatenate(parts, 1), inputs, begins)


def check_cases(checks, program, folder):
    subprocess.run([program, folder], check=True)
    with open(os.path.join(folder, "cases.json"), encoding="utf-8") as file:
        cases = json.load(file)
    for case in cases:
        for form, tolerance in (("", TOLERANCE), ("-int8", INT8_GAP)):
            gaps = dict(case_gaps(case, folder, form))
            checks.say(max(gaps.values()) <= tolerance,
                       case["name"] + form + ": " + ", ".join(f"{what} {value:.1e}" for what, value in gaps.items()))
    checks.say(len(cases) >= 28, f"{len(cases)} random models")


# ---- 2: trained models ----

def greedy(step, prompt, never, end, longest):
    """Ids of the most likely tokens; `prompt` gives the first logits, step(ids [batch, 1]) the next."""
    import numpy as np
    logits = prompt[:, -1]
    lines, open_lines = [[] for _ in logits], set(range(len(logits)))
    for _ in range(longest):
        logits[:, never] = -np.inf
        best = logits.argmax(1)
        for row in sorted(open_lines):
            if best[row] == end:
                open_lines.discard(row)
            else:
                lines[row].append(int(best[row]))
        if not open_lines:
            break
        logits = step(best[:, None].astype(np.int64))[:, -1]
    return lines


def check_greedy(checks, program, run, test, weights, share=1.0):
    """Returns the translations of the runtime."""
    import sentencepiece
    import numpy as np
    label = os.path.basename(run)
    folder = os.path.join(program.folder, f"{label}-onnx-{weights}")
    program.run("export", "-m", run, "--to", "onnx", "--weights", weights, "-o", folder, "--quiet")
    is_translation = os.path.exists(os.path.join(folder, "encoder_model.onnx"))
    spm = sentencepiece.SentencePieceProcessor(
        model_file=os.path.join(folder, "source.spm" if is_translation else "tokenizer.model"))
    with open(os.path.join(folder, "generation_config.json"), encoding="utf-8") as file:
        generation = json.load(file)
    never, end = generation["suppress_tokens"], generation["eos_token_id"]
    model = Translation(folder) if is_translation else LanguageModel(folder)
    texts = []
    for lines in export_parity.batches(export_parity.encode_all(spm, test)):
        if is_translation:
            model.start(lines)
            first = model.step(np.full((len(lines), 1), generation["decoder_start_token_id"], np.int64))
        else:
            model.start(len(lines))
            first = model.step(*padded(lines, left=True))
        texts += [spm.decode(ids) for ids in greedy(model.step, first, never, end, export_parity.LONGEST)]
    size = os.path.getsize(os.path.join(folder, "model.onnx_data"))
    name, ours = f"{runtime} ({label}, {weights}, {size / 1e6:.2f} MB)", program.greedy(run, test)
    if weights == "float32":
        checks.translations(name, ours, texts, share)
    else:
        same = sum(a.strip() == b.strip() for a, b in zip(ours, texts, strict=True))
        print(f"        {name}: {same} of {len(ours)} translations are those of float32", flush=True)
    return texts


def check_models(checks, arguments, folder):
    program = export_parity.Program(arguments.translate_train, folder, 0)
    test = export_parity.read_lines(arguments.source)
    reference = arguments.reference and export_parity.read_lines(arguments.reference)
    for model in map(os.path.abspath, arguments.model):
        for weights in ("float32", "int8"):
            texts = check_greedy(checks, program, model, test, weights, arguments.least_equal)
            if reference:
                print(f"        BLEU {program.bleu(texts, reference):.2f}, {len(set(texts))} different translations", flush=True)


def check_trained(checks, arguments, folder):
    train, test, _ = export_parity.corpora(arguments)
    export_parity.write_lines(os.path.join(folder, "train.src"), [source for source, _ in train])
    export_parity.write_lines(os.path.join(folder, "train.trg"), [target for _, target in train])
    program = export_parity.Program(arguments.translate_train, folder, 2000 if arguments.data else 100)
    for name, flags in [("pre", ("--enc-depth", "2", "--transformer-norm", "pre")), ("gpt2", ("--arch", "decoder-lm")),
                        ("llama", ("--task", "llama", "--transformer-kv-heads", "2"))]:
        run = program.train(name, arguments.updates, *flags)
        check_greedy(checks, program, run, test, "float32")
        check_greedy(checks, program, run, test, "int8")


def main():
    arguments = parse_arguments()
    global runtime
    runtime = arguments.runtime
    own_environment.enter(arguments.environment, PACKAGES + (OPENVINO if runtime == "openvino" else []))
    began = time.time()
    checks = export_parity.Checks()
    with tempfile.TemporaryDirectory() as folder:
        if arguments.model:
            check_models(checks, arguments, folder)
        else:
            check_cases(checks, arguments.cases, folder)
            check_trained(checks, arguments, folder)
    print(f"{'all equal' if checks.failed == 0 else f'{checks.failed} checks failed'}, {time.time() - began:.0f} s")
    sys.exit(checks.failed != 0)


if __name__ == "__main__":
    main()
