"""Requests and answers in a ledger: each answer is kept before it is released, and an id is answered once."""

from array import array
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from quorate.core.errors import IdReused, InProgress, KeyClosed, LedgerRefused, QuorateError
from quorate.core.ledger._shares import allow, hold_for, is_limited
from quorate.core.ledger.budget import is_gone
from quorate.core.ledger.chain import Change, LedgerPart, digest_rows
from quorate.core.requests import (
    NO_QUORUM,
    OWN_CALLER,
    REFUSED,
    Admitted,
    Asked,
    Outcome,
    Query,
    SetAside,
    id_reused_error,
    outcome_of,
)

_NAMES = 400  # values in one lookup statement
_ID_SECONDS = 30.0  # for which an id stays reserved by a process on another host
_MINUTE = 60

# Keep a tombstone of a forgotten request, so that its id cannot be reused.
FORGET = "UPDATE quorate_request SET body = ?, outcome = NULL, seq = 0, owner = '' WHERE ledger = ?"


def pack(outcome: Outcome) -> bytes:
    """Return an outcome as bytes."""
    return array("q", outcome).tobytes()


def unpack(packed: bytes) -> Outcome:
    """Return the outcome that `pack` packed."""
    return array("q", bytes(packed)).tolist()


def _recall(change: Change, wanted: Mapping[str, Iterable[bytes]]) -> dict[Query, int]:
    """Return the answers that these callers received to these queries."""
    labels: dict[Query, int] = {}
    forgotten = change.state.forgotten
    for caller, queries in wanted.items():
        digests = list(queries)
        for start in range(0, len(digests), _NAMES):
            part = digests[start : start + _NAMES]
            statement = (
                "SELECT query, label, seq FROM quorate_answer WHERE ledger = ? AND caller = ? "  # noqa: S608  question marks alone
                f"AND query IN ({','.join('?' * len(part))})"
            )
            rows = change.statements.run(statement, [change.ledger, caller, *part])
            # Not by the statement: SQLite would go through all answers by their numbers. proof: step 15
            labels.update({(caller, bytes(query)): int(label) for query, label, seq in rows if seq > forgotten})
    return labels


class Requests(LedgerPart):
    """The part of a `Ledger` that keeps requests and answers."""

    lease_name: str
    _admitted: float

    def recall(self, caller: str, queries: Iterable[bytes]) -> dict[Query, int]:
        """Return the answers that this caller received to these queries, without counting them as requests."""
        with self.change() as change:
            return _recall(change, {caller: queries})

    def admit(self, requests: Sequence[Asked]) -> list[Admitted | QuorateError]:
        """Look up requests, reserve their ids, and count their rows against the limits of the keys."""
        owner = self._owner()
        with self.change() as change:
            self._admitted = change.at
            if not requests:
                return []
            if owner in change.state.holds:  # of a failed group: the next `keep` would let go of it. proof: step 12
                change.append("hold_lost", {"owner": owner})
            results, rows = _register(change, requests, owner)
            pairs = list(zip(requests, results, strict=True))
            new = {(request.caller, query) for request, result in pairs if result is None for query in request.queries}
            labels = _recall(change, _by_caller(new))
            admitted = [_with_answers(request, labels) if result is None else result for request, result in pairs]
            if keyed := _of_keys(change, rows):
                aside = _hold(change, requests, admitted, owner)
                named = {"owner": owner} if aside else {}
                change.append("admitted", {"rows": keyed, "held": aside} | named)  # proof: step 12
            return admitted

    def withdraw(self, requests: Sequence[Asked], used: Mapping[str, Sequence[int]], *, counted: bool) -> None:
        """Undo the admission of requests that get no answer, and free their ids.

        `used` is the part of each caller's share that may have been used; the rest of its reservation is released.
        The rows still count against quotas and rates if `counted`.
        """
        owner, rows = self._owner(), Counter[str]()
        for request in () if counted else requests:
            rows[request.caller] += len(request.queries)
        with self.change() as change:
            body = {
                "owner": owner,
                "rows": _of_keys(change, +rows),
                "used": _charges(change, used),
                "minute": int(self._admitted // _MINUTE) * _MINUTE,
            }
            if body["rows"] or body["used"] or owner in change.state.holds:
                change.append("withdrawn", body)
            ids = [(change.ledger, request.caller, request.id, owner) for request in requests if request.id is not None]
            change.statements.run_many(
                "DELETE FROM quorate_request WHERE ledger = ? AND caller = ? AND id = ? AND owner = ? "
                "AND outcome IS NULL",
                ids,
            )

    def keep(
        self,
        answers: Mapping[Query, int],
        labels: dict[Query, int],
        requests: Sequence[Asked],
        *,
        used: Mapping[str, Sequence[int]] | None = None,
        kept_before: int = 0,
    ) -> list[Outcome | QuorateError]:
        """Keep answers and outcomes in one entry, before they are returned; an answer that is kept is not replaced.

        The answers are added to `labels`, which has the remembered ones. `used` has the no-quorums and the cost of each
        caller, whose reservations it ends. `kept_before` answers of these requests were kept in earlier entries. They
        count there, and not as repetitions here.
        """
        with self.change() as change:
            return self._keep(change, answers, labels, requests, used=used, kept_before=kept_before)

    def keep_own(self, values: Mapping[bytes, int]) -> None:
        """Keep the state from which a model continues, under unused names, and mark it like a charge.

        Values are never replaced: a name that is already used shows that another copy of the model is in use.
        """
        with self.change() as change:
            if _recall(change, {OWN_CALLER: values}):
                raise LedgerRefused(
                    "another copy of this model continued from this state and spent its budget; use that copy"
                )
            self._keep(change, {(OWN_CALLER, name): value for name, value in values.items()}, {}, [])
            change.charged = True  # An old copy must not continue from an earlier state.

    def renew(self, caller: str, reserved: SetAside, used: Sequence[int], *, rows: int, need: int) -> SetAside:
        """Charge a caller for the use of a request so far, and reserve more for its remaining `rows`."""
        with self.change() as change:
            settled = [reserved.no_quorums, reserved.cost]
            body = {"owner": self._owner(), "caller": caller, "settled": settled, "used": list(used)}
            change.append("renewed", body | {"held": [None, None]})
            renewed = _set_aside(change, caller, rows, reserved={}, owner=self._owner(), need=need)
            none = {"settled": [None, None], "used": [0, 0]}
            change.append("renewed", body | none | {"held": [renewed.no_quorums, renewed.cost]})
            return renewed

    def _keep(
        self,
        change: Change,
        answers: Mapping[Query, int],
        labels: dict[Query, int],
        requests: Sequence[Asked],
        *,
        used: Mapping[str, Sequence[int]] | None = None,
        kept_before: int = 0,
    ) -> list[Outcome | QuorateError]:
        owner, inserted = self._owner(), _insert(change, answers)
        labels.update(answers)
        if len(inserted) < len(answers):  # Another process answered some queries meanwhile, and its answers are kept.
            labels.update(_recall(change, _by_caller(answers.keys() - inserted.keys())))
        results, ended, returned = _settle(change, requests, labels, owner)
        counts, refused = Counter(inserted.values()), returned.total()
        rows = sum(len(request.queries) for request in requests)
        body: dict[str, Any] = {
            "lease": self.lease_name,
            "answered": counts.total() - counts[NO_QUORUM],
            "no_quorums": counts[NO_QUORUM],
            "repeated": max(0, rows - refused - kept_before - counts.total()),
            "refused": refused,
            "returned": _of_keys(change, +returned),
            "digest": _digest(inserted.items(), ended),
        }
        if used is not None:
            body |= _used(change, owner, used)
        if inserted or ended or body["returned"] or "used" in body:
            _write(change, change.append("answered", body), ended)
        callers = Counter(label for (caller, _), label in inserted.items() if caller != OWN_CALLER)  # no own values
        given = {"answered": callers.total() - callers[NO_QUORUM], "no_quorums": callers[NO_QUORUM]}
        note_activity(change, body | given)
        return results


def _register(
    change: Change, requests: Sequence[Asked], owner: str
) -> tuple[list[Admitted | QuorateError | None], Counter[str]]:
    """Reserve the ids of the requests to answer, and return the number of their rows by caller.

    The result of such a request is None. For every other request it is the earlier outcome, or the error.
    """
    earlier = _requests(change, requests)
    results: list[Admitted | QuorateError | None] = []
    rows: Counter[str] = Counter()
    ids = []
    for request in requests:
        try:
            results.append(_check_request(change, request, earlier, rows, owner))
        except QuorateError as error:
            results.append(error)
        if results[-1] is None:
            rows[request.caller] += len(request.queries)
            if request.id is not None:
                ids.append((change.ledger, request.caller, request.id, request.body, owner, change.at))
                earlier[request.caller, request.id] = request.body, owner, change.at, None
    change.statements.run_many(
        "INSERT INTO quorate_request VALUES (?, ?, ?, ?, ?, ?, NULL, NULL) ON CONFLICT (ledger, caller, id) "
        "DO UPDATE SET owner = excluded.owner, at = excluded.at",
        ids,
    )
    return results, rows


def _check_request(
    change: Change,
    request: Asked,
    earlier: Mapping[tuple[str, str | None], Any],
    rows: Counter[str],
    owner: str,
) -> Admitted | None:
    """Return the outcome of an earlier request of the same id, or None; raise if the caller may not ask this."""
    registered = earlier.get((request.caller, request.id))
    if registered is not None and (outcome := _earlier(change, request, registered, owner)) is not None:
        return outcome
    if (key := change.state.keys.get(request.caller)) is not None:
        if not key.opens(change.at):
            raise KeyClosed("this key was revoked, or has expired")
        allow(change.state, request.caller, rows[request.caller] + len(request.queries), change.at, together=rows)
    return None


def _with_answers(request: Asked, labels: Mapping[Query, int]) -> Admitted:
    pairs = ((query, labels.get((request.caller, query))) for query in request.queries)
    return Admitted({query: label for query, label in pairs if label is not None})


def _hold(
    change: Change, requests: Sequence[Asked], admitted: list[Admitted | QuorateError], owner: str
) -> dict[str, list[int | None]]:
    """Reserve the shares that these requests may need, and return the reservation of each caller."""
    reserved: dict[str, list[int | None]] = {}
    for index, (request, result) in enumerate(zip(requests, admitted, strict=True)):
        if isinstance(result, Admitted) and result.outcome is None and is_limited(change.state, request.caller):
            new = len(set(request.queries) - result.answers.keys())
            if not new:
                continue
            aside = _set_aside(change, request.caller, new, reserved=reserved, owner=owner)
            pair = reserved.setdefault(request.caller, [None, None])
            pair[:] = _more(pair[0], aside.no_quorums), _more(pair[1], aside.cost)
            admitted[index] = replace(result, reserved=aside)
    return reserved


def _more(had: int | None, added: int | None) -> int | None:
    return had if added is None else (had or 0) + added


def _set_aside(
    change: Change, caller: str, rows: int, *, reserved: Mapping[str, Any], owner: str, need: int = 0
) -> SetAside:
    """Charge the reservations of dead processes, and return the reservation for new rows of a caller."""
    aside = hold_for(change.state, caller, rows, reserved, need=need)
    if not aside.spent and 0 in (aside.no_quorums, aside.cost) and rows:
        for name, hold in list(change.state.holds.items()):
            if name != owner and _is_gone(name, change.at - hold.at):
                change.append("hold_lost", {"owner": name})
        aside = hold_for(change.state, caller, rows, reserved, need=need)
    return aside


def _requests(change: Change, requests: Sequence[Asked]) -> dict[tuple[str, str | None], Any]:
    """Return the body, the owner, the time and the packed outcome of the stored requests with these ids.

    Only the id counts of a request that a compaction has forgotten, even if its row is not removed yet.
    """
    forgotten = change.state.forgotten
    rows: dict[tuple[str, str | None], Any] = {}
    ids: dict[str, list[str]] = {}
    for request in requests:
        if request.id is not None:
            ids.setdefault(request.caller, []).append(request.id)
    for caller, names in ids.items():
        for start in range(0, len(names), _NAMES):
            part = names[start : start + _NAMES]
            statement = (
                "SELECT id, body, owner, at, outcome, seq FROM quorate_request WHERE ledger = ? AND caller = ? "  # noqa: S608  question marks alone
                f"AND id IN ({','.join('?' * len(part))})"
            )
            for name, *row, seq in change.statements.run(statement, [change.ledger, caller, *part]):
                gone = seq is not None and seq <= forgotten  # proof: step 15
                rows[caller, name] = (b"", "", row[2], None) if gone else row
    return rows


def _earlier(change: Change, request: Asked, registered: Any, owner: str) -> Admitted | None:
    """Return the outcome of an earlier request of this id, or None if this request may take over the id."""
    body, holder, at, outcome = registered
    if outcome is None and not holder:
        raise IdReused("id must be new: its earlier request is forgotten and cannot be repeated; choose another id")
    if bytes(body) != request.body:
        raise id_reused_error()
    if outcome is not None:
        return Admitted({}, unpack(outcome))
    if holder != owner and not _is_gone(holder, change.at - at):
        raise _in_progress()
    return None  # Its process died before an answer was kept, and so before any was released.


def _is_gone(owner: str, silent: float) -> bool:
    """Return whether who holds an id is dead, or cannot be looked up and has held it for as long as an idle lease.

    One that lives nevertheless sends nothing: whoever keeps an outcome first wins (PROOF.md, step 8).
    """
    return is_gone(owner.partition("@")[2], silent=silent, patience=_ID_SECONDS)


def _in_progress() -> InProgress:
    return InProgress("a request with this id is being answered just now; send it again in a moment")


def _settle(
    change: Change, requests: Sequence[Asked], labels: Mapping[Query, int], owner: str
) -> tuple[list[Outcome | QuorateError], list[tuple[Asked, Outcome]], Counter[str]]:
    """Return the outcome of each request, the completed requests with an id, and the rows that each caller gets back.

    A request is not completed here if another process answered it, or took over its id because this one seemed dead.
    """
    registered = _requests(change, requests)
    results: list[Outcome | QuorateError] = []
    ended: list[tuple[Asked, Outcome]] = []
    returned: Counter[str] = Counter()
    for request in requests:
        if request.id is not None:
            _, holder, _, later = registered.get((request.caller, request.id), (b"", None, 0.0, None))
            if holder != owner or later is not None:
                results.append(_in_progress() if later is None else unpack(later))
                continue
        outcome = outcome_of(request, labels)
        results.append(outcome)
        returned[request.caller] += outcome.count(REFUSED)
        if request.id is not None:
            ended.append((request, outcome))
    return results, ended, returned


def _of_keys(change: Change, rows: Mapping[str, int]) -> dict[str, int]:
    """Return the rows of callers with a key; the rows of other callers are not counted."""
    return {caller: count for caller, count in rows.items() if caller in change.state.keys}


def _charges(change: Change, used: Mapping[str, Sequence[int]]) -> dict[str, list[int]]:
    """Return the no-quorums and the cost of each key that used any."""
    return {caller: list(pair) for caller, pair in used.items() if any(pair) and caller in change.state.keys}


def _used(change: Change, owner: str, used: Mapping[str, Sequence[int]]) -> dict[str, Any]:
    """Return the part of an entry about shares: the use of each caller, and the reservations that end."""
    charged = _charges(change, used)
    holds = owner in change.state.holds
    return ({"used": charged} if charged or holds else {}) | ({"owner": owner} if holds else {})


def _insert(change: Change, answers: Mapping[Query, int]) -> dict[Query, int]:
    """Keep answers under the number of the next entry, and return those that are new."""
    seq = change.seq + 1
    rows = [(change.ledger, caller, query, label, seq) for (caller, query), label in answers.items()]
    inserted = change.statements.run_many(
        "INSERT INTO quorate_answer VALUES (?, ?, ?, ?, ?) ON CONFLICT (ledger, caller, query) DO UPDATE SET "
        "label = excluded.label, seq = excluded.seq WHERE quorate_answer.seq <= ?",  # of one that is forgotten
        [(*row, change.state.forgotten) for row in rows],
    )
    if inserted == len(rows):
        return dict(answers)
    mine = change.statements.run(
        "SELECT caller, query FROM quorate_answer WHERE ledger = ? AND seq = ?", (change.ledger, seq)
    )
    return {(caller, bytes(query)): answers[caller, bytes(query)] for caller, query in mine}


def _by_caller(queries: Iterable[Query]) -> dict[str, list[bytes]]:
    by_caller: dict[str, list[bytes]] = {}
    for caller, query in queries:
        by_caller.setdefault(caller, []).append(query)
    return by_caller


def import_answers(change: Change, answers: Sequence[Any], requests: Sequence[Any]) -> None:
    """Keep the answers and completed requests of another ledger in one entry."""
    inserted = _insert(change, {(caller, bytes(query)): int(label) for caller, query, label in answers})
    ended = [(Asked(caller, [], name, bytes(body)), unpack(outcome)) for caller, name, body, outcome in requests]
    change.statements.run_many(
        "INSERT INTO quorate_request VALUES (?, ?, ?, ?, '', ?, NULL, NULL)",
        [(change.ledger, request.caller, request.id, request.body, change.at) for request, _ in ended],
    )
    body = {"lease": "", "answered": 0, "no_quorums": 0, "repeated": 0, "refused": 0, "returned": {}}
    _write(change, change.append("answered", body | {"digest": _digest(inserted.items(), ended)}), ended)


def _write(change: Change, seq: int, ended: Sequence[tuple[Asked, Outcome]]) -> None:
    given_up = [(change.ledger, request.caller, request.id) for request, outcome in ended if _empty(outcome)]
    # Nothing was drawn for these.
    change.statements.run_many("DELETE FROM quorate_request WHERE ledger = ? AND caller = ? AND id = ?", given_up)
    change.statements.run_many(
        "UPDATE quorate_request SET outcome = ?, seq = ?, owner = '', at = ? "
        "WHERE ledger = ? AND caller = ? AND id = ?",
        [
            (pack(outcome), seq, change.at, change.ledger, request.caller, request.id)
            for request, outcome in ended
            if not _empty(outcome)
        ],
    )


def _empty(outcome: Outcome) -> bool:
    return set(outcome) == {REFUSED}


def forget_requests(change: Change, ids: Sequence[Sequence[str]] | None = None) -> None:
    """Forget requests and their outcomes, but keep their ids as used.

    Without `ids`, all completed requests are forgotten; otherwise those of these callers and ids of another ledger.
    """
    if ids is None:
        change.statements.run(f"{FORGET} AND seq > 0", (b"", change.ledger))
        return
    change.statements.run_many(
        "INSERT INTO quorate_request VALUES (?, ?, ?, ?, '', ?, NULL, 0)",
        [(change.ledger, caller, name, b"", change.at) for caller, name in ids],
    )


def forgotten_requests(change: Change) -> list[Any]:
    """Return the callers and ids of forgotten requests."""
    return change.statements.run(
        "SELECT caller, id FROM quorate_request WHERE ledger = ? AND seq <= ?",
        (change.ledger, change.state.forgotten),
    )


def note_activity(change: Change, body: Mapping[str, Any]) -> None:
    """Add these answers to the activity of this minute, for the owner."""
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
    """Return the bytes of an answer in the digest of its entry."""
    return _parts(caller.encode(), bytes(query)) + label.to_bytes(8, "big", signed=True)


def request_row(caller: str, name: str, body: bytes, outcome: bytes) -> bytes:
    """Return the bytes of a request in the digest of its entry."""
    return b"request" + _parts(caller.encode(), name.encode(), bytes(body), bytes(outcome))


def kept_row(row: bytes, owner: str, at: float) -> bytes:
    """Return the bytes of a request in the digest of a part, whose entries are removed."""
    return row + _parts(owner.encode(), repr(float(at)).encode())


def _parts(*parts: bytes) -> bytes:
    return b"".join([len(part).to_bytes(8, "big") + part for part in parts])


def _digest(answers: Iterable[tuple[Query, int]], ended: Sequence[tuple[Asked, Outcome]]) -> str:
    rows = [answer_row(caller, query, label) for (caller, query), label in answers]
    rows += [
        request_row(request.caller, request.id or "", request.body, pack(outcome))
        for request, outcome in ended
        if not _empty(outcome)
    ]
    return digest_rows(rows)
