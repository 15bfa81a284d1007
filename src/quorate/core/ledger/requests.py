"""Requests and answers in a ledger: each answer is kept before it leaves, and an id is answered once."""

from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from quorate.core.errors import IdReused, InProgress, KeyClosed, QuorateError
from quorate.core.ledger.chain import Change, digest_rows
from quorate.core.ledger.shares import allow, hold_for, is_limited
from quorate.core.requests import OWN_CALLER, REFUSED, Admitted, Asked, Outcome, Query, SetAside, outcome_of, reused

_NAMES = 400  # values looked up in one statement
_MINUTE = 60

# An id stays used: its row is that of no entry, and nothing else of it is kept.
FORGET = "UPDATE quorate_request SET body = ?, outcome = NULL, seq = 0, owner = '' WHERE ledger = ?"


def pack(outcome: Outcome) -> bytes:
    """Return an outcome as bytes."""
    return array("q", outcome).tobytes()


def unpack(packed: bytes) -> Outcome:
    """Return the outcome that `pack` packed."""
    return array("q", bytes(packed)).tolist()


def recall(change: Change, wanted: Mapping[str, Iterable[bytes]]) -> dict[Query, int]:
    """Return the answers that these callers were given to these queries, where there are any."""
    known: dict[Query, int] = {}
    forgotten = change.state.forgotten
    for caller, queries in wanted.items():
        asked = list(queries)
        for start in range(0, len(asked), _NAMES):
            part = asked[start : start + _NAMES]
            statement = (
                "SELECT query, label, seq FROM quorate_answer WHERE ledger = ? AND caller = ? "  # noqa: S608  question marks alone
                f"AND query IN ({','.join('?' * len(part))})"
            )
            rows = change.statements.run(statement, [change.ledger, caller, *part])
            # Not by the statement: SQLite would go through all answers by their numbers. proof: step 15
            known.update({(caller, bytes(query)): int(label) for query, label, seq in rows if seq > forgotten})
    return known


def admit(
    change: Change, asked: Sequence[Asked], *, owner: str, is_gone: Callable[[str, float], bool]
) -> list[Admitted | QuorateError]:
    """Look requests up, take their ids, and count their rows against the keys' limits."""
    if not asked:
        return []
    if owner in change.state.holds:  # of a group that failed: the next `keep` would let go of it. proof: step 12
        change.append("hold_lost", {"owner": owner})
    before = _requests(change, asked)
    results: list[Admitted | QuorateError | None] = [None] * len(asked)
    rows: Counter[str] = Counter()
    taken = []
    for place, one in enumerate(asked):
        earlier = before.get((one.caller, one.id))
        try:
            if earlier is not None:
                results[place] = _earlier(change, one, earlier, owner, is_gone)
            if results[place] is None:
                if (key := change.state.keys.get(one.caller)) is not None:
                    if not key.opens(change.at):
                        raise KeyClosed("this key was revoked, or has expired")
                    allow(change.state, one.caller, rows[one.caller] + len(one.queries), change.at, taken=rows)
                rows[one.caller] += len(one.queries)
                if one.id is not None:
                    taken.append((change.ledger, one.caller, one.id, one.body, owner, change.at))
                    before[one.caller, one.id] = one.body, owner, change.at, None
        except QuorateError as error:
            results[place] = error
    change.statements.run_many(
        "INSERT INTO quorate_request VALUES (?, ?, ?, ?, ?, ?, NULL, NULL) ON CONFLICT (ledger, caller, id) "
        "DO UPDATE SET owner = excluded.owner, at = excluded.at",
        taken,
    )
    wanted: dict[str, set[bytes]] = {}
    for one, result in zip(asked, results, strict=True):
        if result is None:
            wanted.setdefault(one.caller, set()).update(one.queries)
    known = recall(change, wanted)
    admitted = [_admitted(one, known) if result is None else result for one, result in zip(asked, results, strict=True)]
    if keyed := {caller: count for caller, count in rows.items() if caller in change.state.keys}:
        held = _hold(change, asked, admitted, owner=owner, is_gone=is_gone)
        change.append("admitted", {"rows": keyed, "held": held} | ({"owner": owner} if held else {}))  # proof: step 12
    return admitted


def _admitted(one: Asked, known: Mapping[Query, int]) -> Admitted:
    return Admitted({query: known[one.caller, query] for query in one.queries if (one.caller, query) in known})


def _hold(
    change: Change,
    asked: Sequence[Asked],
    admitted: list[Admitted | QuorateError],
    *,
    owner: str,
    is_gone: Callable[[str, float], bool],
) -> dict[str, list[int | None]]:
    """Set aside what these requests may need of their callers' shares, and return how much that is for each caller."""
    held: dict[str, list[int | None]] = {}
    for place, (one, result) in enumerate(zip(asked, admitted, strict=True)):
        if isinstance(result, Admitted) and result.outcome is None and is_limited(change.state, one.caller):
            new = len(set(one.queries) - result.known.keys())
            if not new:
                continue
            aside = set_aside(change, one.caller, new, held=held, owner=owner, is_gone=is_gone)
            pair = held.setdefault(one.caller, [None, None])
            pair[:] = _more(pair[0], aside.no_quorums), _more(pair[1], aside.cost)
            admitted[place] = replace(result, held=aside)
    return held


def _more(had: int | None, more: int | None) -> int | None:
    return had if more is None else (had or 0) + more


def set_aside(
    change: Change,
    caller: str,
    rows: int,
    *,
    held: Mapping[str, Any],
    owner: str,
    is_gone: Callable[[str, float], bool],
    need: int = 0,
) -> SetAside:
    """Return what can be set aside for new rows of a caller, once what dead processes had set aside is charged."""
    aside = hold_for(change.state, caller, rows, held, need=need)
    if not aside.spent and 0 in (aside.no_quorums, aside.cost) and rows:
        for name, hold in list(change.state.holds.items()):
            if name != owner and is_gone(name, change.at - hold.at):
                change.append("hold_lost", {"owner": name})
        aside = hold_for(change.state, caller, rows, held, need=need)
    return aside


def _requests(change: Change, asked: Sequence[Asked]) -> dict[tuple[str, str | None], Any]:
    """Return what is kept of the requests with these ids: body, owner, time and packed outcome.

    Of one that a compaction has forgotten only the id is left, also while nobody has removed the rest.
    """
    forgotten = change.state.forgotten
    requests: dict[tuple[str, str | None], Any] = {}
    ids: dict[str, list[str]] = {}
    for one in asked:
        if one.id is not None:
            ids.setdefault(one.caller, []).append(one.id)
    for caller, names in ids.items():
        for start in range(0, len(names), _NAMES):
            part = names[start : start + _NAMES]
            statement = (
                "SELECT id, body, owner, at, outcome, seq FROM quorate_request WHERE ledger = ? AND caller = ? "  # noqa: S608  question marks alone
                f"AND id IN ({','.join('?' * len(part))})"
            )
            for name, *row, seq in change.statements.run(statement, [change.ledger, caller, *part]):
                gone = seq is not None and seq <= forgotten  # proof: step 15
                requests[caller, name] = (b"", "", row[2], None) if gone else row
    return requests


def _earlier(
    change: Change, one: Asked, earlier: Any, owner: str, is_gone: Callable[[str, float], bool]
) -> Admitted | None:
    """Return the outcome of an earlier request of this id, or None where this one may take the id over."""
    body, holder, at, outcome = earlier
    if outcome is None and not holder:
        raise IdReused("this id was used before, and what it was answered is forgotten; a new request takes a new id")
    if bytes(body) != one.body:
        raise reused(one)
    if outcome is not None:
        return Admitted({}, unpack(outcome))
    if holder != owner and not is_gone(holder, change.at - at):
        raise _in_progress()
    return None  # whoever held it died, or failed, before its answer was kept, and so before it left


def _in_progress() -> InProgress:
    return InProgress("a request with this id is being answered just now; send it again in a moment")


def keep(
    change: Change,
    fresh: Mapping[Query, int],
    known: dict[Query, int],
    asked: Sequence[Asked],
    *,
    owner: str,
    lease: str,
    no_quorum: int,
    used: Mapping[str, Sequence[int]] | None,
    drawn: int = 0,
) -> list[Outcome | QuorateError]:
    """Keep fresh answers and the outcomes of requests, in one entry. An answer that is kept already stands.

    `drawn` answers of these requests were drawn for them and kept in entries before: they count there, and not as
    repetitions here.
    """
    new = _insert(change, fresh)
    known.update(fresh)
    if len(new) < len(fresh):  # somebody else answered some of these queries meanwhile: those answers stand
        known.update(recall(change, _by_caller(fresh.keys() - new.keys())))
    held = _requests(change, asked)
    results: list[Outcome | QuorateError] = []
    done: list[tuple[Asked, Outcome]] = []
    returned: Counter[str] = Counter()
    for one in asked:
        outcome = outcome_of(one, known)
        kept = held.get((one.caller, one.id))
        if one.id is not None and (kept is None or kept[1] != owner or kept[3] is not None):
            # Taken over meanwhile, by somebody who took this process for dead, or answered already.
            later = None if kept is None else kept[3]
            results.append(_in_progress() if later is None else unpack(later))
            continue
        results.append(outcome)
        returned[one.caller] += outcome.count(REFUSED)
        if one.id is not None:
            done.append((one, outcome))
    counts = Counter(new.values())
    replied = sum(len(one.queries) for one in asked)
    refused = sum(returned.values())
    body: dict[str, Any] = {
        "lease": lease,
        "answered": sum(counts.values()) - counts[no_quorum],
        "no_quorums": counts[no_quorum],
        "repeated": max(0, replied - refused - drawn - sum(counts.values())),
        "refused": refused,
        "returned": {caller: rows for caller, rows in returned.items() if rows and caller in change.state.keys},
        "digest": _digest(new.items(), done),
    }
    if used is not None:
        body |= _used(change, owner, used)
    if new or done or body["returned"] or "used" in body:
        seq = change.append("answered", body)
        _write(change, seq, done)
    shown = Counter(label for (caller, _), label in new.items() if caller != OWN_CALLER)  # not a model's own values
    told = {"answered": shown.total() - shown[no_quorum], "no_quorums": shown[no_quorum]}
    note_activity(change, body | told)
    return results


def _used(change: Change, owner: str, used: Mapping[str, Sequence[int]]) -> dict[str, Any]:
    """Return what an entry says of shares: who has used how much, and whose holds end with it."""
    charged = {caller: list(pair) for caller, pair in used.items() if any(pair) and caller in change.state.keys}
    holds = owner in change.state.holds
    return ({"used": charged} if charged or holds else {}) | ({"owner": owner} if holds else {})


def _insert(change: Change, fresh: Mapping[Query, int]) -> dict[Query, int]:
    """Keep answers under the number of the entry that comes next, and return those that were not kept already."""
    seq = change.seq + 1
    rows = [(change.ledger, caller, query, label, seq) for (caller, query), label in fresh.items()]
    kept = change.statements.run_many(
        "INSERT INTO quorate_answer VALUES (?, ?, ?, ?, ?) ON CONFLICT (ledger, caller, query) DO UPDATE SET "
        "label = excluded.label, seq = excluded.seq WHERE quorate_answer.seq <= ?",  # of one that is forgotten
        [(*row, change.state.forgotten) for row in rows],
    )
    if kept == len(rows):
        return dict(fresh)
    mine = change.statements.run(
        "SELECT caller, query FROM quorate_answer WHERE ledger = ? AND seq = ?", (change.ledger, seq)
    )
    return {(caller, bytes(query)): fresh[caller, bytes(query)] for caller, query in mine}


def _by_caller(queries: Iterable[Query]) -> dict[str, list[bytes]]:
    by_caller: dict[str, list[bytes]] = {}
    for caller, query in queries:
        by_caller.setdefault(caller, []).append(query)
    return by_caller


def take_over(change: Change, answers: Sequence[Any], requests: Sequence[Any]) -> None:
    """Keep answers and ended requests that come from another place, in one entry."""
    new = _insert(change, {(caller, bytes(query)): int(label) for caller, query, label in answers})
    done = [(Asked(caller, [], name, bytes(body)), unpack(outcome)) for caller, name, body, outcome in requests]
    change.statements.run_many(
        "INSERT INTO quorate_request VALUES (?, ?, ?, ?, '', ?, NULL, NULL)",
        [(change.ledger, one.caller, one.id, one.body, change.at) for one, _ in done],
    )
    body = {"lease": "", "answered": 0, "no_quorums": 0, "repeated": 0, "refused": 0, "returned": {}}
    _write(change, change.append("answered", body | {"digest": _digest(new.items(), done)}), done)


def _write(change: Change, seq: int, done: Sequence[tuple[Asked, Outcome]]) -> None:
    given_up = [(change.ledger, one.caller, one.id) for one, outcome in done if _empty(outcome)]
    change.statements.run_many(
        "DELETE FROM quorate_request WHERE ledger = ? AND caller = ? AND id = ?", given_up
    )  # nothing was drawn for it
    change.statements.run_many(
        "UPDATE quorate_request SET outcome = ?, seq = ?, owner = '', at = ? "
        "WHERE ledger = ? AND caller = ? AND id = ?",
        [
            (pack(outcome), seq, change.at, change.ledger, one.caller, one.id)
            for one, outcome in done
            if not _empty(outcome)
        ],
    )


def _empty(outcome: Outcome) -> bool:
    return set(outcome) == {REFUSED}


def forget_requests(change: Change, ids: Sequence[Sequence[str]] | None = None) -> None:
    """Forget what requests were and how they were answered, but not that their ids were used.

    Those that were answered so far; or, from another place, those of these callers and ids.
    """
    if ids is None:
        change.statements.run(f"{FORGET} AND seq > 0", (b"", change.ledger))
        return
    change.statements.run_many(
        "INSERT INTO quorate_request VALUES (?, ?, ?, ?, '', ?, NULL, 0)",
        [(change.ledger, caller, name, b"", change.at) for caller, name in ids],
    )


def forgotten_requests(change: Change) -> list[Any]:
    """Return callers and ids of the requests that were forgotten."""
    return change.statements.run(
        "SELECT caller, id FROM quorate_request WHERE ledger = ? AND seq <= ?",
        (change.ledger, change.state.forgotten),
    )


def note_activity(change: Change, body: Mapping[str, Any]) -> None:
    """Add to what was answered in this minute, for the owner to look at."""
    counts = [body[name] for name in ("answered", "no_quorums", "repeated", "refused")]
    if any(counts):
        change.statements.run(
            "INSERT INTO quorate_activity VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT (ledger, minute) DO UPDATE SET "
            "answered = quorate_activity.answered + excluded.answered, "
            "no_quorums = quorate_activity.no_quorums + excluded.no_quorums, "
            "repeated = quorate_activity.repeated + excluded.repeated, "
            "refused = quorate_activity.refused + excluded.refused",
            (change.ledger, int(change.at // _MINUTE) * _MINUTE, *counts),
        )


def answer_row(caller: str, query: bytes, label: int) -> bytes:
    """Return an answer as it counts in its entry's digest."""
    return _parts(caller.encode(), bytes(query)) + label.to_bytes(8, "big", signed=True)


def request_row(caller: str, name: str, body: bytes, outcome: bytes) -> bytes:
    """Return a request as it counts in its entry's digest."""
    return b"request" + _parts(caller.encode(), name.encode(), bytes(body), bytes(outcome))


def kept_row(row: bytes, owner: str, at: float) -> bytes:
    """Return the row of a request as it counts in the digest of a part, whose entries are gone."""
    return row + _parts(owner.encode(), repr(float(at)).encode())


def _parts(*parts: bytes) -> bytes:
    return b"".join([len(part).to_bytes(8, "big") + part for part in parts])


def _digest(new: Iterable[tuple[Query, int]], done: Sequence[tuple[Asked, Outcome]]) -> str:
    rows = [answer_row(caller, query, label) for (caller, query), label in new]
    rows += [
        request_row(one.caller, one.id or "", one.body, pack(outcome)) for one, outcome in done if not _empty(outcome)
    ]
    return digest_rows(rows)
