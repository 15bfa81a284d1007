"""The client against servers that are killed: every row is answered once, in one way, and charged once."""

import asyncio
import random
import struct
import threading
import uuid
from contextlib import closing
from dataclasses import dataclass, field

import numpy as np
import pytest
from killing import Told
from models import FEATURES, make_model
from recount import Place, Recount

from quorate.client import AsyncClient, Client
from quorate.client import asking as asking_module

ROWS = 3  # of a request
_BUSY = 0.08  # seconds, at most, that a server is left alone


@dataclass
class Tables:
    """What was asked, by id, and what came back."""

    told: Told
    answers: dict = field(default_factory=dict)
    over: threading.Event = field(default_factory=threading.Event)

    def next(self):
        name = uuid.uuid4().hex
        return name, np.random.default_rng().normal(size=(2 * ROWS, FEATURES))

    def keep(self, name, predictions):
        assert predictions.answered.all()
        self.answers[name] = predictions.labels.tolist()
        self.told(name)


async def ask_on(url, tables, options):
    async with AsyncClient(url, **options) as client:
        while not tables.over.is_set():
            name, X = tables.next()
            tables.keep(name, await client.predict(X, id=name))


def wait_on(url, tables, options, loop):
    with Client(url, **options) as client:
        while not tables.over.is_set():
            name, X = tables.next()
            predictions = client.predict(X, id=name)
            loop.call_soon_threadsafe(tables.keep, name, predictions)


async def kill_under(nursery, folder, kills):
    """Kill a server so many times while clients of both kinds ask it, and return what they were told."""
    tables, loop = Tables(Told()), asyncio.get_running_loop()
    options = {"model": folder.name, "rows": ROWS, "seconds": 120, "attempt_seconds": 10}
    url = f"http://127.0.0.1:{nursery.port}"
    asking = [asyncio.create_task(ask_on(url, tables, options)) for _ in range(3)]
    asking += [asyncio.create_task(asyncio.to_thread(wait_on, url, tables, options, loop)) for _ in range(2)]
    try:
        for _ in range(kills):
            (victim,) = nursery.start(folder, pace=random.choice((0, 5)))
            if random.random() > 0.25:  # while it answers, or else while it starts
                await tables.told.again()
            await asyncio.sleep(random.random() * _BUSY)
            nursery.kill(victim)
        (last,) = nursery.start(folder)
        await tables.told.again()
        tables.over.set()
        await asyncio.gather(*asking)
        nursery.kill(last)
    finally:
        tables.over.set()
    await asyncio.sleep(0)
    return tables


@pytest.mark.parametrize(
    ("store", "kills"),
    [
        ("sqlite", 4),
        pytest.param("sqlite", 100, marks=pytest.mark.crash),
        pytest.param("postgres", 100, marks=pytest.mark.crash),
    ],
)
def test_every_answer_comes_once_and_is_charged_once(nursery, tmp_path, request, store, kills, monkeypatch):
    monkeypatch.setattr(asking_module, "_FIRST_WAIT", 0.01)
    url = None if store == "sqlite" else request.getfixturevalue("postgres_url")
    price, folder = make_model(tmp_path / "model", units=20_000, url=url), tmp_path / "model"
    place = Place(folder, url)
    tables = asyncio.run(kill_under(nursery, folder, kills))
    print(store, kills, "kills", len(tables.answers), "tables")  # noqa: T201  the figures, with -s or -rP
    assert len(tables.answers) > kills / 2
    with closing(place.after_a_kill()) as connection:
        kept = connection.execute("SELECT id, outcome FROM quorate_request").fetchall()
        recount = Recount(place, price)
        assert recount._read(connection) == []
    outcomes = {id: None if outcome is None else struct.unpack(f"{ROWS}q", bytes(outcome)) for id, outcome in kept}
    received = {
        f"{name}-{start}-{start + ROWS}": tuple(labels[start : start + ROWS])
        for name, labels in tables.answers.items()
        for start in (0, ROWS)
    }
    assert outcomes == received  # no answer was lost or changed, and no request was made up anew for a lost one
    assert recount.answers == sum(recount.paid.values()) == ROWS * len(received)
