#!/usr/bin/env python3
"""Runs ort.html in headless Chromium: ort_test.py FOLDER, which has the page, ids.json, onnx/ and the files of onnxruntime-web."""
import pathlib
import sys
import tempfile
import threading

ROOT = pathlib.Path(__file__).resolve().parents[2]
for folder in ("tests/learning", "examples/browser"):
    sys.path.insert(0, str(ROOT / folder))
import browser
import serve


def main():
    server = serve.server(sys.argv[1])
    threading.Thread(target=server.serve_forever, daemon=True).start()
    with tempfile.TemporaryDirectory() as name:
        chromium = browser.Browser(pathlib.Path(name))
        try:
            page = browser.Page(chromium, f"http://127.0.0.1:{server.server_address[1]}/ort.html", 800, 600)
            page.wait("window.result !== undefined", 300)
            result = page.value("window.result")
        finally:
            chromium.close()
            server.shutdown()
    assert "error" not in result, result
    assert result["same"] >= 0.95 * result["of"], f"other translations than Trafo's: {result}"
    print(f"ort_test: beam 1: {result['speed']:.0f} tokens/s; {result['same']} of {result['of']} translations are Trafo's")


if __name__ == "__main__":
    main()
