"""A server and the command line say of a model what its claim says, not what its account was opened with."""

import asyncio
import json

import numpy as np
import pytest

import quorate
from quorate import AgnosticClassifier, PrivateClassifier, StableClassifier, UniversalClassifier
from quorate.cli import main
from quorate.models.concepts import Thresholds
from quorate.service._app import make_app
from quorate.service._settings import Settings
from quorate.service._worker import Folders
from quorate.service.pages._rendering import figure
from support.service_client import call, running

rng = np.random.default_rng(0)
X = rng.uniform(size=(8000, 1))
y = ((X[:, 0] > 0.5) ^ (rng.uniform(size=8000) < 0.1)).astype(int)
CLASSES = {"classes": [0, 1]}


def held_out():
    return PrivateClassifier(epsilon=4.0, teachers=200, queries=20, holdout=0.1, aggregator="noisy_max", **CLASSES)


def agnostic():
    return AgnosticClassifier(Thresholds(), epsilon=4.0, queries=10, teachers=100, aggregator="noisy_max", **CLASSES)


def universal():
    return UniversalClassifier(Thresholds(), epsilon=8.0, ballots=3, teachers=100, aggregator="noisy_max", **CLASSES)


async def told(name, folder):
    settings = Settings(models={name: str(folder)}, keys=False, pace_ms=0)
    model = Folders(settings).open(name)
    async with running(make_app([model], settings)) as app:
        budget = (await call(app, "GET", f"/budget/{name}")).json
        metrics = (await call(app, "GET", "/metrics")).body.decode()
        page = (await call(app, "GET", "/")).body.decode()
    return budget, metrics, page


def shown(folder, capsys):
    capsys.readouterr()
    assert main(["ledger", "show", str(folder), "--json"]) == 0
    return json.loads(capsys.readouterr().out)


@pytest.mark.parametrize("make", [held_out, agnostic, universal])
@pytest.mark.parametrize("asked", [0, 2, 5])
def test_what_is_told_of_a_model_is_what_its_claim_counts(make, asked, tmp_path, capsys):
    """The account of an AgnosticClassifier of epsilon 4 is opened with less: told as the guarantee, that was false."""
    made = make().fit(X, y)
    folder = quorate.save(made, tmp_path / "model")
    if asked:
        made.predict(np.linspace(0.1, 0.9, asked)[:, np.newaxis])
    spent, epsilon, delta = made.spent_epsilon(), made.epsilon_, made.delta_
    assert made.budget_.spent_epsilon() < spent or not spent
    made.session_.close()
    budget, metrics, page = asyncio.run(told("m", folder))
    listed = shown(folder, capsys)
    assert (budget["epsilon"], budget["delta"], listed["epsilon"], listed["delta"]) == (epsilon, delta) * 2
    assert budget["spent_epsilon"] == listed["epsilon_spent"] == pytest.approx(spent, rel=1e-12)
    figures = dict(line.rsplit(" ", 1) for line in metrics.splitlines() if line.startswith("quorate_budget"))
    assert float(figures['quorate_budget_epsilon{model="m"}']) == epsilon
    assert float(figures['quorate_budget_spent_epsilon{model="m"}']) == pytest.approx(spent, rel=1e-12)
    assert f"guaranteed in all: at most {figure(epsilon)}, at delta {figure(delta)}" in page


def test_nothing_is_promised_of_any_number_of_stable_predictions(tmp_path, capsys):
    folder = quorate.save(StableClassifier(Thresholds(), gamma=0.2, **CLASSES).fit(X, y), tmp_path / "model")
    budget, _, page = asyncio.run(told("m", folder))
    assert (budget["epsilon"], budget["delta"], budget["spent_epsilon"]) == (0.0, 1.0, 0.0)
    assert "guaranteed in all: at most 0, at delta 1<" in page
    assert shown(folder, capsys)["delta"] == 1.0


def test_what_another_process_has_published_is_spent_here_too(tmp_path):
    """The one that did not choose the hypothesis told what the ballots had cost, and nothing for the hypothesis."""
    folder = quorate.save(universal().fit(X, y), tmp_path / "model")
    chooses, looks_on = quorate.load(folder), quorate.load(folder)
    assert looks_on.spent_epsilon() == 0.0
    chooses.predict(np.linspace(0.1, 0.9, 5)[:, np.newaxis])
    assert chooses.switched_
    assert looks_on.spent_epsilon() == chooses.spent_epsilon() > looks_on.session_.answerer.epsilon
    assert looks_on.switched_
    assert looks_on.hypothesis_ == chooses.hypothesis_
    for model in (chooses, looks_on):
        model.session_.close()
