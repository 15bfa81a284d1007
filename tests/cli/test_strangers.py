"""Three strangers' tasks, from their own CSV alone: at most three commands at a terminal, or eight clicks in a browser.

A stranger reads what is printed and types it. A command is a line that is typed; a click is a choice in the browser.
"""

import csv
import gzip
import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from contextlib import contextmanager

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score
from test_studio import write_clinic

from benchmarks.figures import data_folder

BANK = data_folder() / "bank" / "bank-full.csv.gz"
SECONDS = 300.0
ENVIRONMENT = os.environ | {"OMP_NUM_THREADS": "2", "COLUMNS": "100", "TERM": "dumb"}


class Terminal:
    """A terminal in which a stranger types commands; it counts them."""

    def __init__(self, folder):
        self.folder, self.commands, self._began = folder, 0, time.monotonic()

    @contextmanager
    def opened(self, line, **variables):
        """Type a command; yield a function that waits until a text is shown, and returns all that was shown."""
        self.commands += 1
        ours, theirs = pty.openpty()
        words = [sys.executable, "-m", *line.split()] if line.startswith("quorate") else line.split()
        process = subprocess.Popen(
            words, cwd=self.folder, stdin=theirs, stdout=theirs, stderr=theirs, env=ENVIRONMENT | variables
        )
        os.close(theirs)
        shown = ""

        def wait_for(text=None, answer=None):
            nonlocal shown
            start = len(shown)
            while text is None or not re.search(text, shown[start:] if answer is not None else shown):
                assert time.monotonic() - self._began < SECONDS, shown
                if not select.select([ours], [], [], 0.2)[0]:
                    if process.poll() is not None:
                        break
                    continue
                try:
                    shown += os.read(ours, 65536).decode(errors="replace")
                except OSError:  # the other side has closed
                    break
            if answer is not None:
                os.write(ours, f"{answer}\n".encode())
            return shown.replace("\r\n", "\n")

        try:
            yield wait_for
        finally:
            if process.poll() is None:
                process.send_signal(signal.SIGINT)
            process.wait(timeout=60)
            os.close(ours)
        self.code = process.returncode

    def run(self, line, **variables):
        """Type a command, and return what it shows until it ends."""
        with self.opened(line, **variables) as wait_for:
            shown = wait_for()
        assert self.code == 0, shown
        return shown

    @property
    def seconds(self):
        return time.monotonic() - self._began


@pytest.mark.long
@pytest.mark.skipif(not BANK.is_file(), reason="the table of the bank is not on this machine")
def test_a_model_that_beats_the_constant_and_says_by_how_much(tmp_path):
    """One command and its questions; a second one asks the model about rows that it never saw."""
    with gzip.open(BANK, "rt", encoding="utf-8") as file:
        header, *rows = csv.reader(file)
    order = np.random.default_rng(0).permutation(len(rows))
    for name, part in (("mine.csv", order[5000:]), ("others.csv", order[:5000])):
        with (tmp_path / name).open("w", newline="", encoding="utf-8") as file:
            csv.writer(file).writerows([header, *(rows[number] for number in part)])
    terminal = Terminal(tmp_path)
    with terminal.opened("quorate start mine.csv --run") as wait_for:
        wait_for("What do you need", answer="")
        wait_for("Which column is the label", answer="y")
        wait_for("Who is protected", answer="")
        wait_for("How many queries", answer="any")
        wait_for("May a query", answer="")
        wait_for("public table", answer="")
        shown = wait_for()
    assert terminal.code == 0, shown
    assert "Always to answer 'no' is wrong in" in shown  # the constant, and by how much
    assert "It ranks rows better than chance" in shown
    terminal.run("quorate predict quorate-start/model others.csv --out answers.csv")
    with (tmp_path / "answers.csv").open(encoding="utf-8") as file:
        answers = list(csv.DictReader(file))
    truth = [rows[number][-1] for number in order[:5000]]
    area = roc_auc_score([label == "yes" for label in truth], [float(row["score_yes"]) for row in answers])
    right = np.mean([row["answer"] == label for row, label in zip(answers, truth, strict=True)])
    constant = truth.count("no") / len(truth)
    print(f"AUC {area:.4f}, right {right:.4f}, always no {constant:.4f}, {terminal.seconds:.0f} s")  # noqa: T201
    assert right > constant
    assert area >= 0.895
    assert terminal.commands <= 3


def test_published_tables_by_region_and_month_with_intervals(tmp_path):
    """One command. The same in eight clicks is in test_studio_browser."""
    write_clinic(tmp_path / "clinic.csv")
    terminal = Terminal(tmp_path)
    shown = terminal.run("quorate release clinic.csv --by region,visited:month --mean cost --out published")
    assert "2024-03" in shown
    with (tmp_path / "published" / "answers.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    counts = [row for row in rows if row["measure"] == "records"]
    assert {(row["region"], row["visited:month"]) for row in counts} >= {("north", "2024-01"), ("east", "2024-06")}
    assert all(float(row["low"]) <= float(row["answer"]) <= float(row["high"]) for row in counts)
    assert terminal.commands == 1


@pytest.mark.long  # 25 s, most of them of starting programs
def test_a_running_service_with_two_keys_and_an_answer(tmp_path):
    """Three commands: fit, serve with two keys, ask with one of them. The other one is refused nothing of its own."""
    draw = np.random.default_rng(2)
    dose, age = draw.uniform(0, 100, 8000).round(1), draw.integers(18, 90, 8000)
    ill = np.where(dose + draw.normal(0, 12, 8000) > 50, "yes", "no")
    with (tmp_path / "lab.csv").open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([("dose", "age", "ill"), *zip(dose, age, ill, strict=True)])
    (tmp_path / "new.csv").write_text("dose,age\n3,40\n97,40\n")
    state = {"QUORATE_STATE": str(tmp_path / "state")}
    terminal = Terminal(tmp_path)
    terminal.run("quorate fit subsample lab.csv --label ill --classes no,yes --queries 100 --out wards", **state)
    serve = f"quorate serve wards --port {free_port()} --new-keys ward3,ward4"
    with terminal.opened(serve, **state) as wait_for:
        shown = wait_for("dashboard is at .*Ctrl-C stops")
        keys = dict(re.findall(r"^(ward\d): (qk_\S+)$", shown, re.MULTILINE))
        assert set(keys) == {"ward3", "ward4"}
        address = re.search(r"dashboard is at (http://[^/]+)/", shown)[1]
        asked = terminal.run(f"quorate ask {address} new.csv", QUORATE_KEY=keys["ward3"])
    assert terminal.code == 0
    answers = [line.split(",")[1] for line in asked.splitlines() if re.match(r"[12],", line)]
    assert answers == ["no", "yes"]
    assert terminal.commands == 3


def free_port():
    """Return a port that was free a moment ago."""
    import socket

    with socket.socket() as opened:
        opened.bind(("127.0.0.1", 0))
        return opened.getsockname()[1]
