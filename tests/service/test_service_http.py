"""The service over HTTP, in processes of its own, with real models and a stock client."""

import contextlib
import http.client
import json
import os
import random
import re
import signal
import socket
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from quorate import InvalidInput, PrivateClassifier, save
from quorate.core.ledger import find_ledger
from quorate.models.saving import open_folder
from quorate.service import Settings
from quorate.service._errors import PROBLEMS
from quorate.service._worker import open_models
from quorate.tables import Category, Number, Schema
from support.service_client import features, serving

triton = pytest.importorskip("tritonclient.http", reason="the stock client is not installed")
triton_errors = pytest.importorskip("tritonclient.utils")

INFER = "/v2/models/{}/infer"
QUERIES = 3000


def _array_model(folder):
    generator = np.random.default_rng(0)
    X = generator.normal(size=(8000, 3))
    y = np.where(X[:, 0] > 0, "yes", "no")
    classifier = PrivateClassifier(
        epsilon=30.0, delta=1e-6, teachers=300, queries=QUERIES, classes=["no", "yes"], aggregator="noisy_max"
    )
    return save(classifier.fit(X, y), folder)


def _table_model(folder):
    schema = Schema({"age": Number(low=0, high=100, missing="indicator"), "job": Category(["clerk", "nurse"])})
    generator = np.random.default_rng(0)
    X = generator.uniform(-1, 1, size=(8000, 4))
    y = (X[:, 0] > 0).astype(int) + 5
    classifier = PrivateClassifier(
        epsilon=30.0, delta=1e-6, teachers=300, queries=QUERIES, classes=[5, 6], aggregator="noisy_max"
    )
    return save(classifier.fit(X, y), folder, extra={"schema.json": schema.to_json().encode()})


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    home = tmp_path_factory.mktemp("models")
    return {"array": str(_array_model(home / "array")), "table": str(_table_model(home / "table"))}


@pytest.fixture(scope="module")
def server(models, tmp_path_factory):
    """One server of two workers, without keys and without leases, so that a ledger shows each charge."""
    limits = {"port": 0, "keys": False, "pace_ms": 5, "workers": 2, "lease": 0, "body_limit": 2**20, "row_limit": 512}
    told = Settings(models=models, **limits)
    with serving(told, tmp_path_factory.mktemp("server") / "log") as made:
        yield made


@pytest.fixture
def client(server):
    made = triton.InferenceServerClient(f"127.0.0.1:{server.port}")
    yield made
    made.close()


def ledger_of(folder):
    return find_ledger(folder, fingerprint=open_folder(folder).fingerprint)


def spent(folder):
    return ledger_of(folder).view().spent.renyi


# The stock client.


def test_the_stock_client_finds_its_way(client):
    assert client.is_server_live()
    assert client.is_server_ready()
    assert client.is_model_ready("array")
    assert not client.is_model_ready("other")
    assert client.get_server_metadata()["extensions"] == ["binary_tensor_data", "model_repository"]
    about = client.get_model_metadata("array")
    assert client.is_model_ready("array", model_version="1")
    assert client.get_model_metadata("array", model_version="1") == about
    assert about["inputs"] == [{"name": "features", "datatype": "FP64", "shape": [-1, 3]}]
    assert [tensor["datatype"] for tensor in about["outputs"]] == ["BYTES", "INT64", "BYTES"]
    assert "differentially private" in about["parameters"]["claim"]


@pytest.mark.parametrize("datatype", ["FP64", "FP32", "INT32", "BOOL"])
@pytest.mark.parametrize("binary_in", [True, False])
@pytest.mark.parametrize("outputs", ["none", "binary", "json", "mixed"])
def test_the_stock_client_asks(client, datatype, binary_in, outputs):
    X = np.array([[4, 0, 0], [5, 1, 1]]).astype(triton_errors.triton_to_np_dtype(datatype))
    tensor = triton.InferInput("features", list(X.shape), datatype)
    tensor.set_data_from_numpy(X, binary_data=binary_in)
    wanted = {
        "none": None,
        "binary": [triton.InferRequestedOutput(name, binary_data=True) for name in ("label", "index", "outcome")],
        "json": [triton.InferRequestedOutput(name, binary_data=False) for name in ("label", "index", "outcome")],
        "mixed": [
            triton.InferRequestedOutput("outcome", binary_data=False),
            triton.InferRequestedOutput("label", binary_data=True),
            triton.InferRequestedOutput("index", binary_data=False),
        ],
    }[outputs]
    result = client.infer("array", [tensor], outputs=wanted, request_id="", model_version="1" if binary_in else "")
    labels, index, outcome = (result.as_numpy(name).tolist() for name in ("label", "index", "outcome"))
    as_text = [label.decode() if isinstance(label, bytes) else label for label in labels]
    assert [label.decode() if isinstance(label, bytes) else label for label in outcome] == ["answered"] * 2
    assert as_text == [["no", "yes"][i] for i in index]


@pytest.mark.parametrize("binary", [True, False])
def test_the_stock_client_sends_columns_of_a_table(client, binary):
    ages, jobs = np.array([80.0, 10.0]), np.array([["nurse"], ["clerk"]], dtype=object)
    age, job = triton.InferInput("age", [2], "FP64"), triton.InferInput("job", [2, 1], "BYTES")
    age.set_data_from_numpy(ages, binary_data=binary)
    job.set_data_from_numpy(jobs, binary_data=binary)
    result = client.infer("table", [job, age])
    assert result.as_numpy("label").dtype == np.int64
    assert set(result.as_numpy("label").tolist()) <= {5, 6}
    about = client.get_model_metadata("table")
    assert [(tensor["name"], tensor["datatype"]) for tensor in about["inputs"]] == [("age", "FP64"), ("job", "BYTES")]


def test_the_stock_client_is_told_what_is_wrong(client):
    tensor = triton.InferInput("features", [1, 2], "FP64")
    tensor.set_data_from_numpy(np.zeros((1, 2)))
    with pytest.raises(triton_errors.InferenceServerException, match=r"must have the shape \[rows, 3\]") as caught:
        client.infer("array", [tensor])
    assert caught.value.status() == "400"
    tensor = triton.InferInput("features", [1, 3], "FP64")
    tensor.set_data_from_numpy(np.array([[np.nan, 0, 0]]))
    with pytest.raises(triton_errors.InferenceServerException, match="must be finite"):
        client.infer("array", [tensor])
    with pytest.raises(triton_errors.InferenceServerException, match="no model of this name"):
        client.get_model_metadata("other")
    tensor.set_data_from_numpy(np.zeros((1, 3)))
    with pytest.raises(triton_errors.InferenceServerException, match="without Content-Encoding"):
        client.infer("array", [tensor], request_compression_algorithm="gzip")


# Ids.


def ask(server, model, body, **headers):
    return server.request("POST", INFER.format(model), body, headers)


def test_a_thousand_retries_over_two_workers(server, models):
    body = features([2.5, 0.25, 0.125], [0.001, 0.0, 0.0], id="a-thousand-times")
    start = spent(models["array"])
    assert ask(server, "array", features([2.5, 0.25, 0.25])).status == 200
    before = spent(models["array"])
    price = before - start

    def retry(count):
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
        got = set()
        for _ in range(count):
            connection.request("POST", INFER.format("array"), body)
            response = connection.getresponse()
            text = response.read()
            if response.status == 409:  # the other worker is at it
                assert json.loads(text)["code"] == "in_progress"
                continue
            got.add((response.status, text))
        connection.close()
        return got

    with ThreadPoolExecutor(8) as pool:
        got = set().union(*pool.map(retry, [125] * 8))
    assert got == {(200, ask(server, "array", body).body)}
    assert spent(models["array"]) - before == pytest.approx(2 * price, rel=1e-6)
    assert price > 0


def test_the_same_id_with_another_body_draws_nothing(server, models):
    assert ask(server, "array", features([1.25, 0, 0], id="one-body")).status == 200
    before = spent(models["array"])
    for body in (features([1.5, 0, 0], id="one-body"), features([1.25, 0, 0], id="one-body", outputs=[])):
        got = ask(server, "array", body)
        assert (got.status, got.code) == (409, "id_reused")
    got = ask(server, "array", features([1.75, 0, 0]), **{"Idempotency-Key": "one-body"})
    assert (got.status, got.code) == (409, "id_reused")
    assert spent(models["array"]) == before


# What nobody should send.


def _mutated(generator, valid):
    """Return a request that is wrong, or not: method, path, body, headers."""
    headers, body = {}, bytearray(valid)
    method, path = "POST", INFER.format("array")
    change = generator.randrange(12)
    if change == 0:
        for _ in range(generator.randrange(1, 8)):
            body[generator.randrange(len(body))] = generator.randrange(256)
    elif change == 1:
        body = body[: generator.randrange(len(body))]
    elif change == 2:
        document = json.loads(valid)
        place = generator.choice(["name", "shape", "datatype", "data", "parameters"])
        document["inputs"][0][place] = _anything(generator, 3)
        body = json.dumps(document).encode()
    elif change == 3:
        document = json.loads(valid)
        document[generator.choice(["id", "inputs", "outputs", "parameters", "more"])] = _anything(generator, 3)
        body = json.dumps(document).encode()
    elif change == 4:
        body = json.dumps(_anything(generator, 4)).encode()
    elif change == 5:
        body = bytes(generator.randrange(256) for _ in range(generator.randrange(300)))
        headers = {"Inference-Header-Content-Length": str(generator.randrange(300))}
    elif change == 6:
        number = generator.choice(["NaN", "Infinity", "-Infinity", "1e999", "-0", "1e-999", "0x1", "9" * 400, "null"])
        body = valid.replace(b"1.5", number.encode())
    elif change == 7:
        name = generator.choice(
            ["Inference-Header-Content-Length", "Idempotency-Key", "Content-Encoding", "Authorization"]
        )
        headers = {name: generator.choice(["", "-1", "0", "gzip", "Basic x", "9" * 30, "é", "a" * 300])}
    elif change == 8:
        path = generator.choice(
            [
                "/",
                "/docs",
                "/metrics",
                "/v2",
                "/v2/models/%2e%2e/infer",
                "/budget/%00",
                "/v2/models/a%ffb",
                "/x?a=b",
                "/%",
            ]
        )
        method, body = generator.choice(["GET", "HEAD", "POST", "PUT", "OPTIONS", "DELETE"]), b""
    elif change == 9:
        raw = np.array([[1.0, 2.0, 3.0]]).tobytes()
        size = generator.choice([0, 8, 23, 24, 25, 10**18, -1])
        tensor = {"name": "features", "shape": [1, 3], "datatype": "FP64", "parameters": {"binary_data_size": size}}
        head = json.dumps({"inputs": [tensor]}).encode()
        headers = {"Inference-Header-Content-Length": str(len(head) + generator.choice([0, 0, 1, -1]))}
        body = head + raw
    elif change == 10:
        body = b"[" * generator.randrange(2**15) + valid
    else:
        body = bytes(generator.randrange(1, 3)) * generator.choice([2**20 - 1, 2**20 + 1])
    return method, path, bytes(body), headers


def _anything(generator, depth):
    kinds = [None, True, -1, 0, 2**70, 1.5, -1e300, "", "features", "FP64", "\ud7ff\0é", [], {}]
    if depth and generator.random() < 0.5:
        inner = [_anything(generator, depth - 1) for _ in range(generator.randrange(4))]
        return inner if generator.random() < 0.6 else {generator.choice(["name", "shape", "x"]): one for one in inner}
    return generator.choice(kinds)


def _fuzzed(server, count, start):
    generator = random.Random(start)
    seen = {}
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
    for number in range(count):
        valid = features([1.5, number % 7, 0.0])
        method, path, body, headers = _mutated(generator, valid)
        try:
            connection.request(method, path, body, {name: value.encode() for name, value in headers.items()})
            response = connection.getresponse()
            text = response.read()
        except (http.client.HTTPException, OSError):
            connection.close()
            continue
        seen[response.status] = seen.get(response.status, 0) + 1
        assert response.status < 500, (number, method, path, body[:200], text)
        if response.status >= 400 and method != "HEAD" and text != b"Invalid HTTP request received.":
            document = json.loads(text)
            assert PROBLEMS[document["code"]].status == response.status, (number, text)
            assert set(document) == {"error", "code"}
    connection.close()
    return seen


def _check_fuzz(server, count):
    with ThreadPoolExecutor(4) as pool:
        seen = list(pool.map(lambda start: _fuzzed(server, count // 4, start), range(4)))
    answered = sum(sum(statuses.values()) for statuses in seen)
    assert answered > 0.98 * count
    assert {200, 400, 404, 405, 413} <= set().union(*seen)
    assert server.request("GET", "/v2/health/ready").status == 200


def test_nothing_that_is_sent_breaks_it(server):
    _check_fuzz(server, 500)


@pytest.mark.long
def test_ten_thousand_things_that_are_sent_do_not_break_it(server):
    _check_fuzz(server, 10_000)


def test_bytes_that_are_no_http(server):
    for line in (b"\0" * 100, b"GET\r\n\r\n", b"POST /v2 HTTP/9.9\r\n\r\n", b"GET /\xff HTTP/1.1\r\nhost: x\r\n\r\n"):
        with socket.create_connection(("127.0.0.1", server.port), timeout=60) as raw:
            raw.sendall(line)
            raw.shutdown(socket.SHUT_WR)
            got = raw.recv(10_000)
            assert b" 500 " not in got
    body = b'5\r\n{"inp\r\n'
    with socket.create_connection(("127.0.0.1", server.port), timeout=60) as raw:  # a chunk, and then nobody
        raw.sendall(
            b"POST /v2/models/array/infer HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n" + body
        )
    assert server.request("GET", "/v2/health/ready").status == 200


def test_a_thousand_canaries_do_not_sing(server):
    """Texts planted in features, ids, names and headers come back in no log, metric, error or page."""
    canaries = [f"canary{random.Random(n).getrandbits(64):016x}" for n in range(1000)]
    told = []
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
    for number, canary in enumerate(canaries):
        age = {"name": "age", "shape": [1], "datatype": "BYTES", "data": [canary if number % 2 else "40"]}
        job = {"name": "job", "shape": [1], "datatype": "BYTES", "data": [canary]}
        document = {"inputs": [age, job]}
        headers, path = {}, INFER.format("table")
        if number % 5 == 1:
            age["datatype"] = canary
        elif number % 5 == 2:
            document[canary] = 1
        elif number % 5 == 3:
            document["inputs"].append({"name": canary, "shape": [1], "datatype": "BYTES", "data": [canary]})
        elif number % 10 == 4:
            path += f"?{canary}=1"
        elif number % 10 == 9:
            headers = {"Authorization": f"Bearer {canary}", "X-Canary": canary}
            path = INFER.format(canary)
        connection.request("POST", path, json.dumps(document), headers)
        response = connection.getresponse()
        told.append(response.read().decode())
        assert response.status in (200, 400, 404)
    connection.close()
    told += [
        server.request("GET", path).body.decode()
        for path in ("/metrics", "/", "/docs", "/openapi.json", "/budget/table")
    ]
    _until(lambda: server.written().count('"event":"request"') >= 1005)  # it is written a few times a second
    told.append(server.written())
    for text in told:
        assert not re.search("canary", text, re.IGNORECASE), text[:500]


def test_metrics_are_summed_over_workers_and_the_pages_stand(server):
    def answered():
        text = server.request("GET", "/metrics").body.decode()
        found = re.findall(r'^quorate_queries_total\{model="array",outcome="\w+"\} (\S+)$', text, re.MULTILINE)
        return sum(map(float, found)), text

    before, _ = answered()
    for number in range(40):  # each on a connection of its own, so that both workers get some
        assert ask(server, "array", features([0.5, number, 77.0])).status == 200
    after, text = answered()
    assert after == before + 40
    assert answered()[0] == after
    assert re.search(r'^quorate_budget_left_ratio\{model="array"\} 0\.\d+$', text, re.MULTILINE)
    page = server.request("GET", "/")
    assert page.status == 200
    assert page.headers["content-security-policy"].startswith("default-src 'none'")
    assert page.headers["cache-control"] == "no-store"
    assert "array" in page.body.decode()
    budget = server.request("GET", "/budget/array").json
    assert 0 < budget["left"] < 1
    assert budget["spent_epsilon"] < budget["epsilon"] == 30.0


def test_no_answer_tells_the_budget(server):
    text = ask(server, "array", features([0.5, 0.5, 99.0])).body.decode()
    assert not re.search("epsilon|budget|spent|left|renyi", text)


# Starting and stopping.


def _answered_in(folder):
    entries = ledger_of(folder).entries()
    return sum(entry.event.body["answered"] for entry in entries if entry.event.kind == "answered")


@pytest.mark.parametrize(("workers", "number"), [(1, signal.SIGTERM), (2, signal.SIGTERM), (1, signal.SIGINT)])
def test_a_stop_is_clean_and_returns_the_leases(tmp_path, workers, number):
    folder = _array_model(tmp_path / "model")
    told = Settings(models={"m": str(folder)}, port=0, keys=False, pace_ms=1500, workers=workers, lease=50)
    with serving(told, tmp_path / "log") as server:
        assert ask(server, "m", features([1, 0, 0])).status == 200
        assert ledger_of(folder).view().leases
        with ThreadPoolExecutor(8) as pool:
            asked = [pool.submit(ask, server, "m", features([1, n, 0])) for n in range(1, 9)]
            _until(lambda: _answered_in(folder) == 9)  # they have come, and wait for their pace
            assert server.stop(number) == 0
            assert [one.result().status for one in asked] == [200] * 8
    view = ledger_of(folder).view()
    assert view.leases == ()
    assert '"event":"stopped","clean":true' in server.written()
    assert not ledger_of(folder).verify().problems
    assert "Traceback" not in server.written()


def test_an_id_outlives_the_server(tmp_path):
    folder = _array_model(tmp_path / "model")
    told = Settings(models={"m": str(folder)}, port=0, keys=False, pace_ms=0)
    body, got = features([0.01, 0, 0], [3, 0, 0], id="kept"), []
    for attempt in range(2):
        with serving(told, tmp_path / f"log{attempt}") as server:
            got.append(ask(server, "m", body))
            assert ask(server, "m", features([0.02, 0, 0], id="kept")).code == "id_reused"
            before = spent(folder)
    assert {one.status for one in got} == {200}
    assert len({one.body for one in got}) == 1
    assert spent(folder) <= before  # less: what was out on lease is back


def _children(process):
    folder = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    if not folder.exists():
        pytest.skip("this system does not list the children of a process")
    running = []
    for child in folder.read_text().split():
        with contextlib.suppress(OSError):
            if b"spawn_main" in Path(f"/proc/{child}/cmdline").read_bytes():
                running.append(int(child))
    return running


def _until(true, seconds=150):
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end
        time.sleep(0.1)


def test_a_worker_that_dies_is_replaced_and_orphans_stop(tmp_path):
    folder = _array_model(tmp_path / "model")
    told = Settings(models={"m": str(folder)}, port=0, keys=False, pace_ms=0, workers=2, lease=50)
    with serving(told, tmp_path / "log") as server:
        _until(lambda: server.written().count('"event":"started"') == 2)
        first, second = _children(server.process)
        os.kill(first, signal.SIGKILL)
        _until(lambda: server.written().count('"event":"started"') == 3)
        assert '"event":"worker_died"' in server.written()
        assert [ask(server, "m", features([1, n, 0])).status for n in range(20)] == [200] * 20
        left = _children(server.process)
        assert len(left) == 2
        assert first not in left
        assert second in left
        server.process.send_signal(signal.SIGKILL)
        server.process.wait(60)
        _until(lambda: not any(Path(f"/proc/{child}/cmdline").exists() for child in left))
    assert server.written().count('"event":"stopped","clean":true') == 2
    assert not ledger_of(folder).verify().problems


@pytest.mark.parametrize("workers", [1, 2])
def test_a_server_that_cannot_start_says_why(tmp_path, workers):
    told = Settings(models={"m": str(tmp_path / "nothing")}, port=0, keys=False, workers=workers)
    with pytest.raises(AssertionError, match="is not a model"), serving(told, tmp_path / "log"):
        pass
    text = (tmp_path / "log").read_text()
    assert "Traceback" not in text


def test_a_folder_that_everybody_may_write_is_not_served(models):
    folder = models["array"]
    mode = os.stat(folder).st_mode
    os.chmod(folder, 0o777)
    try:
        with pytest.raises(InvalidInput, match="may be written by everybody"):
            open_models(Settings(models={"m": str(folder)}))
    finally:
        os.chmod(folder, mode)


def test_a_file_that_its_group_may_write_is_not_served_unless_the_group_is_the_servers_own(models, monkeypatch):
    folder = Path(models["array"])
    path = folder / "manifest.json"
    path.chmod(0o660)
    told = Settings(models={"m": str(folder)})
    try:
        others = SimpleNamespace(pw_uid=os.geteuid() + 1, pw_gid=path.stat().st_gid, pw_name="other")
        monkeypatch.setattr("pwd.getpwall", lambda: [others])
        with pytest.raises(InvalidInput, match="may be written by its group"):
            open_models(told)
        monkeypatch.setattr("pwd.getpwall", list)  # a container's user, alone in the group of its volumes
        monkeypatch.setattr("grp.getgrall", list)
        open_models(told)[0].session.close()
        monkeypatch.setattr("os.getegid", lambda: path.stat().st_gid + 1)
        with pytest.raises(InvalidInput, match="may be written by its group"):
            open_models(told)
    finally:
        path.chmod(0o600)


def test_a_file_that_lies_elsewhere_is_not_served(models, tmp_path):
    """Who may write there could exchange it after its hash was checked."""
    folder = Path(models["array"])
    elsewhere = tmp_path / "elsewhere"
    for name in ("manifest.json", "ledger.sqlite", "ledger.key"):
        (folder / name).rename(elsewhere)
        (folder / name).symlink_to(elsewhere)
        try:
            with pytest.raises(InvalidInput, match=f"{name} must be a file in the model's folder"):
                open_models(Settings(models={"m": str(folder)}))
        finally:
            (folder / name).unlink()
            elsewhere.rename(folder / name)


# Keys, with a real ledger.


def test_keys_quotas_and_rates(tmp_path):
    folder = _array_model(tmp_path / "model")
    ledger = ledger_of(folder)
    asker = ledger.add_key("asker", scopes=["ask"])
    poor = ledger.add_key("poor", scopes=["ask"], quota=3)
    slow = ledger.add_key("slow", scopes=["ask"], per_minute=4)
    burnt = ledger.add_key("burnt", scopes=["ask"], budget=0.0)
    reader = ledger.add_key("reader", scopes=["budget"])
    admin = ledger.add_key("admin", scopes=["admin"])
    with serving(Settings(models={"m": str(folder)}, port=0, pace_ms=0), tmp_path / "log") as server:

        def asks(token, n):
            return ask(server, "m", features([1, n, 0]), Authorization=f"Bearer {token}")

        assert asks(asker, 1).status == 200
        assert [asks(poor, n).code for n in range(4)] == ["", "", "", "quota_spent"]
        codes = [asks(slow, n).code for n in range(12)]
        assert "rate_limited" in codes
        assert asks(burnt, 1).code == "share_spent"
        told = server.request("GET", "/share/m", headers={"Authorization": f"Bearer {poor}"}).json
        assert (told["key"], told["quota"], told["used"], told["budget"]) == (poor.split("_")[1], 3, 3, None)
        assert asks(reader, 1).code == "forbidden"
        assert ask(server, "m", features([1, 0, 0])).code == "unauthenticated"

        def page(token):
            return server.request("GET", "/", headers={"Authorization": f"Bearer {token}"})

        assert page(asker).code == "forbidden"
        assert page(reader).status == 200
        assert "asker" not in page(reader).body.decode()
        _until(lambda: len(ledger.refusals(100)) >= 3)  # refusals are written once a second
        shown = page(admin).body.decode()
        assert "asker" in shown
        assert "quota_spent" in shown
        assert asker not in shown
        ledger.revoke_key(asker.split("_")[1])
        _until(lambda: asks(asker, 1).code == "unauthenticated")
        text = server.written()
    for token in (asker, poor, slow, burnt, reader, admin):
        assert token.split("_", 2)[2] not in text
    assert {refusal.code for refusal in ledger.refusals(100)} == {
        "quota_spent",
        "rate_limited",
        "share_spent",
        "forbidden",
    }


def _check_document(server, examples):
    """Send what the service's own description allows, and more; what comes back must be as described."""
    schemathesis = pytest.importorskip("schemathesis", reason="schemathesis is not installed")
    from schemathesis.specs.openapi.checks import positive_data_acceptance  # shapes differ from model to model

    schema = schemathesis.openapi.from_url(f"http://127.0.0.1:{server.port}/openapi.json")
    sent = Counter()
    for found in schema.get_all_operations():
        operation = found.ok()

        @given(case=operation.as_strategy(), model=st.sampled_from(["array", "table", None]))
        @settings(max_examples=examples, suppress_health_check=list(HealthCheck), database=None, derandomize=True)
        def check(case, model):
            if model is not None and case.path_parameters:
                case.path_parameters["name"] = model
            sent[case.operation.label] += 1
            case.call_and_validate(excluded_checks=[positive_data_acceptance])

        check()
    assert sent["POST /v2/models/{name}/infer"] >= examples / 2


def test_the_service_does_as_its_document_says(server):
    _check_document(server, 20)


@pytest.mark.long
def test_the_service_does_as_its_document_says_two_thousand_times(server):
    _check_document(server, 2000)
