#!/usr/bin/env python3
"""Opens the HTML report in headless Chromium and checks what a person would see.

    tests/report/screenshot.py [--program build/release/translate-train] [--pictures DIR] [--readme FILE] [RUN ...]

Without RUN it trains three small runs (some seconds). The report of one run and of three is rendered on a wide and on a narrow
screen, light and dark. Checked are: no request leaves the page, nothing is said on the console, every curve has an extent and its
colour is in the picture, nothing is wider than the screen, the switches for runs and axes work, and pointing at a curve shows
its value. The pictures are kept in DIR (default: a new folder under the system's temporary one). Needs Debian's chromium-headless-shell
or another Chromium, which scripts/install-dependencies.sh --report installs; exit code 77 means that no browser was found and nothing
was checked. --readme also writes the head of the first report, numbers and curves, to FILE, at two thirds of its size: docs/report.png
is made so.
"""
import argparse
import html.parser
import json
import os
import pathlib
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import zlib

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/tools"))
import toy_corpus
SKIPPED = 77
BROWSERS = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
WIDE, NARROW = (1360, 1500), (390, 1500)
README, README_SCALE = (1360, 1036), 0.66  # ends below the curves
CHARTS = ("loss", "bleu", "chrf", "rate", "norm", "speed", "memory")

# Runs after the page's own script and leaves what it finds in an element that --dump-dom shows.
PROBE = """
<script>
addEventListener("load", () => {
  const found = {curves: [], scroll: document.documentElement.scrollWidth, width: innerWidth};
  const visible = element => element.getClientRects().length > 0;
  for (const figure of document.querySelectorAll("figure[data-chart]"))
    for (const path of figure.querySelectorAll("svg[data-axis] .line"))
      if (visible(path)) {
        const box = path.getBoundingClientRect();
        found.curves.push({chart: figure.dataset.chart, width: box.width, height: box.height,
                           length: path.getTotalLength(), axis: path.closest("svg").dataset.axis,
                           color: getComputedStyle(path).stroke});
      }
  const svg = document.querySelector("figure svg[data-axis='0']"), box = svg.getBoundingClientRect();
  svg.dispatchEvent(new PointerEvent("pointermove", {clientX: box.left + box.width * .3, clientY: box.top + 30}));
  const tip = document.getElementById("tip");
  found.tip = tip.hidden ? "" : tip.textContent;
  found.tipRight = tip.getBoundingClientRect().right;
  found.cursor = svg.querySelectorAll(".cursor circle").length;
  svg.dispatchEvent(new PointerEvent("pointerleave"));
  found.tipGone = tip.hidden;
  svg.dispatchEvent(new KeyboardEvent("keydown", {key: "ArrowRight"}));
  found.said = document.getElementById("said").textContent;
  document.getElementById("axis-t").click();
  found.tokens = [...document.querySelectorAll("svg[data-axis]")].filter(visible).map(s => s.dataset.axis);
  document.getElementById("axis-u").click();
  const box1 = document.getElementById("run-1"), of1 = () => [...document.querySelectorAll(".r1")].filter(visible).length;
  if (box1) {
    found.second = [of1()];
    box1.click();
    found.second.push(of1());
  }
  const result = document.createElement("pre");
  result.id = "found";
  result.textContent = JSON.stringify(found);
  document.body.append(result);
});
</script>
"""


class Found(html.parser.HTMLParser):
    """The text of the element with the id "found"."""

    def __init__(self):
        super().__init__()
        self.inside, self.text = False, ""

    def handle_starttag(self, tag, attrs):
        self.inside = self.inside or dict(attrs).get("id") == "found"

    def handle_endtag(self, tag):
        self.inside = self.inside and tag != "pre"

    def handle_data(self, data):
        if self.inside:
            self.text += data


def browser_path():
    for name in (os.environ.get("CHROMIUM", ""), *BROWSERS):
        if name and shutil.which(name):
            return shutil.which(name)
    print("screenshot: SKIPPED, nothing was checked: there is no Chromium (scripts/install-dependencies.sh --report)")
    sys.exit(SKIPPED)


class Browser:
    def __init__(self, folder):
        self.path, self.folder, self.count = browser_path(), folder, 0

    def open(self, page, size, *options, dark=False):
        """Returns standard output, what the console said, and the addresses that were asked for."""
        self.count += 1
        log = self.folder / f"net-{self.count}.json"
        done = subprocess.run(
            [self.path, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--disable-background-networking",
             "--no-first-run", f"--user-data-dir={self.folder}/profile", "--enable-logging=stderr",
             f"--blink-settings=preferredColorScheme={0 if dark else 1}", f"--window-size={size[0]},{size[1]}",
             f"--log-net-log={log}", *options, page.as_uri()],
            check=True, capture_output=True, timeout=120)
        said = [line for line in done.stderr.decode(errors="replace").splitlines() if "CONSOLE" in line]
        asked = set(re.findall(r'"url":"(?!file:|data:)([^"]+)"', log.read_text(errors="replace")))
        return done.stdout.decode(errors="replace"), said, asked

    def look(self, page, size, dark=False):
        """Findings of the probe in a page that must be quiet."""
        probed = self.folder / "probed.html"
        probed.write_text(page.read_text().replace("</body>", PROBE + "</body>"))
        dom, said, asked = self.open(probed, size, "--dump-dom", dark=dark)
        assert not said, f"{page.name}: the console says {said}"
        assert not asked, f"{page.name}: asks for {asked}"
        parser = Found()
        parser.feed(dom)
        assert parser.text, f"{page.name}: the probe found nothing"
        return json.loads(parser.text)

    def picture(self, page, size, target, dark=False, scale=1):
        _, said, asked = self.open(page, size, f"--screenshot={target}", f"--force-device-scale-factor={scale}", dark=dark)
        assert not said and not asked, (page, said, asked)
        return target


def check_that_checks_work(browser):
    """A page that does what a report must not do is caught."""
    bad = browser.folder / "bad.html"
    bad.write_text("<!DOCTYPE html><title>x</title><img src='http://127.0.0.1:9/pixel.png'>"
                   "<script>console.error('said')</script>")
    _, said, asked = browser.open(bad, NARROW, "--dump-dom")
    assert said, "this browser's console is not heard"
    assert any("pixel.png" in address for address in asked), "this browser's requests are not seen"


def pixels(path):
    """Rows of (red, green, blue) bytes of an 8-bit PNG."""
    data, at, packed = path.read_bytes(), 8, b""
    while at < len(data):
        length, kind = struct.unpack(">I4s", data[at:at + 8])
        body = data[at + 8:at + 8 + length]
        if kind == b"IHDR":
            width, _, depth, color = struct.unpack(">IIBB", body[:10])
            assert depth == 8 and color in (2, 6), (depth, color)
            size = 3 if color == 2 else 4
        elif kind == b"IDAT":
            packed += body
        at += 12 + length
    raw, stride = zlib.decompress(packed), width * size
    before = bytearray(stride)
    for begin in range(0, len(raw), stride + 1):
        kind, row = raw[begin], bytearray(raw[begin + 1:begin + 1 + stride])
        if kind == 1:
            for i in range(size, stride):
                row[i] = (row[i] + row[i - size]) & 255
        elif kind == 2:
            row = bytearray((a + b) & 255 for a, b in zip(row, before))
        elif kind == 3:
            for i in range(stride):
                row[i] = (row[i] + ((row[i - size] if i >= size else 0) + before[i]) // 2) & 255
        elif kind == 4:
            for i in range(stride):
                a, b, c = (row[i - size], before[i], before[i - size]) if i >= size else (0, before[i], 0)
                near = min((abs(b - c), 0, a), (abs(a - c), 1, b), (abs(a + b - 2 * c), 2, c))
                row[i] = (row[i] + near[2]) & 255
        before = row
        yield bytes(row), size


def count_colors(path, colors):
    counts = dict.fromkeys(colors, 0)
    for row, size in pixels(path):
        for color in colors:
            at = row.find(bytes(color))
            while at >= 0:
                counts[color] += at % size == 0
                at = row.find(bytes(color), at + 1)
    return counts


def check_page(browser, page, runs, charts, pictures, aligned):
    """`aligned`: the runs are of about the same length, so that all have a value where the pointer is."""
    for name, size, dark in (("wide", WIDE, False), ("wide-dark", WIDE, True), ("phone", NARROW, False)):
        found = browser.look(page, size, dark)
        curves = found["curves"]
        for chart in charts:
            drawn = [c for c in curves if c["chart"] == chart]
            assert len(drawn) >= (runs if aligned else 1), f"{page.name}: {chart} has {len(drawn)} curves of {runs} runs"
            for curve in drawn:
                assert curve["axis"] == "0", (page.name, curve)
                assert not aligned or curve["width"] > 60 and curve["length"] > 60, (page.name, curve)
            # Memory may stay the same; what is learned does not.
            if aligned and chart in ("loss", "bleu", "chrf", "rate"):
                assert all(curve["height"] > 3 for curve in drawn), (page.name, drawn)
        assert found["scroll"] <= found["width"], f"{page.name}: {found['scroll']} wide on a screen of {found['width']}"
        assert "update" in found["tip"] and found["cursor"] >= (runs if aligned else 1), found
        assert found["tipRight"] <= found["width"] and found["tipGone"], found
        assert found["said"].startswith("update "), found
        assert set(found["tokens"]) == {"1"} and len(found["tokens"]) == len(charts), found
        if runs > 1:
            assert found["second"][0] > 0 and found["second"][1] == 0, found
        target = browser.picture(page, size, pictures / f"{page.stem}-{name}.png", dark)
        if name != "phone":
            colors = {tuple(int(part) for part in re.findall(r"\d+", curve["color"])[:3]) for curve in curves}
            assert len(colors) >= runs, colors
            for color, count in count_colors(target, colors).items():
                assert count > (150 if aligned else 0), f"{target}: {count} pixels of the colour {color}"
        print(f"{target}: {len(curves)} curves")


def train_runs(program, folder):
    toy_corpus.write(folder, 400, 30)
    base = ["train", "--train-sets", "t.src", "t.trg", "--valid-sets", "v.src", "v.trg", "--task", "tiny", "--device", "cpu",
            "--enc-depth", "1", "--dec-depth", "1", "--dim-emb", "32", "--transformer-dim-ffn", "64", "--transformer-heads", "2",
            "--dim-vocabs", "60", "--mini-batch-words", "400", "--cpu-threads", "1", "--valid-freq", "20u", "--disp-freq", "5u",
            "--transformer-dropout", "0", "--quiet"]
    variants = {"warm": ["--lr-warmup", "40", "--after", "140u"],
                "slow": ["--lr-warmup", "40", "--learn-rate", "0.001", "--after", "160u"],
                "<b>late & wide": ["--lr-warmup", "120", "--after", "120u", "--dim-emb", "48"]}
    for name, flags in variants.items():
        arguments = [a for a in base]
        if "--dim-emb" in flags:
            at = arguments.index("--dim-emb")
            del arguments[at:at + 2]
        subprocess.run([program, *arguments, *flags, "--model", name], cwd=folder, check=True)
    return [folder / name for name in variants]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--program", default=ROOT / "build/release/translate-train", type=pathlib.Path)
    parser.add_argument("--pictures", type=pathlib.Path)
    parser.add_argument("--readme", type=pathlib.Path, metavar="FILE")
    parser.add_argument("runs", nargs="*", type=pathlib.Path)
    arguments = parser.parse_args()
    browser_path()
    pictures = (arguments.pictures or pathlib.Path(tempfile.mkdtemp(prefix="trafo-report-"))).resolve()
    pictures.mkdir(parents=True, exist_ok=True)
    program = arguments.program.resolve()
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        browser = Browser(folder)
        check_that_checks_work(browser)
        runs = [run.resolve() for run in arguments.runs] or train_runs(program, folder)
        charts = CHARTS if not arguments.runs else ("loss", "rate")
        for page, shown in (("one", runs[:1]), ("several", runs)):
            if page == "several" and len(runs) == 1:
                continue
            target = pictures / f"{page}.html"
            subprocess.run([program, "report", *shown, "-o", target, "--quiet"], check=True)
            if arguments.runs:
                charts = tuple(c for c in CHARTS if f'data-chart="{c}"' in target.read_text())
            check_page(browser, target, len(shown), charts, pictures, not arguments.runs)
            if page == "one" and arguments.readme:
                browser.picture(target, README, arguments.readme.resolve(), scale=README_SCALE)
    print(f"screenshot: the report shows its curves; pictures in {pictures}")


if __name__ == "__main__":
    main()
