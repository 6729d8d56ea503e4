#!/usr/bin/env python3
"""Trains and translates on the page of examples/browser in headless Chromium.

    browser_test.py PAGE OUT PAIRS LINES

PAGE: the folder build/wasm/page. OUT gets the files that the page downloads, and the translations. Exit code 77: there is no Chromium.
"""
import base64
import json
import pathlib
import sys
import tempfile
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
for folder in ("tests/learning", "tests/report", "examples/browser"):
    sys.path.insert(0, str(ROOT / folder))
import browser
import screenshot
import serve

UPDATES = 40


def set_value(page, element, text):
    page.value(f"document.getElementById('{element}').value = {json.dumps(text)}")


def says(page, words, seconds=300):
    page.wait(f"document.getElementById('said').textContent.includes({json.dumps(words)})", seconds)


def trains(page, pairs):
    set_value(page, "pairs", pairs)
    page.click("#create")
    says(page, "a new model")
    set_value(page, "updates", str(UPDATES // 2))
    begin = time.monotonic()
    for part in (UPDATES // 2, UPDATES):  # the second call resumes
        page.click("#train")
        says(page, f"trained {part} updates")
    print(f"browser_test: {UPDATES / (time.monotonic() - begin):.1f} updates/s")
    points = page.value("document.getElementById('line').getAttribute('points')").split()
    assert len(points) == UPDATES, points
    heights = [float(point.split(",")[1]) for point in points]
    assert heights[-1] > heights[0] + 30, f"the loss does not fall: {heights}"  # y grows downwards


def stops(page):
    """A run that is stopped keeps what it has learned."""
    set_value(page, "updates", "100000")
    page.click("#train")
    page.wait("document.getElementById('line').getAttribute('points').split(' ').length >= 3")
    page.click("#stop")
    says(page, "trained ")
    assert translates(page, "karen")


def translates(page, lines):
    set_value(page, "source", lines)
    for _ in range(2):  # the first call loads the model
        set_value(page, "target", "")
        page.click("#translate")
        page.wait("document.getElementById('target').value !== ''", 300)
    print(f"browser_test: {page.text('#said')} of beam 4")
    return page.value("document.getElementById('target').value")


def saved(page):
    """The files of the model, as the page gives them to a person."""
    page.value("""window.files = {}; URL.createObjectURL = blob => { window.blobs = (window.blobs || []).concat(blob); return 'data:,'; };
        HTMLAnchorElement.prototype.click = function () {
          const blob = window.blobs.at(-1), name = this.download, reader = new FileReader();
          reader.onload = () => { window.files[name] = reader.result.split(',')[1]; };
          reader.readAsDataURL(blob);
        }; 0""")
    page.click("#save")
    page.wait("Object.keys(window.files).length === 2")
    return {name: base64.b64decode(text) for name, text in page.value("window.files").items()}


def opens(page, folder):
    """A model of files; one file alone is refused in words."""
    tree = page.call("DOM.getDocument")["root"]["nodeId"]
    chooser = page.call("DOM.querySelector", nodeId=tree, selector="#files")["nodeId"]
    page.call("DOM.setFileInputFiles", nodeId=chooser, files=[str(folder / "model.safetensors")])
    says(page, "spm.model is missing")
    page.call("DOM.setFileInputFiles", nodeId=chooser, files=[str(folder / name) for name in ("model.safetensors", "spm.model")])
    says(page, "opened ")


def refuses(page):
    """A fault is said in words, and the page continues."""
    set_value(page, "pairs", "a line without a tab")
    page.click("#train")
    says(page, "pairs.tsv")


def main():
    page_folder, out, pairs, lines = map(pathlib.Path, sys.argv[1:])
    screenshot.browser_path()
    out.mkdir(parents=True, exist_ok=True)
    server = serve.server(str(page_folder))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    with tempfile.TemporaryDirectory() as name:
        chromium = browser.Browser(pathlib.Path(name))
        try:
            page = browser.Page(chromium, f"http://127.0.0.1:{server.server_address[1]}/index.html", 900, 1100)
            assert page.value("crossOriginIsolated"), "the server does not send the headers that threads need"
            says(page, "ready")
            trains(page, pairs.read_text())
            files = saved(page)
            for file, content in files.items():
                (out / file).write_bytes(content)
            first = translates(page, lines.read_text())
            (out / "beam4.txt").write_text(first)
            opens(page, out)
            assert translates(page, lines.read_text()) == first, "a model that was saved and opened translates otherwise"
            refuses(page)
            set_value(page, "pairs", pairs.read_text())
            stops(page)
            for event in chromium.events:
                assert event["method"] != "Runtime.exceptionThrown", event
        finally:
            chromium.close()
            server.shutdown()
    print("browser_test: the page trains, resumes, saves, opens and translates")


if __name__ == "__main__":
    main()
