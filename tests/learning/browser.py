"""A headless Chromium that a script drives by mouse, keyboard and touch-size screens, through the pipe of its DevTools protocol."""
import base64
import fcntl
import json
import os
import pathlib
import select
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "report"))
import screenshot

KEYS = {"Tab": (9, ""), "Enter": (13, "\r"), "Space": (32, " ")}
SHIFT = 8


def _high(descriptor):
    """The same pipe under a number that is neither 3 nor 4."""
    copy = fcntl.fcntl(descriptor, fcntl.F_DUPFD, 10)
    os.close(descriptor)
    return copy


class Browser:
    def __init__(self, folder):
        commands, write = map(_high, os.pipe())
        read, answers = map(_high, os.pipe())

        def pipes():  # the numbers that --remote-debugging-pipe expects
            os.dup2(commands, 3)
            os.dup2(answers, 4)

        self.log = open(folder / "chromium.log", "wb")
        self.process = subprocess.Popen(
            [screenshot.browser_path(), "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--no-first-run",
             "--disable-background-networking", f"--user-data-dir={folder}/profile", "--remote-debugging-pipe", "about:blank"],
            stdout=self.log, stderr=self.log, preexec_fn=pipes, pass_fds=(3, 4))
        os.close(commands)
        os.close(answers)
        self.read, self.write = read, write
        self.waiting, self.number, self.events = b"", 0, []

    def close(self):
        try:
            self.call("Browser.close")
            self.process.wait(20)
        except (OSError, RuntimeError, TimeoutError, subprocess.TimeoutExpired):
            self.process.kill()
            self.process.wait()
        os.close(self.read)
        os.close(self.write)
        self.log.close()

    def message(self, deadline):
        while b"\0" not in self.waiting:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self.read], [], [], left)[0]:
                raise TimeoutError("the browser does not answer")
            part = os.read(self.read, 1 << 16)
            if not part:
                raise ConnectionError("the browser has ended")
            self.waiting += part
        text, self.waiting = self.waiting.split(b"\0", 1)
        return json.loads(text)

    def call(self, method, session=None, seconds=30, **parameters):
        self.number += 1
        order = {"id": self.number, "method": method, "params": parameters}
        if session:
            order["sessionId"] = session
        text = json.dumps(order).encode() + b"\0"
        while text:
            text = text[os.write(self.write, text):]
        deadline = time.monotonic() + seconds
        while True:
            message = self.message(deadline)
            if message.get("id") == self.number:
                if "error" in message:
                    raise RuntimeError(f"{method}: {message['error']}")
                return message["result"]
            if "method" in message:
                self.events.append(message)


class Page:
    """A page on a screen. It hears errors of the console and sees every request."""

    def __init__(self, browser, url, width, height, dark=False, phone=False):
        self.browser = browser
        target = browser.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = browser.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=phone)
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}])
        self.call("Page.navigate", url=url)
        self.wait("document.readyState === 'complete'")

    def call(self, method, **parameters):
        return self.browser.call(method, self.session, **parameters)

    def value(self, expression):
        found = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        if "exceptionDetails" in found:
            raise RuntimeError(f"{expression}: {found['exceptionDetails']}")
        return found["result"].get("value")

    def wait(self, expression, seconds=60):
        """Until it is true."""
        deadline = time.monotonic() + seconds
        while not self.value(expression):
            if time.monotonic() > deadline:
                raise TimeoutError(f"never true: {expression}; the page says: {self.value('document.body.innerText')}")
            time.sleep(0.02)

    def text(self, selector):
        return self.value(f"document.querySelector({json.dumps(selector)}).textContent")

    def click(self, selector):
        found = f"document.querySelector({json.dumps(selector)})"
        box = self.value(f"(() => {{ const e = {found}; if (!e || e.disabled) return null; e.scrollIntoView({{block: 'center'}});"
                         "const b = e.getBoundingClientRect(); return [b.left + b.width / 2, b.top + b.height / 2]; })()")
        assert box, f"{selector} cannot be clicked"
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=box[0], y=box[1], button="left", clickCount=1)

    def press(self, key, modifiers=0):
        code, text = KEYS[key]
        for kind in ("keyDown", "keyUp"):
            more = {"text": text} if kind == "keyDown" and text else {}
            self.call("Input.dispatchKeyEvent", type=kind, key=" " if key == "Space" else key, code=key, modifiers=modifiers,
                      windowsVirtualKeyCode=code, **more)

    def write(self, text):
        """In place of what the focused field has."""
        self.value("document.activeElement.select()")
        self.call("Input.insertText", text=text)

    def tab_to(self, selector, backwards=False):
        """By the Tab key alone. The focus must be seen."""
        wanted = f"document.activeElement.matches({json.dumps(selector)})"
        for _ in range(60):
            if self.value(wanted):
                style = self.value("(s => [s.outlineStyle, parseFloat(s.outlineWidth)])(getComputedStyle(document.activeElement))")
                assert style[0] != "none" and style[1] >= 1, f"{selector} has the focus, and nobody sees it: {style}"
                return
            self.press("Tab", SHIFT if backwards else 0)
        raise AssertionError(f"the Tab key does not reach {selector}")

    def picture(self, path, whole=False, scale=1):
        size = self.call("Page.getLayoutMetrics")["cssContentSize"]
        clip = {"clip": {"x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": scale}} if whole else {}
        data = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole, **clip)["data"]
        path.write_bytes(base64.b64decode(data))

    def complaints(self, origin):
        """What the console said, requests to other hosts, and requests that were answered by an error."""
        found = []
        for event in self.browser.events:
            if event.get("sessionId") != self.session:
                continue
            what = event["params"]
            if event["method"] == "Runtime.exceptionThrown":
                found.append(what["exceptionDetails"]["text"])
            elif event["method"] == "Log.entryAdded" and what["entry"]["level"] in ("error", "warning"):
                found.append(what["entry"]["text"])
            elif event["method"] == "Runtime.consoleAPICalled" and what["type"] in ("error", "warning"):
                found.append(str(what["args"]))
            elif event["method"] == "Network.requestWillBeSent" and not what["request"]["url"].startswith((origin, "data:")):
                found.append(f"a request to {what['request']['url']}")
            elif event["method"] == "Network.responseReceived" and what["response"]["status"] >= 400:
                found.append(f"{what['response']['status']} for {what['response']['url']}")
        return found
