#!/usr/bin/env python3
"""Clicks through the page of the learning service, and compares its HTTP interface with openapi.json.

    tests/learning/check_service.py [--program FILE] [--base FOLDER] [--pictures DIR] [--examples 4]
    tests/learning/check_service.py --readme docs/learning-service.png

The page, in headless Chromium: ask, correct, set a term, learn, compare, roll back; once by mouse on a wide screen, once by keyboard
alone on a dark phone. schemathesis sends requests that openapi.json allows and others that it does not, and checks every answer
against it. The program and the small base are those that `cargo test` in examples/learning-service leaves (scripts/test.sh), which
also leaves the program in Go: --program bindings/rust/target/learning-service-go.

--readme also takes the second picture of the README, at two thirds of its size. Exit status 77: there is no browser, or schemathesis
cannot be installed; it says what was not checked.
"""
import argparse
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests/tools"), str(ROOT / "tests/report")]
import browser
import own_environment
import screenshot

PACKAGES = ["schemathesis==4.32.5"]
TARGET = ROOT / "bindings/rust/target"
ROUND = 600  # most seconds of a round, which takes a few where nothing else computes
# Words of the small base's language (tests/common/mod.rs of the service), and a word that it does not know.
PEOPLE = {"Anna": "Anna", "mein Bruder": "my brother", "er": "he"}
COLOURS = {"rot": "red", "blau": "blue", "grün": "green", "weiß": "white"}
TIMES = {"heute": "today", "morgen": "tomorrow", "bald": "soon", "jetzt": "now"}
TOOLS = {"Bohrer": "drill", "Seil": "rope"}
ASKED = ("heute kauft Anna den Bohrer in rot", "Anna buys the drill in red today")


def sentences():
    for time_, t in TIMES.items():
        for person, p in PEOPLE.items():
            for colour, c in COLOURS.items():
                for tool, word in TOOLS.items():
                    yield f"{time_} kauft {person} den {tool} in {colour}", f"{p} buys the {word} in {c} {t}"


class Service:
    def __init__(self, program, base, data, options, token=""):
        environment = {name: value for name, value in os.environ.items() if name != "LEARNING_SERVICE_TOKEN"}
        self.headers = {"Authorization": f"Bearer {token}"} if token else {}
        if token:
            environment["LEARNING_SERVICE_TOKEN"] = token
        self.process = subprocess.Popen([program, "--base", base, "--data", data, "--address", "127.0.0.1:0", *options],
                                        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environment)
        said = self.process.stdout.readline()
        found = re.search(r"http://\S+", said)
        assert found, f"{program} does not start: {said}"
        self.url = found[0]

    def post(self, path, body):
        request = urllib.request.Request(f"{self.url}/{path}", json.dumps(body).encode(), self.headers)
        with urllib.request.urlopen(request, timeout=60) as answer:
            return json.load(answer)

    def correct(self, domain, pairs):
        for source, right in pairs:
            self.post("corrections", {"domain": domain, "who": "Otto", "source": source, "said": "?", "right": right})

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()


def status(page):
    return page.text("#message")


def story_by_mouse(driver, service, pictures, readme):
    page = browser.Page(driver, service.url, 1000, 900)
    for field, text in (("#domain", "tools"), ("#who", "Anna"), ("#source", ASKED[0])):
        page.click(field)
        page.write(text)
    page.click("#ask button")
    page.wait("document.querySelector('#said').textContent !== ''")
    assert page.text("#by") == "by the base model", page.text("#by")
    before = page.text("#said")
    assert "drill" not in before, before
    page.click("#right")
    page.write(ASKED[1])
    page.click("#correct button")
    page.wait("document.querySelector('#message').textContent.endsWith('is stored.')")
    page.wait("document.querySelector('#queue').textContent.startsWith('1 corrections')")
    for field, text in (("#term-source", "Bohrer"), ("#term-target", "drill")):
        page.click(field)
        page.write(text)
    page.click("#term button")
    page.wait("document.querySelector('#terms').textContent === 'Bohrer → drill'")
    service.correct("tools", list(sentences())[1:60])
    page.wait("document.querySelector('#queue').textContent.startsWith('60 corrections')")
    page.click("#learn")
    # On a fast machine, a round is over between two looks of the page.
    page.wait("document.querySelector('#phase').textContent.startsWith('Version 1 is') || "
              "document.querySelector('#history td').textContent === '1 (served)'")
    page.wait("document.querySelector('#history td').textContent === '1 (served)'", ROUND)
    page.wait("document.querySelector('#curve polyline') && document.querySelector('#changes').rows.length > 5")
    assert page.text("#figures").startswith("Version 1 against the base:"), page.text("#figures")
    page.click("#ask button")
    page.wait("document.querySelector('#by').textContent === 'by version 1 of tools'")
    after = page.text("#said")
    assert "drill" in after, after
    print(f"{ASKED[0]}: {before} -> {after}")
    page.picture(pictures / "wide.png", whole=True)
    if readme:
        page.picture(readme, whole=True, scale=0.66)
    page.click("[aria-label='Serve the base']")
    page.wait("document.querySelector('#message').textContent === 'The base is served.'")
    page.click("#ask button")
    page.wait("document.querySelector('#by').textContent === 'by the base model'")
    assert page.text("#said") == before
    page.click("[aria-label='Serve version 1']")
    page.wait("document.querySelector('#message').textContent === 'Version 1 is served.'")
    return page


def story_by_keyboard(driver, service, pictures, _):
    page = browser.Page(driver, service.url, 390, 844, dark=True, phone=True)
    # A refusal is told: there is nothing to learn from.
    page.tab_to("#domain")
    page.write("phone")
    page.tab_to("#source")
    page.write(ASKED[0])
    page.tab_to("#ask button")
    page.press("Enter")
    page.wait("document.querySelector('#said').textContent !== ''")
    page.tab_to("#correct button")
    page.press("Enter")
    page.wait("document.querySelector('#message').textContent.startsWith('Your name is missing')")
    page.wait("document.activeElement.id === 'who'")
    page.write("Zoe")
    page.tab_to("#right")
    page.write(ASKED[1])
    page.tab_to("#correct button")
    page.press("Space")
    page.wait("document.querySelector('#message').textContent.endsWith('is stored.')")
    page.tab_to("#term-source")
    page.write("Seil")
    page.tab_to("#term-target")
    page.write("rope")
    page.press("Enter")
    page.wait("document.querySelector('#terms').textContent === 'Seil → rope'")
    service.correct("phone", list(sentences())[1:60])
    page.wait("document.querySelector('#queue').textContent.startsWith('60 corrections')")
    page.tab_to("#learn", backwards=True)
    page.press("Enter")
    page.wait("document.querySelector('#history td').textContent === '1 (served)'", ROUND)
    page.tab_to("[aria-label='Serve the base']")
    page.press("Enter")
    page.wait("document.querySelector('#message').textContent === 'The base is served.'")
    # The table is made anew, and the focus stays.
    page.wait("document.activeElement.getAttribute('aria-label') === 'Serve the base'")
    page.tab_to("[aria-label='Serve version 1']", backwards=True)
    page.press("Space")
    page.wait("document.querySelector('#message').textContent === 'Version 1 is served.'")
    width = page.value("[document.documentElement.scrollWidth, innerWidth]")
    assert width[0] <= width[1], f"{width[0]} wide on a screen of {width[1]}"
    page.value("scrollTo(0, 0)")
    page.picture(pictures / "phone.png")
    row, size = next(screenshot.pixels(pictures / "phone.png"))
    assert max(row[:size][:3]) < 80, f"a dark page begins with {tuple(row[:size])}"
    return page


def check_page(program, base, folder, pictures, readme):
    options = ["--batch", "1000", "--beam", "1", "--updates", "160", "--every", "20", "--patience", "4", "--replay", "100",
               "--learning-rate", "0.01", "--share", "0.5", "--batch-tokens", "512"]
    driver = browser.Browser(folder)
    try:
        with Service(program, base, folder / "page", options) as service:
            for story in (story_by_mouse, story_by_keyboard):
                began = time.monotonic()
                page = story(driver, service, pictures, readme)
                complaints = page.complaints(service.url)
                assert not complaints, complaints
                print(f"{story.__name__}: all is well after {time.monotonic() - began:.0f} s", flush=True)
    finally:
        driver.close()


def check_interface(program, base, folder, examples):
    """Domains are few, so that requests meet what earlier ones have made."""
    python = own_environment.python_with(ROOT / "build/schemathesis", PACKAGES)
    options = ["--batch", "1000000", "--beam", "1", "--most-domains", "3"]
    with Service(program, base, folder / "interface", options, "a-token") as service:
        service.correct("tools", list(sentences())[:5])
        began = time.monotonic()
        done = subprocess.run(
            [python.replace("/python", "/schemathesis"), "run", f"{service.url}/openapi.json", "--checks", "all", "--mode", "all",
             "--phases", "examples,coverage,fuzzing", "--max-examples", str(examples), "--seed", "1", "--request-timeout", "30",
             "--header", "Authorization: Bearer a-token",
             # A domain may be unknown (404) and full (429), and names of domains and people are narrower than their types.
             "--exclude-checks", "positive_data_acceptance"], cwd=folder)
        assert done.returncode == 0, "schemathesis has found something"
        assert service.process.poll() is None, "the service has ended"
        print(f"schemathesis: all is well after {time.monotonic() - began:.0f} s", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--program", type=pathlib.Path, default=TARGET / "debug/learning-service")
    parser.add_argument("--base", type=pathlib.Path, default=TARGET / "tmp/base-of-service")
    parser.add_argument("--pictures", type=pathlib.Path)
    parser.add_argument("--examples", type=int, default=4, help="requests of each kind that schemathesis makes up for an operation")
    parser.add_argument("--page", action="store_true", help="not the interface")
    parser.add_argument("--interface", action="store_true", help="not the page")
    parser.add_argument("--readme", type=pathlib.Path, metavar="FILE")
    arguments = parser.parse_args()
    program, base = arguments.program.resolve(), arguments.base.resolve()
    for path in (program, base):
        if not path.exists():
            sys.exit(f"check_service: {path} is missing; scripts/test.sh makes it")
    if not arguments.interface:
        screenshot.browser_path()
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        pictures = (arguments.pictures or folder).resolve()
        pictures.mkdir(parents=True, exist_ok=True)
        if not arguments.interface:
            check_page(program, base, folder, pictures, arguments.readme and arguments.readme.resolve())
        if not arguments.page:
            check_interface(program, base, folder, arguments.examples)
    print("check_service: all is well")


if __name__ == "__main__":
    main()
