"""What the operating system saw: the charge is synced, then the answer is synced, then it is sent."""

import asyncio
from pathlib import Path

import pytest
from clients import Book, Client
from syscalls import Tracing, can_trace, steps_of, what_is_wrong

from models import FEATURES, make_model

pytestmark = pytest.mark.skipif(not can_trace(), reason="strace is missing, or may not trace here: syncs are not seen")
STORES = ["sqlite", pytest.param("postgres", marks=pytest.mark.crash)]


def _children(process):
    return [int(child) for child in Path(f"/proc/{process}/task/{process}/children").read_text().split()]


async def _ask_once(port, model):
    book = Book()
    client = Client(book, port, model, features=FEATURES)
    await client.settle(client.new_query(), lambda: False)
    client.close()
    await asyncio.sleep(0)
    assert len(book.answers) == 1


def _traced(nursery, folder, store, request, plant):
    url, more = None, []
    if store == "postgres":
        url = request.getfixturevalue("postgres_url")
        database = request.getfixturevalue("postgres_server").process
    make_model(folder / "model", units=1000, url=url)
    (server,) = nursery.start(folder / "model", wait=True, plant=plant)
    if store == "postgres":
        more = _children(database)
    try:
        with Tracing([server, *more], folder / "trace") as tracing:
            asyncio.run(_ask_once(nursery.port, "model"))
    finally:
        nursery.kill(server)
    return steps_of(tracing.text)


@pytest.mark.parametrize("store", STORES)
def test_charge_and_answer_are_synced_before_the_answer_leaves(nursery, tmp_path, request, store):
    assert what_is_wrong(_traced(nursery, tmp_path, store, request, None)) == ""


@pytest.mark.parametrize("store", STORES)
@pytest.mark.parametrize("plant", ["not_synced", "answers_long_before", "draws_first"])
def test_a_build_that_does_not_wait_for_the_disk_is_caught(nursery, tmp_path, request, store, plant):
    assert what_is_wrong(_traced(nursery, tmp_path, store, request, plant)) != ""
