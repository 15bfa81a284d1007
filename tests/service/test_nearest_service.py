"""A model of neighbours behind HTTP: answered like any other, and changed by its owner alone while it is."""

import json

import msgspec
import numpy as np
import pandas
import pytest

pytest.importorskip("uvicorn", reason="the server's packages are not installed")

from quorate import InvalidInput, NeighbourClassifier, NeighbourRegressor, load, save
from quorate.models.knn._units import SEALED
from quorate.service import Settings
from quorate.service._app import make_app
from quorate.service._documents import DOCUMENTS
from quorate.service._worker import open_models
from quorate.tables import SCHEMA_FILE, Number, Schema
from support.service_client import features, in_process

INFER = "/v2/models/m/infer"
RNG = np.random.default_rng(3)
Y = RNG.integers(0, 2, size=500)
X = RNG.normal(size=(500, 2)) * 0.1 + np.where(Y, 3.0, -3.0)[:, np.newaxis]


def saved(folder, *, scores=False, **fit):
    """Save a model and return keys of one who asks and of the owner."""
    model = NeighbourClassifier(epsilon=100.0, radius=0.5, votes=9.0, classes=["no", "yes"], scores=scores)
    return keys_of(model.fit(X, np.where(Y, "yes", "no"), **fit), folder)


def keys_of(model, folder, **told):
    save(model, folder, **told)
    tokens = {name: model.session_.ledger.add_key(name, scopes=[name]) for name in ("ask", "budget", "admin")}
    model.session_.close()
    return {name: {"authorization": f"Bearer {token}"} for name, token in tokens.items()}


def body(rows=None, **texts):
    """Return a request of rows and columns of texts."""
    inputs = [] if rows is None else json.loads(features(*rows))["inputs"]
    for name, values in texts.items():
        inputs.append({"name": name, "shape": [len(values)], "datatype": "BYTES", "data": values})
    return json.dumps({"inputs": inputs}).encode()


def served(folder, **told):
    """Serve the model in this process, and yield what asks it."""
    settings = Settings(models={"m": str(folder)}, **({"pace_ms": 0} | told))
    return in_process(make_app(open_models(settings), settings))


def test_it_is_asked_and_its_owner_changes_it(tmp_path):
    keys = saved(tmp_path / "model", groups=[f"p{number}" for number in range(500)])

    rows = [[0.0, 1.0], [0.0, 1.0]]
    with served(tmp_path / "model") as ask:

        def post(path, who, *given, **texts):
            return ask("POST", path, body(*given, **texts), keys[who])

        answered = ask("POST", INFER, features([3.0, 3.0], [-3.0, -3.0]), keys["ask"])
        inserted = post("/insert/m", "admin", rows, label=["yes", "yes"], unit=["q", "q"])
        again = post("/insert/m", "admin", rows, label=["yes", "yes"], unit=["q", "q"])
        forgotten = post("/forget/m", "admin", unit=["q", "p7"])
        refused = [
            post("/insert/m", "ask", rows, label=["yes", "yes"], unit=["r", "r"]),
            post("/forget/m", "ask", unit=["p8"]),
            post("/forget/m", "admin", unit=["nobody"]),
            post("/forget/m", "admin", rows, unit=["p8"]),
            post("/insert/m", "admin", rows, unit=["r", "r"]),
            post("/insert/m", "admin", rows, label=["yes"], unit=["r", "r"]),
            post("/insert/m", "admin", rows, label=["yes", "yes"]),  # sent again, it would be two more units
        ]
    assert json.loads(answered.body)["outputs"][0]["data"] == ["yes", "no"]
    assert msgspec.json.decode(inserted.body, type=DOCUMENTS["insert"]).inserted == ["q"]
    assert (again.status, again.code) == (400, "invalid_input")
    assert msgspec.json.decode(forgotten.body, type=DOCUMENTS["forget"]).forgotten == 2
    codes = ["forbidden", "forbidden", "invalid_input", "bad_request", "bad_request", "bad_tensor", "bad_request"]
    assert [one.code for one in refused] == codes
    model = load(tmp_path / "model")
    file = model.session_.answerer.file
    assert [name for name, _ in model.forgotten()] == [file.seal(name).removeprefix(SEALED) for name in ("p7", "q")]
    assert "p8" in model.session_.answerer.units
    model.session_.close()


def test_only_its_owner_sees_that_records_came_or_went(tmp_path):
    """A unit that is inserted, or is there already, must not be seen by who may read budgets."""
    keys, seen = saved(tmp_path / "model"), []
    with served(tmp_path / "model") as ask:
        for number in range(3):
            for who in ("budget", "admin"):
                pages = [ask("GET", path, headers=keys[who]) for path in ("/budget/m", "/metrics", "/")]
                seen.append([who, *(page.body.decode() for page in pages)])
            rows = body([[0.0, 1.0]], label=["yes"], unit=[["a", "b", "a"][number]])  # the last is there already
            ask("POST", "/insert/m", rows, keys["admin"])
            ask("POST", "/insert/m", rows, keys["ask"])  # which is nobody's secret
    for who, budget, metrics, dashboard in seen[2:]:
        shown = {
            line.split('code="')[1].split('"')[0]
            for line in metrics.splitlines()
            if "_total" in line and "/insert/" in line
        }
        assert ("entries" in budget, "" in shown, ">entries<" in dashboard) == (who == "admin",) * 3
        assert shown - {"", "invalid_input"} == {"forbidden"}
        assert ('le="+Inf",model="m",route="/insert/{name}"' in metrics) == (who == "admin")
    assert len({budget for who, budget, *_ in seen if who == "budget"}) == 1


def test_a_record_whose_label_is_no_class_is_inserted_without_a_vote(tmp_path):
    """Refused, it would keep the other records of its request out."""
    keys = saved(tmp_path / "model")
    inputs = json.loads(body([[0.0, 1.0]], unit=["q"]))["inputs"]
    inputs.append({"name": "label", "shape": [1], "datatype": "FP64", "data": [0.5]})
    with served(tmp_path / "model") as ask:
        told = ask("POST", "/insert/m", json.dumps({"inputs": inputs}).encode(), keys["admin"])
    assert (told.status, msgspec.json.decode(told.body, type=DOCUMENTS["insert"]).inserted) == (200, ["q"])
    model, point = load(tmp_path / "model"), [[0.0, 1.0]]
    units, counts = model.session_.answerer.units, []
    for _ in range(2):
        counts.append(units.count(model.space_.points(point)).put_to(list))
        model.forget(["q"]) if "q" in units else None
    model.session_.close()
    assert counts[0] == counts[1]


@pytest.mark.parametrize("data", ["[null, 1, 0, 1]", "bytes"])
def test_a_record_with_an_odd_number_is_inserted_without_a_vote_and_keeps_nobody_out(tmp_path, data):
    keys, following = saved(tmp_path / "model"), b""
    tensor = '{"name": "features", "shape": [2, 2], "datatype": "FP64", %s}'
    about = body(label=["yes", "yes"], unit=["odd", "q"])
    tensor %= f'"data": {data}' if data != "bytes" else '"parameters": {"binary_data_size": 32}'
    change = f'{{"inputs": [{tensor}], "about": {json.dumps(json.loads(about)["inputs"])}}}'
    query = f'{{"inputs": [{tensor}]}}'
    if data == "bytes":
        following = np.array([np.nan, 1.0, 0.0, 1.0]).tobytes()

    def post(ask, path, text, who):
        headers = {"inference-header-content-length": str(len(text))} if following else {}
        return ask("POST", path, text.encode() + following, keys[who] | headers)

    with served(tmp_path / "model") as ask:
        inserted, refused = post(ask, "/insert/m", change, "admin"), post(ask, INFER, query, "ask")
    assert (inserted.status, json.loads(inserted.body)) == (200, {"inserted": ["odd", "q"]})
    assert refused.code == "not_finite"
    model, point = load(tmp_path / "model"), [[0.0, 1.0]]
    counts = [model.session_.answerer.units.count(model.space_.points(point)).put_to(list)]
    model.forget(["odd"])
    counts.append(model.session_.answerer.units.count(model.space_.points(point)).put_to(list))
    model.session_.close()
    assert counts[0] == counts[1]


def test_columns_may_be_named_label_and_unit(tmp_path):
    """What is said about rows has a list of its own: no name of a column collides with it."""
    frame = pandas.DataFrame(X, columns=["label", "unit"])
    model = NeighbourClassifier(epsilon=100.0, radius=0.5, votes=9.0, classes=["no", "yes"])
    schema = Schema({name: Number(low=-9, high=9) for name in frame})
    model.fit(schema.encode(frame), np.where(Y, "yes", "no"))
    keys = keys_of(model, tmp_path / "model", extra={SCHEMA_FILE: schema.to_json().encode()})
    numbers = [{"name": name, "shape": [2], "datatype": "FP64", "data": [1.0, 2.0]} for name in ("label", "unit")]
    told = json.loads(body(label=["yes", "no"], unit=["a", "b"]))["inputs"]
    pair = [told[1] | {"shape": [1, 2]}]
    requests = [
        ("/insert/m", {"inputs": numbers, "about": told}),
        ("/forget/m", {"inputs": [], "about": pair}),
        ("/forget/m", {"inputs": [], "about": told[1:]}),
        ("/insert/m", {"inputs": numbers}),
        ("/insert/m", {"inputs": [*numbers, *told]}),
        ("/insert/m", {"inputs": numbers, "about": [*told, *told]}),
        ("/forget/m", {"inputs": [], "about": told}),
        (INFER, {"inputs": numbers, "about": told}),
    ]
    with served(tmp_path / "model") as ask:
        inserted, table, forgotten, *refused = (
            ask("POST", path, json.dumps(document).encode(), keys["admin"]) for path, document in requests
        )
    assert json.loads(inserted.body) == {"inserted": ["a", "b"]}
    assert table.code == "bad_tensor"
    assert json.loads(forgotten.body) == {"forgotten": 2}
    assert [one.code for one in refused] == ["bad_request"] * 5


def test_what_is_said_about_rows_stands_once(tmp_path):
    keys = saved(tmp_path / "model")
    told = json.loads(body(label=["yes"], unit=["a"]))["inputs"]
    inputs = json.loads(features([0.0, 1.0]))["inputs"]
    documents = {"inputs": [*inputs, *told], "about": told[:1]}, {"inputs": inputs, "about": told}
    with served(tmp_path / "model") as ask:
        twice, once = (ask("POST", "/insert/m", json.dumps(one).encode(), keys["admin"]) for one in documents)
    assert (twice.code, once.status) == ("bad_request", 200)


def test_without_keys_nobody_changes_it_and_one_worker_has_it(tmp_path):
    saved(tmp_path / "model")
    with served(tmp_path / "model", keys=False) as ask:
        refused = ask("POST", "/forget/m", body(unit=["7"]))
    assert (refused.status, refused.code) == (403, "forbidden")
    with pytest.raises(InvalidInput, match="one process asks at a time"):
        open_models(Settings(models={"m": str(tmp_path / "model")}, workers=2))


def test_it_gives_scores_where_it_was_fitted_for_them(tmp_path):
    keys = saved(tmp_path / "model", scores=True)
    with served(tmp_path / "model") as ask:
        answers = ask("POST", INFER, features([3.0, 3.0], [-3.0, -3.0]), keys["ask"])
    outputs = {one["name"]: one["data"] for one in answers.json["outputs"]}
    assert outputs["label"] == ["yes", "no"]
    first, second = np.reshape(outputs["scores"], (2, 2))
    assert first[1] > 0.8 > 0.2 > second[1]


def test_a_regressor_gives_values_and_takes_targets(tmp_path):
    model = NeighbourRegressor(epsilon=100.0, radius=0.5, votes=9.0, bounds=(0, 10))
    keys = keys_of(model.fit(X, np.where(Y, 8.0, 1.0)), tmp_path / "model")

    def insert(ask, unit, data, datatype):
        inputs = json.loads(body([[0.0, 1.0]], unit=[unit]))["inputs"]
        inputs.append({"name": "label", "shape": [1], "datatype": datatype, "data": data})
        return ask("POST", "/insert/m", json.dumps({"inputs": inputs}).encode(), keys["admin"])

    with served(tmp_path / "model") as ask:
        told = ask("POST", INFER, features([3.0, 3.0], [-3.0, -3.0]), keys["ask"])
        inserted = insert(ask, "p", [4.5], "FP64"), insert(ask, "q", ["much"], "BYTES")  # which counts as 0
    (output,) = json.loads(told.body)["outputs"]
    assert output["name"] == "value"
    assert np.abs(np.array(output["data"]) - [8, 1]).max() < 1
    assert [got.json for got in inserted] == [{"inserted": ["p"]}, {"inserted": ["q"]}]
