#!/usr/bin/env python3
"""Serves a folder with the headers that threads of WebAssembly need: serve.py FOLDER [PORT]. For this machine alone."""
import functools
import http.server
import sys


class Handler(http.server.SimpleHTTPRequestHandler):
    extensions_map = {**http.server.SimpleHTTPRequestHandler.extensions_map, ".wasm": "application/wasm", ".js": "text/javascript"}

    def end_headers(self):
        self.send_header("Cross-Origin-Opener-Policy", "same-origin")
        self.send_header("Cross-Origin-Embedder-Policy", "require-corp")
        self.send_header("Cache-Control", "no-store")
        super().end_headers()

    def log_message(self, *_):
        pass


def server(folder, port=0):
    return http.server.ThreadingHTTPServer(("127.0.0.1", port), functools.partial(Handler, directory=folder))


if __name__ == "__main__":
    if not 2 <= len(sys.argv) <= 3:
        sys.exit(__doc__)
    serving = server(sys.argv[1], int(sys.argv[2]) if len(sys.argv) == 3 else 8000)
    print(f"http://127.0.0.1:{serving.server_address[1]}/")
    serving.serve_forever()
