"""The dashboard in a real browser, before a real server, while a real query is paid for. Nothing is downloaded."""

import base64
import contextlib
import io
import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request

import numpy as np
import pytest

from quorate.cli import main
from quorate.models.predictors import PrivateClassifier
from quorate.models.saving import save

SIZES = {"wide": (1280, "light"), "narrow": (360, "dark")}


class Server:
    """`quorate serve` in a process of its own, with one key that may ask and see everything."""

    def __init__(self, model, key, log):
        self.model, self.key, self.address, self._log = model, key, None, log
        with log.open("wb") as file:
            self._child = subprocess.Popen(
                [sys.executable, "-m", "quorate", "serve", model, "--port", "0", "--lease", "1"],
                stdout=file,
                stderr=file,
                stdin=subprocess.DEVNULL,
                env=os.environ | {"OMP_NUM_THREADS": "1"},
            )
        end = time.monotonic() + 150
        while not self._ready():
            if self._child.poll() is not None or time.monotonic() > end:
                self.stop()
                raise RuntimeError(f"the server did not start: {log.read_text()[-2000:]}")
            time.sleep(0.1)

    def _ready(self):
        if self.address is None:  # the system chooses a port, and the log tells which
            found = re.search(r'"event":"listening".*"port":(\d+)', self._log.read_text())
            if found is None:
                return False
            self.address = f"http://127.0.0.1:{found[1]}"
        try:
            with urllib.request.urlopen(f"{self.address}/v2/health/ready", timeout=5) as answer:
                return answer.status == 200
        except OSError:
            return False

    def ask(self, value):
        """Ask one query over HTTP and return the status."""
        tensor = {"name": "features", "shape": [1, 1], "datatype": "FP64", "data": [value]}
        request = urllib.request.Request(
            f"{self.address}/v2/models/{self.model.name}/infer",
            data=json.dumps({"inputs": [tensor]}).encode(),
            headers={"Authorization": f"Bearer {self.key}", "Content-Type": "application/json"},
        )
        try:
            with urllib.request.urlopen(request, timeout=120) as answer:
                return answer.status
        except urllib.error.HTTPError as error:
            return error.code

    def stop(self):
        if self._child.poll() is None:
            self._child.send_signal(signal.SIGTERM)
        return self._child.wait(timeout=120)


@pytest.fixture(scope="module")
def server(browser, tmp_path_factory):
    folder = tmp_path_factory.mktemp("served")
    X, y = np.array([[0.0], [1.0]] * 2000), np.array([0, 1] * 2000)
    classifier = PrivateClassifier(epsilon=2.0, teachers=200, queries=40, aggregator="noisy_max", classes=[0, 1])
    model = save(classifier.fit(X, y), folder / "triage")
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        assert main(["keys", "add", str(model), "Ward 3 <triage>", "--scope", "admin", "--unlimited"]) == 0
    started = Server(model, printed.getvalue().strip(), folder / "server.log")
    yield started
    started.stop()


@pytest.fixture
def page(browser, server):
    """A page that remembers what it complained about."""
    context = browser.new_context(
        viewport={"width": 1280, "height": 900}, http_credentials={"username": "owner", "password": server.key}
    )
    context.set_default_timeout(150_000)
    made = context.new_page()
    made.complaints, made.asked = [], []
    made.on("console", lambda said: made.complaints.append(said.text) if said.type in ("error", "warning") else None)
    made.on("pageerror", lambda error: made.complaints.append(str(error)))
    made.on("requestfailed", lambda failed: made.complaints.append(f"{failed.url}: {failed.failure}"))
    made.on("request", lambda sent: made.asked.append(sent.url))
    yield made
    context.close()


def left_in_ledger(model, capsys):
    capsys.readouterr()
    assert main(["ledger", "show", str(model), "--json"]) == 0
    return json.loads(capsys.readouterr().out)["left"]


def bar_of(page):
    bar = page.get_by_role("progressbar", name="Budget left")
    filled = bar.locator("rect.left").bounding_box()["width"] / bar.bounding_box()["width"]
    return float(bar.get_attribute("data-left")), bar.get_attribute("aria-valuenow"), filled


def test_the_description_of_the_api_and_the_door(server, page):
    assert page.goto(f"{server.address}/docs").status == 200
    assert page.get_by_role("heading", name="/v2/models/{name}/infer").is_visible()
    assert page.evaluate("document.documentElement.scrollWidth") <= 1280
    assert page.complaints == []
    for sent in ({}, {"Authorization": f"Basic {base64.b64encode(b'owner:qk_a1_wrong').decode()}"}):
        with pytest.raises(urllib.error.HTTPError, match="401") as refused:
            urllib.request.urlopen(urllib.request.Request(server.address, headers=sent), timeout=120)
        asked = refused.value.headers.get_all("WWW-Authenticate")
        refused.value.close()
        assert any(line.startswith("Basic ") for line in asked), "a browser reads one scheme from each line"


def test_the_dashboard_shows_the_ledger_and_moves_with_it(server, page, tmp_path, capsys):
    answer = page.goto(server.address)
    assert answer.status == 200
    assert "default-src 'none'" in answer.headers["content-security-policy"]
    assert page.get_by_role("heading", name=server.model.name).is_visible()
    assert page.get_by_text("Ward 3 <triage>").first.is_visible()
    before, shown, filled = bar_of(page)
    assert before == left_in_ledger(server.model, capsys) == 1.0
    assert shown == "100.00"
    assert filled == pytest.approx(1.0, abs=0.01)

    for place in range(8):
        assert server.ask(place / 10) == 200
    page.reload()
    after, shown, filled = bar_of(page)
    assert after == left_in_ledger(server.model, capsys)
    assert after == pytest.approx(0.8, abs=0.03)  # 8 of 40 queries
    assert float(shown) == pytest.approx(100 * after, abs=0.01)
    assert filled == pytest.approx(after, abs=0.01)
    assert page.get_by_text("8 new queries: 8 answered").first.is_visible()

    for name, (width, colours) in SIZES.items():
        page.emulate_media(color_scheme=colours)
        page.set_viewport_size({"width": width, "height": 900})
        assert page.evaluate("document.documentElement.scrollWidth") <= width, "nothing sticks out"
        path = tmp_path / f"dashboard-{name}.png"
        page.screenshot(path=path, full_page=True)
        with capsys.disabled():
            sys.stdout.write(f"\nthe dashboard, {name}: {path}\n")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(20, 23, 26)", "the style is applied"
    complaints = [said for said in page.complaints if "401" not in said]  # the challenge before the key is sent
    assert complaints == []
    assert all(url.startswith((server.address, "data:")) for url in page.asked)
    assert server.stop() == 0, "it ends cleanly"
    assert left_in_ledger(server.model, capsys) >= after, "and returns its lease"
