#!/usr/bin/env python3
"""Uses the learning service through OpenAI's own clients, of Python and of JavaScript.

    tests/learning/check_openai.py [--program FILE] [--base FOLDER] [--language-model FOLDER]

Whole and streamed answers of a translation model and a language model, usage, samples, seeds, stop strings, the list of models, and
errors as the clients' exceptions. The program and the small models are those that `cargo test` in examples/learning-service leaves
(scripts/test.sh). Exit status 77: a client cannot be installed here; it says which was not tried.
"""
import argparse
import pathlib
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests/tools"), str(ROOT / "tests/report")]
import own_environment
from check_service import TARGET, Service

PYTHON_CLIENT = "openai==3.57.0"
NODE_CLIENT = "openai@6.30.1"  # the newest that runs with Node 20
TOKEN = "a-token"
MESSAGES = [{"role": "user", "content": "heute kauft Anna den Hut in rot"}]


def expect(error, call, **arguments):
    try:
        call(**arguments)
    except error as found:
        return found
    raise AssertionError(f"no {error.__name__}")


def joined(parts, count):
    """Texts and ends of a stream's choices, and the usage that came last."""
    texts, ends, usage = [""] * count, [None] * count, None
    for part in parts:
        for choice in part.choices:
            text = choice.delta.content if hasattr(choice, "delta") else choice.text
            texts[choice.index] += text or ""
            ends[choice.index] = choice.finish_reason or ends[choice.index]
        usage = part.usage or usage
    return texts, ends, usage


def check_model(client, model):
    chat = client.chat.completions.create
    request = {"model": model, "messages": MESSAGES, "temperature": 0, "n": 2}
    whole = chat(**request)
    texts, ends, usage = joined(chat(**request, stream=True, stream_options={"include_usage": True}), 2)
    assert texts == [choice.message.content for choice in whole.choices], (texts, whole)
    assert ends == ["stop", "stop"] and "hat in red" in texts[0], (ends, texts)
    assert usage.total_tokens == whole.usage.total_tokens == usage.prompt_tokens + usage.completion_tokens, usage
    short = chat(model=model, messages=MESSAGES, temperature=0, max_tokens=2).choices[0]
    assert short.finish_reason == "length" and texts[0].startswith(short.message.content), short
    stopped = chat(model=model, messages=MESSAGES, temperature=0, stop="hat").choices[0]
    assert stopped.finish_reason == "stop" and texts[0].startswith(stopped.message.content + "hat"), stopped
    with client.chat.completions.stream(model=model, messages=MESSAGES, temperature=0) as stream:
        assert stream.get_final_completion().choices[0].message.content == texts[0]

    prompts = {"model": model, "prompt": ["heute kauft Anna", "bald kauft er"], "temperature": 0, "max_tokens": 5}
    completion = client.completions.create(**prompts)
    texts, _, _ = joined(client.completions.create(**prompts, stream=True), 2)
    assert texts == [choice.text for choice in completion.choices], (texts, completion)

    def drawn(seed):
        answer = chat(model=model, messages=MESSAGES, temperature=2, top_p=0.99, seed=seed, n=4)
        return [choice.message.content for choice in answer.choices]
    assert drawn(3) == drawn(3) != drawn(4)


def check(url, language_model):
    """With OpenAI's client for Python, in its environment."""
    import openai
    client = openai.OpenAI(base_url=f"{url}/v1", api_key=TOKEN, max_retries=0)
    assert {"translation", language_model} <= {model.id for model in client.models.list()}
    assert client.models.retrieve(language_model).id == language_model
    for model in ("translation", language_model):
        check_model(client, model)
    chat = client.chat.completions.create
    assert expect(openai.NotFoundError, chat, model="none", messages=MESSAGES).code == "model_not_found"
    wrong = expect(openai.BadRequestError, chat, model="translation", messages=MESSAGES, logprobs=True)
    assert wrong.param == "logprobs", wrong.body
    too_long = [{"role": "user", "content": "rot " * 300}]
    expect(openai.BadRequestError, chat, model=language_model, messages=too_long, stream=True)
    stranger = openai.OpenAI(base_url=f"{url}/v1", api_key="wrong", max_retries=0)
    expect(openai.AuthenticationError, stranger.models.list)
    for _ in chat(model=language_model, messages=MESSAGES, stream=True):
        break  # a client that goes away
    print("check_openai: all is well with the client of Python", openai.__version__, flush=True)


def node_folder():
    """The folder with the client of JavaScript; none if it cannot be installed."""
    folder = ROOT / "build/openai-node"
    if not shutil.which("npm"):
        return None
    client = folder / "node_modules/openai/package.json"
    if not client.exists() or f'"version": "{NODE_CLIENT.split("@")[1]}"' not in client.read_text(encoding="utf-8"):
        folder.mkdir(parents=True, exist_ok=True)
        if subprocess.run(["npm", "install", "--silent", "--no-audit", "--no-fund", "--prefix", folder, NODE_CLIENT]).returncode != 0:
            return None
    return folder


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--program", type=pathlib.Path, default=TARGET / "debug/learning-service")
    parser.add_argument("--base", type=pathlib.Path, default=TARGET / "tmp/base-of-service")
    parser.add_argument("--language-model", type=pathlib.Path, default=TARGET / "tmp/answers")
    parser.add_argument("--python-client", metavar="URL", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    program, base, model = (path.resolve() for path in (arguments.program, arguments.base, arguments.language_model))
    if arguments.python_client:
        check(arguments.python_client, model.name)
        return
    for path in (program, base, model):
        if not path.exists():
            sys.exit(f"check_openai: {path} is missing; scripts/test.sh makes it")
    python = own_environment.python_with(ROOT / "build/openai-python", [PYTHON_CLIENT])
    node = node_folder()
    with tempfile.TemporaryDirectory() as folder, \
            Service(program, base, f"{folder}/data", ["--beam", "4", "--language-model", model], TOKEN) as service:
        subprocess.run([python, __file__, "--language-model", model, "--python-client", service.url], check=True)
        if node is None:
            print("check_openai: SKIPPED, the client of JavaScript cannot be installed here and was not tried")
            sys.exit(own_environment.SKIPPED)
        shutil.copy(pathlib.Path(__file__).with_name("openai_client.mjs"), node)
        subprocess.run(["node", node / "openai_client.mjs", service.url, TOKEN, model.name], check=True)
        assert service.process.poll() is None, "the service has ended"
    print("check_openai: all is well")


if __name__ == "__main__":
    main()
