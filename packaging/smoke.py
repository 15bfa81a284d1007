"""What an installed wheel does with no more than its dependencies, and what each extra brings.

    python -I packaging/smoke.py            the library by itself
    python -I packaging/smoke.py service    what the extra `service` promises

`packaging/wheels.py` runs it in environments that have nothing else, from an empty folder.
"""

import importlib.metadata
import importlib.resources
import json
import subprocess
import sys
import sysconfig
import warnings
from pathlib import Path

EPSILON = 4.0


def library() -> None:
    """Fit, publish, answer, save, load, plan, and run the command."""
    import quorate as qr
    from quorate.tables import Schema
    from quorate.tables.datasets import bank

    assert Path(qr.__file__).is_relative_to(sys.prefix), f"{qr.__file__} is not the installed package"
    assert qr.__version__ == importlib.metadata.version("quorate")
    files = importlib.resources.files("quorate")
    assert (files / "py.typed").is_file()
    assert (files / "core" / "privacy" / "PROOF.md").is_file()

    data = bank()
    schema = Schema.from_public(data.public, label="answer", classes=["no", "yes"])
    X, y = schema.encode(data.private), schema.labels(data.private)
    model = qr.PrivateLogisticRegression(epsilon=EPSILON, classes=["no", "yes"])
    shares = model.fit(X, y, public=schema.encode(data.public)).predict_proba(schema.encode(data.new))
    assert abs(shares.sum(axis=1) - 1).max() < 1e-9

    votes = qr.PrivateClassifier(epsilon=EPSILON, queries=20, teachers=100, classes=["no", "yes"]).fit(X, y)
    qr.save(votes, "votes")
    assert len(qr.load("votes").predict(schema.encode(data.new)[:3])) == 3
    assert qr.plan(teachers=1000).feasible

    fitted = qr.fit(data.private, "answer", epsilon=EPSILON, classes=["no", "yes"])  # as in README
    assert fitted.predict_proba(data.new).shape == (data.new.num_rows, 2)

    command = Path(sysconfig.get_path("scripts")) / "quorate"
    said = subprocess.run([command, "doctor", "--json"], capture_output=True, text=True, check=False)
    findings = {finding["subject"]: finding for finding in json.loads(said.stdout)["findings"]}
    assert findings["opendp"]["verdict"] == findings["noise"]["verdict"] == "ok", findings


def report() -> None:
    """A page with a plot is written."""
    from quorate.report import Claim, ReportData, write_report

    data = ReportData(title="Smoke", claim=Claim(epsilon=1.0, delta=1e-6), spending=((0, 0.0), (10, 0.5)))
    assert "<svg" in write_report(data, "report.html").read_text(encoding="utf-8")


def service() -> None:
    """The server, its description and its pages are there."""
    import starlette
    import uvicorn

    from quorate.service import serve
    from quorate.service.pages import dashboard_page

    assert callable(serve)
    assert "No model is served" in dashboard_page([], at=0.0)
    assert starlette.__version__
    assert uvicorn.__version__


def client() -> None:
    """The client of a server can be made, waiting and with asyncio."""
    from quorate.service.client import AsyncClient, Client

    for kind in (Client, AsyncClient):
        assert kind("http://127.0.0.1:8900", key="qk_00000000_none")


def tracing() -> None:
    """Spans can be made, and sent to a collector."""
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.trace import TracerProvider

    assert OTLPSpanExporter
    assert TracerProvider().get_tracer("quorate")


def identity() -> None:
    """What checks the tokens of issuers is there, with a server that takes them."""
    from joserfc import jws

    from quorate.service import Settings

    assert jws.extract_compact
    assert Settings(models={"triage": "triage"}, identity="identity.toml")


def onnx() -> None:
    """A published model becomes a graph that the runtime reads."""
    import onnxruntime

    import quorate as qr
    from quorate.models.export import to_onnx

    X = [[number / 500] for number in range(500)]
    model = qr.PrivateLogisticRegression(epsilon=EPSILON, classes=[0, 1])
    model.fit(X, [int(row[0] > 0.5) for row in X], public=X[:100])
    assert onnxruntime.InferenceSession(to_onnx(model), providers=["CPUExecutionProvider"])


def mlflow() -> None:
    """The flavour for MLflow is there, with MLflow."""
    from quorate.models.mlflow import load_model, log_model, save_model

    assert all(map(callable, (load_model, log_model, save_model)))
    assert importlib.import_module("mlflow.pyfunc")


def sites() -> None:
    """Two parties of a federation agree on a secret, and masks cancel."""
    import tempfile
    from pathlib import Path

    import numpy as np

    from quorate.service.sites import Keys
    from quorate.service.sites._messages import masks_of
    from quorate.service.sites.server import open_site

    assert callable(open_site)
    with tempfile.TemporaryDirectory() as folder:
        north, south = (Keys.make(Path(folder) / name, name) for name in ("north", "south"))
    counts = np.array([[3, 7]])
    masked = [masks_of(one, [two.card]).masked(counts, b"batch") for one, two in ((north, south), (south, north))]
    assert (masked[0] + masked[1]).view(np.int64).tolist() == [[6, 14]]


def postgres() -> None:
    """The driver of PostgreSQL loads its library."""
    import psycopg

    assert psycopg.pq.version()


def excel() -> None:
    """A workbook is read as a table."""
    import tempfile

    import openpyxl

    from quorate.tables import read_table

    with tempfile.TemporaryDirectory() as folder:
        book = openpyxl.Workbook()
        for row in (["age"], [39]):
            book.active.append(row)
        book.save(Path(folder, "t.xlsx"))
        assert read_table(Path(folder, "t.xlsx"), role="query").to_pylist() == [{"age": "39"}]


def sql() -> None:
    """A query is read as a table."""
    from quorate.tables import read_table

    assert read_table("duckdb:?query=SELECT 39 AS age", role="query").num_rows == 1
    postgres()


def dask() -> None:
    """The client of a Dask cluster is there, and joblib's backend for it."""
    import distributed
    from joblib.parallel import EXTERNAL_BACKENDS

    assert distributed.Client
    assert "dask" in EXTERNAL_BACKENDS


def ray() -> None:
    """Ray registers itself with joblib, where there is a Ray for this Python."""
    if sys.version_info >= (3, 14):
        return
    from ray.util.joblib import register_ray

    register_ray()


def text() -> None:
    """A tiny model of transformers, with random weights, scores words."""
    from transformers import LlamaConfig, LlamaForCausalLM

    from quorate.models.text import HttpModel, TransformersModel

    sizes = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 1}
    network = LlamaForCausalLM(LlamaConfig(vocab_size=128, **sizes)).eval()
    model = TransformersModel(network, lambda text, **_: {"input_ids": [ord(letter) % 128 for letter in text.strip()]})
    assert model(["a prompt"], ["no", "yes"]).shape == (1, 2)
    HttpModel("http://localhost:1/v1", "none").close()


def torch() -> None:
    """Batched learners find PyTorch."""
    from quorate.compute.learners.backends import choose_backend

    assert choose_backend("torch").name == "torch"


def docs() -> None:
    """The builder of the site and all that its configuration names are there."""
    for name in ("sphinx", "myst_parser", "pydata_sphinx_theme", "sphinx_copybutton"):
        importlib.import_module(name)


PROMISES = {
    "client": client,
    "dask": dask,
    "docs": docs,
    "excel": excel,
    "identity": identity,
    "mlflow": mlflow,
    "onnx": onnx,
    "postgres": postgres,
    "ray": ray,
    "report": report,
    "service": service,
    "sites": sites,
    "sql": sql,
    "text": text,
    "torch": torch,
    "tracing": tracing,
}


if __name__ == "__main__":
    warnings.simplefilter("ignore", UserWarning)  # what a fit tells its owner
    for step in [PROMISES[name] for name in sys.argv[1:]] or [library]:
        step()
