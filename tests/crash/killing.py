"""Disturb servers at random instants while clients hammer them, and recount their ledger after every disturbance."""

import asyncio
import os
import random
import signal
import time
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from functools import partial

from clients import Book, Client
from recount import Place, Recount

from models import FEATURES, make_model

_CLIENTS = 16
_FIRST = 60.0  # seconds in which a server must have answered something
_BUSY = 0.06  # seconds, at most, that servers are left alone
_SPENT = 5  # kills that a ledger sees after its budget is spent
_EXPECTED = {"budget_spent", "in_progress", "not_ready", "stopping", "ledger_refused"}


@dataclass
class Tally:
    """What a series of disturbances came to."""

    kills: int = 0
    ledgers: int = 0
    answers: int = 0
    repeats: int = 0
    lost: int = 0
    seconds: float = 0.0
    refusals: dict = field(default_factory=dict)
    problems: list = field(default_factory=list)

    def add(self, book):
        self.answers += len(book.answers)
        self.repeats += book.repeats
        self.lost += book.lost
        for code, count in book.refusals.items():
            self.refusals[code] = self.refusals.get(code, 0) + count
            if code not in _EXPECTED:
                self.problems.append(f"{count} refusals of code {code}")


class Told:
    """Called when a client hears something."""

    def __init__(self):
        self._event = asyncio.Event()
        self._action = None

    def __call__(self, name):
        if self._action is not None:
            self._action()
            self._action = None
        self._event.set()

    async def again(self, action=None):
        """Wait until somebody hears something from now on, and do this in that very instant."""
        self._event.clear()
        self._action = action
        await asyncio.wait_for(self._event.wait(), _FIRST)


@asynccontextmanager
async def under_load(nursery, model, tally, *, heard, clients=_CLIENTS, **options):
    """Have clients ask as fast as they can. At the end they stop, and so do all servers."""
    book, over = Book(), []
    made = [Client(book, nursery.port, model, features=FEATURES, heard=heard(book), **options) for _ in range(clients)]
    tasks = [asyncio.create_task(client.run(lambda: bool(over))) for client in made]
    try:
        yield book
    finally:
        over.append(True)
        for server in list(nursery.alive):
            nursery.kill(server)
        for task in tasks:
            task.cancel()
        for ended in await asyncio.gather(*tasks, return_exceptions=True):
            if isinstance(ended, Exception):
                tally.problems.append(repr(ended))
        await asyncio.sleep(0)  # connections end
        tally.add(book)


async def kill_often(nursery, folders, kills, *, units, workers=1, urls=None, aggregator="soft_majority", **options):
    """Kill servers so many times, with a fresh ledger whenever one is spent; stop at the first problem.

    With several `workers` one of them is killed and the others go on.
    """
    tally, began = Tally(), time.monotonic()
    while tally.kills < kills and not tally.problems:
        folder = folders / f"model{tally.ledgers}"
        url = None if urls is None else urls()
        price = make_model(folder, units=units, url=url, aggregator=aggregator)
        place = Place(folder, url)
        await _kill_often(nursery, folder, place, Recount(place, price), kills, tally, workers=workers, **options)
        tally.ledgers += 1
    tally.seconds = time.monotonic() - began
    return tally


async def _kill_often(nursery, folder, place, recount, kills, tally, *, workers, plant=None, look=0.25, spread=1.0):
    """Kill until one ledger is spent. `look` is the share of answers looked up in it the moment they arrive."""
    told = Told()

    def heard(book):
        def look_up(name):
            told(name)
            if name is not None and random.random() < look and place.outcome_now(name) != book.label(name):
                book.problems.append(f"{name} was answered before its answer was committed")

        return look_up

    after_the_end = 0
    async with under_load(nursery, folder.name, tally, heard=heard, spread=spread) as book:
        while tally.kills < kills and after_the_end < _SPENT and not tally.problems:
            nursery.start(folder, plant=plant, pace=random.choice((0, 0, 5)), count=workers - len(nursery.alive))
            victim, instant = random.choice(nursery.alive), random.random()
            if instant > 0.25:  # while it answers, or else while it starts
                await told.again()
            await asyncio.sleep(random.random() * _BUSY)
            if instant > 0.6:  # the instant in which an answer arrives, whoever sent it
                await told.again(partial(os.kill, victim, signal.SIGKILL))
            place.close()
            nursery.kill(victim)
            tally.kills += 1
            tally.problems += recount.advance(book, others=workers > 1) + book.problems
            after_the_end += "budget_spent" in book.refusals
    place.close()


async def pause_often(nursery, folder, pauses, *, units, url=None):
    """Pause one of three servers that take each other for strangers: the others soon take it for dead."""
    price, place, tally, told = make_model(folder, units=units, url=url), Place(folder, url), Tally(), Told()
    recount = Recount(place, price)
    nursery.start(folder, plant="strangers", count=3, wait=True)
    async with under_load(nursery, folder.name, tally, heard=lambda book: told, patience=0.1, repeat=0.3) as book:
        while tally.kills < pauses and not tally.problems:
            await told.again()
            await asyncio.sleep(random.random() * _BUSY)
            paused = random.choice(nursery.alive)
            os.kill(paused, signal.SIGSTOP)
            await asyncio.sleep(0.2 * random.random())
            os.kill(paused, signal.SIGCONT)
            tally.kills += 1
            tally.problems += recount.advance(book, others=True) + book.problems
    tally.problems += recount.advance(book)
    return tally


async def crash_database_often(nursery, folder, database, crashes, *, units):
    """Crash the database under two servers that go on; stop at the first problem."""
    url = database.database()
    price, place, tally, told = make_model(folder, units=units, url=url), Place(folder, url), Tally(), Told()
    recount = Recount(place, price)
    nursery.start(folder, count=2, wait=True)
    async with under_load(nursery, folder.name, tally, heard=lambda book: told) as book:
        while tally.kills < crashes and not tally.problems:
            answers = len(book.answers)
            while len(book.answers) == answers:
                await told.again()
            await asyncio.sleep(random.random() * _BUSY)
            database.crash()
            tally.kills += 1
            tally.problems += await _advanced(recount, book) + book.problems
    tally.problems += recount.advance(book)
    return tally


async def _advanced(recount, book):
    """Read on as soon as the database is back."""
    import psycopg

    give_up = time.monotonic() + 60
    while time.monotonic() < give_up:
        await asyncio.sleep(0.02)
        with suppress(psycopg.OperationalError):
            return recount.advance(book, others=True)
    return ["the database did not recover in a minute"]
