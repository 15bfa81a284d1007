"""The client against servers that are killed: every row is answered once, in one way, and charged once."""

import asyncio
import dataclasses
import json
import random
import struct
import threading
import uuid
from contextlib import closing

import numpy as np
import pytest
from killing import Told
from recount import Place, Recount

from models import FEATURES, make_model
from quorate.service.client import AsyncClient, Client
from quorate.service.client import _asking as asking_module
from quorate.service.client import _client as client_module

ROWS = 3  # of a request
_BUSY = 0.08  # seconds, at most, that a server is left alone


@dataclasses.dataclass
class Tables:
    """What was asked, by id, and what came back."""

    told: Told
    answers: dict = dataclasses.field(default_factory=dict)
    over: threading.Event = dataclasses.field(default_factory=threading.Event)

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


def problems_of(nursery, folder, kills, url=None):
    """Kill under load, and return what is wrong with the ledger and the answers, and how many tables were answered."""
    price, place = make_model(folder, units=20_000, url=url), Place(folder, url)
    tables = asyncio.run(kill_under(nursery, folder, kills))
    recount = Recount(place, price)
    with closing(place.after_a_kill()) as connection:
        kept = connection.execute("SELECT id, outcome FROM quorate_request").fetchall()
        problems = recount._read(connection)
    outcomes = {id: None if outcome is None else struct.unpack(f"{ROWS}q", bytes(outcome)) for id, outcome in kept}
    received = {
        f"{name}-{start}-{start + ROWS}": tuple(labels[start : start + ROWS])
        for name, labels in tables.answers.items()
        for start in (0, ROWS)
    }
    if outcomes != received:
        problems.append(f"{len(received)} requests were answered, and the ledger has {len(outcomes)}, or others")
    if not recount.answers == sum(recount.paid.values()) == ROWS * len(received):
        problems.append(f"{ROWS * len(received)} rows were answered, and {recount.answers} are paid for")
    return problems, len(tables.answers)


@pytest.mark.parametrize(
    ("store", "kills"),
    [
        ("sqlite", 3),
        pytest.param("sqlite", 100, marks=pytest.mark.crash),
        pytest.param("postgres", 100, marks=pytest.mark.crash),
    ],
)
def test_every_answer_comes_once_and_is_charged_once(nursery, tmp_path, request, store, kills, monkeypatch):
    monkeypatch.setattr(asking_module, "_FIRST_WAIT", 0.01)
    url = None if store == "sqlite" else request.getfixturevalue("postgres_url")
    problems, tables = problems_of(nursery, tmp_path / "model", kills, url)
    print(store, kills, "kills", tables, "tables")  # noqa: T201  the figures, with -s or -rP
    assert problems == []
    assert tables > kills / 2


@pytest.mark.crash
def test_a_client_that_makes_up_a_new_id_is_caught(nursery, tmp_path, monkeypatch):
    class Forgetful(asking_module.Asking):
        async def _send_again(self, method, path, body=None, **options):
            tries, send = 0, self._send

            async def send_anew(method, path, body, seconds):
                nonlocal tries
                tries += 1
                if body is not None and tries > 1:
                    body = json.dumps({**json.loads(body), "id": uuid.uuid4().hex}).encode()
                return await send(method, path, body, seconds)

            self._send = send_anew
            try:
                return await super()._send_again(method, path, body, **options)
            finally:
                self._send = send

    monkeypatch.setattr(asking_module, "_FIRST_WAIT", 0.01)
    monkeypatch.setattr(client_module, "Asking", Forgetful)
    problems, _ = problems_of(nursery, tmp_path / "model", 20)
    assert any("requests were answered, and the ledger has" in problem for problem in problems)
