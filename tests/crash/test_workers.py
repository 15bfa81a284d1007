"""Many clients, several worker processes, one budget: as many answers as it pays for, and not one more or less."""

import asyncio
import json
import random
import signal
from collections import Counter
from contextlib import closing

import pytest
from clients import Book, Client
from killing import Tally, Told, under_load
from recount import Place, Recount

from models import FEATURES, make_model
from quorate.models.saving import load

CLIENTS, WORKERS, UNITS = 64, 4, 2000
STORES = ["sqlite", pytest.param("postgres", marks=pytest.mark.crash)]


def _url(store, request):
    return request.getfixturevalue("postgres_server").database() if store == "postgres" else None


async def _ask_until(last, book, port, model, **options):
    """Have each client ask new queries until it is refused with this code."""

    async def one():
        client = Client(book, port, model, features=FEATURES, each_connection=8, **options)
        while await client.settle(client.new_query(), lambda: False) != last:
            pass
        client.close()

    await asyncio.gather(*(one() for _ in range(CLIENTS)))
    await asyncio.sleep(0)


def _by_worker(place):
    """Return how many answers each process gave, from the ledger's entries."""
    owners, answers = {}, Counter()
    with closing(place.after_a_kill()) as connection:
        for kind, text in connection.execute("SELECT kind, body FROM quorate_entry ORDER BY seq").fetchall():
            body = json.loads(text)
            if kind == "leased":
                owners[body["lease"]] = body["owner"]
            elif kind == "answered" and (count := body["answered"] + body["no_quorums"]):
                answers[owners[body["lease"]]] += count  # A worker that only refused never had a lease.
    return answers


@pytest.mark.parametrize(
    ("store", "units", "repeats"),
    [
        ("sqlite", 300, 1),
        pytest.param("sqlite", UNITS, 20, marks=pytest.mark.crash),
        pytest.param("postgres", UNITS, 20, marks=pytest.mark.crash),
    ],
)
def test_the_budget_is_spent_to_the_last_unit_and_not_beyond(nursery, tmp_path, request, store, units, repeats):
    for repeat in range(repeats):
        folder, url = tmp_path / f"model{repeat}", _url(store, request)
        price = make_model(folder, units=units, url=url)
        servers = nursery.start(folder, wait=True, count=WORKERS)
        book, place = Book(), Place(folder, url)
        asyncio.run(_ask_until("budget_spent", book, nursery.port, folder.name))
        for server in servers:
            nursery.kill(server)
        recount = Recount(place, price)
        assert recount.advance(book) + book.problems == []
        assert len(book.answers) == recount.answers == units
        assert set(book.refusals) <= {"budget_spent", "in_progress"}
        by_worker = _by_worker(place)
        print(store, repeat, sorted(by_worker.values()))  # noqa: T201
        if units == UNITS:  # long enough for everybody to have a turn
            assert len(by_worker) == WORKERS
            assert min(by_worker.values()) >= units / 100


@pytest.mark.parametrize("store", STORES)
def test_a_thousand_retries_of_one_id_are_one_answer(nursery, tmp_path, request, store):
    """By all clients at once, to all workers; and with another body the id is refused."""
    folder, url = tmp_path / "model", _url(store, request)
    price = make_model(folder, units=300, url=url)
    servers = nursery.start(folder, wait=True, count=WORKERS)
    book, other = Book(), Book()

    async def retry():
        clients = [
            Client(book, nursery.port, folder.name, features=FEATURES, each_connection=2) for _ in range(CLIENTS)
        ]
        name = clients[0].new_query()

        async def one(client):
            for _ in range(16):
                await client.settle(name, lambda: False)
            client.close()

        await asyncio.gather(*map(one, clients))
        client = Client(other, nursery.port, folder.name, features=FEATURES)
        other.bodies[name] = book.bodies[name].replace(b"[1, 3]", b"[1,3]")
        code = await client.settle(name, lambda: False)
        client.close()
        await asyncio.sleep(0)
        return code

    assert asyncio.run(retry()) == "id_reused"
    for server in servers:
        nursery.kill(server)
    recount = Recount(Place(folder, url), price)
    assert recount.advance(book) + book.problems == []
    assert (len(book.answers), book.repeats, recount.answers) == (1, 16 * CLIENTS - 1, 1)


@pytest.mark.parametrize("store", STORES)
def test_a_quota_is_kept_by_all_workers_together(nursery, tmp_path, request, store):
    folder, url = tmp_path / "model", _url(store, request)
    price = make_model(folder, units=300, url=url)
    owner = load(folder).session_
    token = owner.ledger.add_key("alice", quota=100)
    owner.close()
    servers = nursery.start(folder, wait=True, count=WORKERS, keys=True)
    book = Book()
    asyncio.run(_ask_until("quota_spent", book, nursery.port, folder.name, token=token))
    for server in servers:
        nursery.kill(server)
    assert Recount(Place(folder, url), price).advance(book) + book.problems == []
    assert len(book.answers) == 100


@pytest.mark.parametrize("store", STORES)
def test_a_clean_stop_returns_what_was_not_used(nursery, tmp_path, request, store):
    """SIGTERM under load: what was accepted is answered, and what is charged is what was answered."""
    folder, url = tmp_path / "model", _url(store, request)
    price = make_model(folder, units=2000, url=url)
    tally = Tally()

    async def stop_under_load():
        told = Told()
        async with under_load(nursery, folder.name, tally, heard=lambda book: told) as book:
            for _ in range(3):
                servers = nursery.start(folder, wait=True, count=WORKERS)
                await told.again()
                await asyncio.sleep(0.2 * random.random())
                for server in servers:
                    await asyncio.to_thread(nursery.kill, server, signal.SIGTERM)
            return book

    book = asyncio.run(stop_under_load())
    recount = Recount(Place(folder, url), price)
    assert recount.advance(book) + book.problems + tally.problems == []
    assert recount.spent == recount.answers * price.unit
