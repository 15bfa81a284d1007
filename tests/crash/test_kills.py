"""Servers killed at random instants: nothing is overspent, sent without a durable charge, or answered in two ways."""

import asyncio

import pytest
from killing import crash_database_often, kill_often, pause_often

from quorate.models.saving import save
from support.everlasting_kills import killed_at, small, what_is_wrong
from support.private_postgres import PrivateServer

STORES = ["sqlite", pytest.param("postgres", marks=pytest.mark.crash)]


def _urls(store, request):
    return request.getfixturevalue("postgres_server").database if store == "postgres" else None


@pytest.mark.parametrize(
    ("store", "workers", "kills"),
    [
        ("sqlite", 1, 20),
        pytest.param("sqlite", 1, 1000, marks=pytest.mark.crash),
        pytest.param("postgres", 1, 1000, marks=pytest.mark.crash),
        pytest.param("sqlite", 3, 200, marks=pytest.mark.crash),  # one dies, and the others go on
        pytest.param("postgres", 3, 200, marks=pytest.mark.crash),
    ],
)
def test_no_kill_overspends(nursery, tmp_path, request, store, workers, kills):
    units, urls = 40 * min(kills, 100), _urls(store, request)
    tally = asyncio.run(kill_often(nursery, tmp_path, kills, units=units, workers=workers, urls=urls))
    print(store, workers, tally)  # noqa: T201  the figures, with -s or -rP
    assert tally.problems == []
    assert tally.kills == kills
    assert tally.answers > kills / 4  # there was load, and answers arrived


@pytest.mark.crash
@pytest.mark.parametrize("store", ["sqlite", "postgres"])
def test_no_kill_overspends_a_threshold_run(nursery, tmp_path, request, store):
    """Answers are free, no-quorums are paid for, and the secret noise outlives every server."""
    options = {"aggregator": "quorum", "spread": 0.2, "urls": _urls(store, request)}
    tally = asyncio.run(kill_often(nursery, tmp_path, 100, units=400, **options))
    print(store, tally)  # noqa: T201
    assert tally.problems == []
    assert tally.answers > 100


@pytest.mark.parametrize("store", STORES)
@pytest.mark.parametrize("plant", ["answers_first", "draws_first"])
def test_a_build_that_answers_too_early_is_caught(nursery, tmp_path, request, store, plant):
    """By the kills alone: nothing is looked up when it arrives."""
    urls = _urls(store, request)
    tally = asyncio.run(kill_often(nursery, tmp_path, 200, units=4000, plant=plant, urls=urls, look=0.0))
    print(store, plant, tally.kills, tally.problems[:3])  # noqa: T201
    assert tally.problems != []


@pytest.mark.crash
@pytest.mark.parametrize("store", ["sqlite", "postgres"])
def test_a_server_that_stood_still_is_no_second_voice(nursery, tmp_path, request, store):
    """Others took it for dead and its requests over; when it goes on, nobody hears another answer from it."""
    url = None if store == "sqlite" else request.getfixturevalue("postgres_url")
    tally = asyncio.run(pause_often(nursery, tmp_path / "model", 200, units=20_000, url=url))
    print(store, tally)  # noqa: T201
    assert tally.problems == []
    assert tally.answers > 200


@pytest.mark.crash
def test_a_database_that_crashes_gives_nothing_back(nursery, postgres_server, tmp_path):
    database = PrivateServer(postgres_server.binaries)  # its own: what others left would take minutes to recover
    try:
        tally = asyncio.run(crash_database_often(nursery, tmp_path / "model", database, 15, units=20_000))
    finally:
        database.stop()
    print(tally)  # noqa: T201
    assert tally.problems == []
    assert tally.answers > 15


@pytest.mark.crash
def test_a_kill_at_any_step(tmp_path, monkeypatch):
    monkeypatch.setenv("QUORATE_STATE", str(tmp_path / "state"))
    classifier = small()
    save(classifier, tmp_path / "model")
    classifier.session_.close()
    steps = 0
    for folder, state, said in killed_at(tmp_path, start=1, stride=1):
        monkeypatch.setenv("QUORATE_STATE", str(state))
        assert what_is_wrong(folder, said) == [], folder
        steps += 1
    print(f"killed at {steps - 1} steps")  # noqa: T201  the figure, with -s or -rP
    assert steps > 200
