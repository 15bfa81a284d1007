"""Answers kept by their rows: the same as in a dictionary, whatever is asked, repeated, refused, interrupted or met."""

import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quorate.core import _answer_cache as answered
from quorate.core import requests as exchange
from quorate.core import rows as rows_module
from quorate.core._answer_cache import AnsweredRows
from quorate.core.answerers import OneByOne
from quorate.core.errors import BudgetSpent
from quorate.core.ledger import Ledger
from quorate.core.privacy import Budget, Cost
from quorate.core.requests import KeptAnswers, Request
from quorate.core.rows import query_digests
from quorate.core.session import Session

UNKNOWN = -2
BATCHES = st.lists(
    st.tuples(
        st.sampled_from(["ann", "ben"]),
        st.lists(st.integers(0, 12), min_size=1, max_size=40),
        st.integers(0, 40),  # so many of the new rows are answered
    ),
    max_size=12,
)


def rows_of(numbers):
    """Rows of two columns; the first few differ in their last bits alone."""
    numbers = np.asarray(numbers, dtype=np.float64)
    return np.stack([1.0 + numbers * 2.0**-52, np.floor(numbers / 4)], axis=1)


def check_like_a_dictionary(batches, most):
    table, kept, drawn = AnsweredRows(columns=2, unknown=UNKNOWN), {}, iter(range(10**9))
    for caller, numbers, answered_rows in batches:
        names = [(caller, number) for number in numbers]
        new = [place for place, name in enumerate(names) if name not in kept and name not in names[:place]]
        with table.entered(caller, rows_of(numbers)) as rows:
            assert rows.new.tolist() == new
            labels = [next(drawn) for _ in new[:answered_rows]]
            rows.answer(np.array(labels[:3], dtype=np.int64))
            rows.answer(np.array(labels[3:], dtype=np.int64))
            kept |= {names[place]: label for place, label in zip(new, labels, strict=False)}
            assert rows.labels().tolist() == [kept.get(name, UNKNOWN) for name in names]
        assert table.size == len(kept)
        table.drop_oldest(most)
        if len(kept) > most + most // 4:
            kept = dict(list(kept.items())[-most:])
    found = {(caller, row): label for caller, row, label in table.answers()}
    assert found == {(caller, rows_of([number]).tobytes()): label for (caller, number), label in kept.items()}
    for caller in ("ann", "ben"):
        every = [row.tobytes() for row in rows_of(range(13))]
        expected = [kept.get((caller, number), UNKNOWN) for number in range(13)]
        assert table.find(caller, every).tolist() == expected


@pytest.mark.parametrize("seed", range(40))
def test_a_table_that_grows_within_a_batch_loses_nobody(seed, monkeypatch):
    """Whichever rows of that batch are answered, and so stay."""
    monkeypatch.setattr(answered, "_BLOCK", 16)
    random = np.random.default_rng(seed)
    batches = [
        (
            str(random.choice(["ann", "ben"])),
            random.integers(0, random.choice([20, 100, 400]), random.integers(1, 120)).tolist(),
            int(random.choice([10**6, random.integers(0, 60)])),
        )
        for _ in range(25)
    ]
    check_like_a_dictionary(batches, 10**6)


@settings(max_examples=150)
@given(BATCHES, st.sampled_from([8, 10**6]))
def test_it_finds_what_a_dictionary_finds(batches, most):
    check_like_a_dictionary(batches, most)


@settings(max_examples=100)
@given(BATCHES)
def test_rows_whose_hashes_are_equal_are_told_apart(batches):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(answered, "_hashes", lambda rows, number: np.full(len(rows), 2**63, dtype=np.uint64))
        check_like_a_dictionary(batches, 10**6)


def test_blocks_that_do_not_divide_a_batch_meet_their_repetitions(monkeypatch):
    monkeypatch.setattr(answered, "_BLOCK", 7)
    numbers = np.random.default_rng(0).integers(0, 60, size=200).tolist()
    check_like_a_dictionary([("ann", numbers, 40), ("ben", numbers, 9), ("ann", numbers[::-1], 90)], 10**6)


def test_many_rows_are_looked_up_on_several_threads(monkeypatch):
    monkeypatch.setattr(rows_module, "usable_cores", lambda most: 4)
    numbers, table = np.random.default_rng(0).integers(0, 90_000, size=70_000), AnsweredRows(columns=2, unknown=UNKNOWN)
    for asked in (numbers[:5000], numbers, numbers[::-1]):  # the answer to a row is its number
        with table.entered("ann", rows_of(asked)) as rows:
            _, firsts = np.unique(asked, return_index=True)
            assert np.isin(rows.new, firsts).all()
            rows.answer(asked[rows.new])
            assert np.array_equal(rows.labels(), asked)
    assert table.size == np.unique(numbers).size


def test_a_large_batch_is_kept_without_a_copy():
    X = np.random.default_rng(0).normal(size=(50_000, 20))
    table = AnsweredRows(columns=20, unknown=UNKNOWN)
    tracemalloc.start()
    try:
        with table.entered("ann", X) as rows:
            rows.answer(np.zeros(len(X), dtype=np.int64))
        assert tracemalloc.get_traced_memory()[1] < X.nbytes / 2
    finally:
        tracemalloc.stop()
    assert table.size == len(X)


@pytest.mark.parametrize("sizes", [(10,), (3, 50), (50, 3, 3)])
def test_many_batches_are_few_parts_to_search(sizes):
    table, asked = AnsweredRows(columns=2, unknown=UNKNOWN), 0
    for batch in range(120):
        numbers = np.arange(asked, asked + sizes[batch % len(sizes)])
        with table.entered("ann", rows_of(numbers)) as rows:
            rows.answer(numbers[rows.new])
        asked += numbers.size
    assert len(table._parts) <= answered._PARTS + 1
    assert table.size == asked
    with table.entered("ann", rows_of(np.arange(asked)[::-1])) as rows:
        assert rows.labels().tolist() == list(range(asked))[::-1]


def test_whole_numbers_have_hashes_that_spread():
    """Few digits fill the upper half of a float alone. False alarms: below 1e-6."""
    X = np.stack(np.unravel_index(np.arange(20_000), (200, 100)), axis=1).astype(np.float64)
    hashes = answered._hashes(X.view(np.uint64), 1)
    assert np.unique(hashes).size == 20_000


def test_what_is_interrupted_leaves_what_was_answered():
    table = AnsweredRows(columns=2, unknown=UNKNOWN)
    with table.entered("ann", rows_of(range(5))) as rows:
        rows.answer(np.arange(5))

    def interrupted():
        with table.entered("ann", rows_of(range(3, 12))) as rows:
            rows.answer(np.array([50, 60]))
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    with table.entered("ann", rows_of(range(12))) as rows:
        assert rows.labels().tolist() == [0, 1, 2, 3, 4, 50, 60, *[UNKNOWN] * 5]
        assert rows.new.tolist() == [7, 8, 9, 10, 11]


# ---------------------------------------------------------------- in a session


class ByDigest(KeptAnswers):
    """The memory that looks rows up one by one."""

    def takes_rows(self, X):
        return False


def counting_session(*, affords, memory=None):
    """A session whose answers are their own numbers, so that no two are alike; each costs one of so many."""
    drawn = iter(range(10**9))
    budget = Budget(epsilon=affords / 2**10, delta=0.0)
    session = Session(OneByOne(lambda row: next(drawn), Cost(2.0**-10)), budget, memory=memory)
    session.block = 16
    return session


ASKED = st.lists(
    st.tuples(st.sampled_from(["", "ann"]), st.lists(st.integers(0, 60), min_size=1, max_size=90), st.booleans()),
    max_size=10,
)


@settings(max_examples=60, deadline=None)
@given(ASKED, st.sampled_from([30, 100, 500]), st.sampled_from([1, 8, 1000]))
def test_a_session_answers_alike_however_rows_are_looked_up(asked, affords, many):
    """Large requests and small ones, repetitions in and between them, quotes, and a budget that ends in the middle."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(exchange, "_MANY", many)
        told = [[], []]
        for replies, memory in zip(told, (KeptAnswers(), ByDigest()), strict=True):
            session = counting_session(affords=affords, memory=memory)
            for caller, numbers, as_request in asked:
                X = rows_of(numbers)
                quote = session.quote(X, caller=caller)
                replies.append((quote.repeated, quote.payable))
                try:
                    reply = session.ask_all([Request(X, caller)])[0] if as_request else session.ask(X, caller=caller)
                    reply = BudgetSpent("") if isinstance(reply, BudgetSpent) else reply
                except BudgetSpent as error:
                    reply = error
                ended = isinstance(reply, BudgetSpent)
                replies.append(ended or (reply.labels.tolist(), reply.refused.tolist(), reply.spent.renyi))
            replies.append(session.budget.remaining().renyi)
            replies.append(memory.answers())
        assert told[0] == told[1]


@pytest.mark.parametrize("columns", [1, 2, 32, 33])
def test_answers_move_into_a_ledger_under_the_digests_that_it_knows(tmp_path, columns):
    X = np.random.default_rng(columns).normal(size=(700, columns))
    session = counting_session(affords=1000)
    one, many = session.ask(X[:1]).labels, session.ask(X[:600]).labels
    assert many[0] == one[0]
    moved = session.move(lambda budget: Ledger.create(tmp_path / "ledger.sqlite", budget, fingerprint="model"))
    assert moved.ledger.recall("", query_digests(X)) == dict(
        zip([("", digest) for digest in query_digests(X[:600])], many.tolist(), strict=True)
    )
    again = moved.ask(X)
    assert again.labels[:600].tolist() == many.tolist()
    assert again.spent == Cost(2.0**-10).times(100)
    moved.close()


def test_a_small_request_finds_what_a_large_one_was_answered_and_the_other_way_round():
    X = rows_of(range(1000))
    session = counting_session(affords=2000)
    few = [session.ask(X[[place]]).labels[0] for place in (3, 5, 700)]
    many = session.ask(X)
    assert many.labels[[3, 5, 700]].tolist() == few
    assert many.spent == Cost(2.0**-10).times(997)
    again = session.ask(X[10:12])
    assert (again.labels.tolist(), again.spent.renyi) == (many.labels[10:12].tolist(), 0.0)
    assert session.ask(X[10:12], caller="ann").spent.renyi > 0
    assert session.ask(X).spent.renyi == 0.0


def test_the_oldest_answers_are_dropped(monkeypatch):
    monkeypatch.setattr(exchange, "_KEPT", 400)
    session = counting_session(affords=4000)
    X = rows_of(range(1200))
    for start in (0, 300, 600, 900):
        session.ask(X[start : start + 300])
    assert session.ask(X[800:1200]).spent.renyi == 0.0
    assert session.ask(X[:300]).spent == Cost(2.0**-10).times(300)
