"""Tables that the guides speak of: small enough for their blocks to run in moments. Names are those of the guides."""

import importlib.util
import json
import os
import sys
import types
from pathlib import Path

import numpy as np
import pandas as pd

from support.forked import run_forked

CHANCE = np.random.default_rng(5)


def visits(rows=40_000, columns=3):
    """Return records, labels and people of a clinic, as arrays."""
    X = CHANCE.normal(size=(rows, columns))
    return X, np.where(X[:, 0] + X[:, 1] > 0, "ill", "well"), np.arange(rows) // 2


def letters(rows):
    """Return short letters about a bill or a fault, and which of the two each is about."""
    about = CHANCE.choice(["bill", "fault"], rows)
    words = {"bill": "charged twice invoice refund card paid", "fault": "line broken noise offline repair engineer"}
    texts = [" ".join(CHANCE.choice([*words[topic].split(), "please", "again", "today"], 8)) for topic in about]
    return texts, about


class _Words:
    """An embedding of texts by a random direction for each word."""

    @classmethod
    def load(cls, **_settings):
        return cls()

    def embed(self, texts, norm):
        known = {word for text in texts for word in text.split()}
        found = {word: np.random.default_rng(list(word.encode())).normal(size=64) for word in known}
        rows = np.array([sum(found[word] for word in text.split()) for text in texts])
        return rows / np.linalg.norm(rows, axis=1, keepdims=norm)


def stand_in_for_wordllama():
    """Put an embedding of our own in the place of a package that is not installed."""
    if importlib.util.find_spec("wordllama") is None:
        sys.modules["wordllama"] = types.SimpleNamespace(WordLlama=_Words, __file__=__file__)


def rare(rows=30_000):
    """Return records whose second label is rare."""
    X = CHANCE.normal(size=(rows, 3))
    return X, np.where(X[:, 0] + 0.5 * CHANCE.normal(size=rows) > 1.3, "yes", "no")


def people(rows):
    """Return a census of mixed columns."""
    return {
        "age": CHANCE.normal(45, 15, rows).round(1).tolist(),
        "sex": CHANCE.choice(["f", "m"], rows).tolist(),
        "region": CHANCE.choice(["north", "south", "west"], rows).tolist(),
    }


def frame(rows):
    """Return a table of visits with texts and numbers."""
    dose, age = CHANCE.normal(60, 10, rows).round(1), CHANCE.integers(20, 90, rows)
    sex = CHANCE.choice(["Female", "Male"], rows)
    ill = (dose - 60) / 10 + (age - 55) / 20 + 0.3 * CHANCE.normal(size=rows) > 0
    return pd.DataFrame(
        {"dose": dose, "age": age, "sex": sex, "patient": np.arange(rows), "outcome": np.where(ill, "ill", "well")}
    )


def write_visits(rows=20_000, *, numbers_only=False):
    """Write visits.csv, survey.csv, later.csv and new.csv."""
    for name, size in (("visits", rows), ("survey", 1000), ("later", 3000), ("new", 20)):
        table = frame(size).drop(columns=["sex", "patient"] if numbers_only else [])
        (table.drop(columns="outcome") if name == "new" else table).to_csv(f"{name}.csv", index=False)


def write_sites():
    """Write north.csv, south.csv and new.csv."""
    for name, size in (("north", 600), ("south", 900), ("new", 20)):
        table = frame(size).drop(columns=["sex", "patient"])
        (table.drop(columns="outcome") if name == "new" else table).to_csv(f"{name}.csv", index=False)


def write_large():
    """Write a folder of Parquet files and large.json, the schema that the guide declares."""
    Path("visits").mkdir()
    for name in ("first", "second"):
        age = CHANCE.integers(0, 100, 10_000)
        pd.DataFrame({"age": age, "ill": np.where(age > 50, "yes", "no")}).to_parquet(f"visits/{name}.parquet")
    columns = {"age": {"kind": "number", "low": 0, "high": 100}}
    label = {"column": "ill", "classes": ["no", "yes"]}
    Path("large.json").write_text(json.dumps({"columns": columns, "label": label}))


def write_census():
    """Write private.csv and public.csv with the columns that the commands of the release guide name."""
    for name, rows in (("private", 20_000), ("public", 500)):
        income = CHANCE.normal(30_000, 9_000, rows).round(-2)
        sex, region = CHANCE.choice(["f", "m"], rows), CHANCE.choice(["north", "south"], rows)
        pd.DataFrame({"sex": sex, "region": region, "income": income}).to_csv(f"{name}.csv", index=False)


def in_a_process(*words):
    """Run a command that opens a ledger, in a process that then ends."""
    code = "import os, sys; os.chdir(sys.argv[1]); from quorate.cli import main; sys.exit(main(sys.argv[2:]))"
    status, _, errors = run_forked(code, os.getcwd(), *words)  # Its parent may have begun in another folder.
    assert status == 0, errors


def serve_visits():
    """Serve a model of visits, with keys, until the tests end; return its address, a key and queries."""
    import atexit
    from contextlib import ExitStack

    from quorate import PrivateClassifier, load, save
    from quorate.service import Settings
    from support.service_client import serving

    X, y, _ = visits(8000)
    made = PrivateClassifier(epsilon=10.0, delta=1e-6, teachers=200, queries=500, classes=["ill", "well"])
    save(made.fit(X, y), "triage")
    opened = load("triage")
    key = opened.session_.ledger.add_key("a guide")
    opened.session_.close()
    stack = ExitStack()
    server = stack.enter_context(
        serving(Settings(models={"triage": str(Path("triage").resolve())}, port=0, pace_ms=0), Path("log"))
    )
    atexit.register(stack.close)
    return f"http://127.0.0.1:{server.port}", key, X[:20]
