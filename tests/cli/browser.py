"""Debian's Chromium without a screen, driven by its WebDriver: plain HTTP, no library."""
import base64
import contextlib
import json
import os
import pathlib
import re
import shutil
import subprocess
import unittest
import urllib.error
import urllib.request

ELEMENT = "element-6066-11e4-a52e-4f735466cecf"
KEYS = {"Enter": "\ue007", "Left": "\ue012", "Up": "\ue013", "Right": "\ue014", "Down": "\ue015",
        "Space": " ", "Control": "\ue009"}


def needs_browser():
    """Skips, with the reason; with CI=true that is a failure."""
    missing = [program for program in ("chromium", "chromedriver") if shutil.which(program) is None]
    if not missing:
        return
    if os.environ.get("CI") == "true":
        raise AssertionError(f"{' and '.join(missing)} is not installed (CI=true)")
    raise unittest.SkipTest(f"{' and '.join(missing)} is not installed (chromium, chromium-driver)")


class Browser:
    """One window. What it says in its console, and what it asks for, is kept."""

    def __init__(self, folder):
        self._driver = subprocess.Popen(
            ["chromedriver", "--port=0"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
            env={**os.environ, "HOME": str(folder), "TMPDIR": str(folder)})
        try:
            self._begin(folder)
        except BaseException:
            self._end()
            raise

    def _begin(self, folder):
        for line in self._driver.stdout:
            if found := re.search(r"successfully on port (\d+)", line):
                break
        else:
            raise AssertionError("chromedriver does not say on which port it is")
        self._server = f"http://127.0.0.1:{found[1]}"
        self._session = ""
        self._session = "/session/" + self._call("POST", "/session", {"capabilities": {"alwaysMatch": {
            "browserName": "chrome", "goog:loggingPrefs": {"browser": "ALL", "performance": "ALL"},
            "goog:chromeOptions": {"binary": shutil.which("chromium"), "args": [
                "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
                "--window-size=1280,900", f"--user-data-dir={folder}/profile"]}}}})["sessionId"]

    def _call(self, method, path, body=None):
        request = urllib.request.Request(
            self._server + self._session + path, method=method,
            data=None if method == "GET" else json.dumps(body or {}).encode(),
            headers={"Content-Type": "application/json"})
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return json.load(answer)["value"]
        except urllib.error.HTTPError as error:
            raise AssertionError(error.read().decode(errors="replace")[:600]) from None

    def close(self):
        with contextlib.suppress(AssertionError, OSError):
            self._call("DELETE", "")
        self._end()

    def _end(self):
        self._driver.terminate()
        self._driver.wait(timeout=30)
        self._driver.stdout.close()

    def open(self, path):
        self.requests(), self.console()  # of the page before
        self._call("POST", "/url", {"url": pathlib.Path(path).as_uri()})

    def run(self, script, *arguments):
        """What a function with this body returns."""
        return self._call("POST", "/execute/sync", {"script": script, "args": list(arguments)})

    def run_async(self, script):
        """What it calls its argument with."""
        return self._call("POST", "/execute/async", {"script": script, "args": []})

    def find(self, selector):
        return self._call("POST", "/element", {"using": "css selector", "value": selector})[ELEMENT]

    def click(self, selector):
        self._call("POST", f"/element/{self.find(selector)}/click")

    def focus(self, selector):
        self.run("document.querySelector(arguments[0]).focus()", selector)

    def press(self, *keys):
        actions = [{"type": kind, "value": KEYS.get(key, key)} for key in keys for kind in ("keyDown", "keyUp")]
        self._call("POST", "/actions", {"actions": [{"type": "key", "id": "keys", "actions": actions}]})

    def wheel(self, selector, by):
        """With the control key held, in the middle of an element."""
        self._call("POST", "/actions", {"actions": [
            {"type": "key", "id": "keys", "actions": [
                {"type": "keyDown", "value": KEYS["Control"]}, {"type": "pause"},
                {"type": "keyUp", "value": KEYS["Control"]}]},
            {"type": "wheel", "id": "wheel", "actions": [
                {"type": "pause"},
                {"type": "scroll", "x": 0, "y": 0, "deltaX": 0, "deltaY": by, "duration": 0,
                 "origin": {ELEMENT: self.find(selector)}},
                {"type": "pause"}]}]})

    def scheme(self, light_or_dark):
        self._call("POST", "/goog/cdp/execute", {"cmd": "Emulation.setEmulatedMedia", "params": {
            "features": [{"name": "prefers-color-scheme", "value": light_or_dark}]}})

    def size(self, width, height):
        self._call("POST", "/goog/cdp/execute", {"cmd": "Emulation.setDeviceMetricsOverride", "params": {
            "width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}})

    def _log(self, kind):
        return self._call("POST", "/se/log", {"type": kind})

    def console(self):
        """Of its console since it was last asked for."""
        return [entry["message"] for entry in self._log("browser")]

    def requests(self):
        """Addresses that were asked for since, but for files and data in the page itself."""
        messages = [json.loads(entry["message"])["message"] for entry in self._log("performance")]
        asked = [message["params"]["request"]["url"] for message in messages
                 if message["method"] == "Network.requestWillBeSent"]
        return [url for url in asked if not url.startswith("data:")]

    def screenshot(self, path):
        pathlib.Path(path).write_bytes(base64.b64decode(self._call("GET", "/screenshot")))
