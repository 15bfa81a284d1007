"""Folders as the release before `quorate.models.saving` wrote them: `saved_folders.tar.gz`, which test_models.py loads.

Made once, by that release (commit f36e562), with

    PYTHONPATH=src python tests/make_saved_folders.py tests/saved_folders.tar.gz

Private folders are of generated records. What they answered is in expected.json.
"""

import json
import os
import sys
import tarfile
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa

from quorate import EverlastingClassifier, PrivateClassifier, QueryRelease, Workload, save
from quorate.cli import main
from quorate.models.concepts import Thresholds
from quorate.tables import Number, Schema


def private_folders(home):
    X = np.random.default_rng(0).normal(size=(4000, 2))
    y = np.where(X[:, 0] > 0, "yes", "no")
    queries = [[3.0, 0.0], [-3.0, 0.0]]
    settings = {"epsilon": 20.0, "delta": 1e-6, "teachers": 40, "queries": 10, "classes": ["no", "yes"]}
    plain = PrivateClassifier(aggregator="noisy_max", **settings).fit(X, y)
    save(plain, home / "classifier")
    schema = Schema({"a": Number(), "b": Number()}).to_json().encode()
    quorum = PrivateClassifier(aggregator="quorum", no_quorums=2, **settings).fit(X, y)
    save(quorum, home / "quorum", extra={"schema.json": schema})
    answers = {"classifier": plain.predict(queries).tolist(), "quorum": quorum.predict(queries).tolist()}
    made = EverlastingClassifier(Thresholds(both_directions=False), epsilon=8.0, delta=1e-5, chunk=5, no_quorums=20)
    made.fit(X[:, :1], (X[:, 0] > 0).astype(int))
    save(made, home / "everlasting")
    answers["everlasting"] = made.predict([[2.5], [-2.5]]).tolist()
    for one in (plain, quorum, made):
        one.session_.close()
    return answers


def published_folders(home):
    values = np.random.default_rng(1).normal(size=3000)
    line = QueryRelease(Thresholds(), epsilon=2.0).fit(values, np.linspace(-2, 2, 9))
    line.publish(home / "line")
    table = pa.table({"sex": ["f", "m", "m"] * 500, "age": ["old", "young", "old"] * 500})
    counts = QueryRelease(Workload.marginals(1), epsilon=2.0).fit(table, table.slice(0, 3))
    counts.save(home / "counts")
    ages = np.random.default_rng(2).integers(20, 90, size=4000)
    for name, part in (("records", ages), ("public", ages[:100])):
        rows = "".join(f"{age},{'yes' if age >= 50 else 'no'}\n" for age in part)
        (home / f"{name}.csv").write_text(f"age,ill\n{rows}")
    options = ["--label", "ill", "--classes", "no,yes", "--public", str(home / "public.csv"), "--epsilon", "8"]
    options += ["--method", "semi-private", "--concept", "thresholds", "--out", str(home / "hypothesis")]
    assert main(["fit", str(home / "records.csv"), *options]) == 0
    hypothesis = json.loads((home / "hypothesis" / "manifest.json").read_text())
    return {
        "line": line.answer().to_pylist(),
        "counts": counts.answer().to_pylist(),
        "claims": {"line": line.claim_, "counts": counts.claim_, "hypothesis": hypothesis["bill"]["claim"]},
        "hypothesis": ["no", "yes"],  # of ages 20 and 89
    }


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as name:
        home = Path(name)
        os.environ["QUORATE_STATE"] = str(home / "state")
        expected = private_folders(home) | published_folders(home)
        (home / "expected.json").write_text(json.dumps(expected, indent=1))
        with tarfile.open(sys.argv[1], "w:gz") as packed:
            for one in ("classifier", "quorum", "everlasting", "line", "counts", "hypothesis", "expected.json"):
                packed.add(home / one, one)
