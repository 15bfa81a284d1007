"""Exports of a ledger, one of them with the plain hashes that its entries hold.

The attack has the export and knows how entries are made, but not the ledger's key: it tries every query of a small
space with every label and both kinds of rows, and looks for a hash that fits.
"""

import hashlib
import itertools
import json
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from planted.bug import Caught, kind_bug
from quorate.core.ledger import Ledger, export_entries
from quorate.core.ledger._requests import answer_row, pack, request_row
from quorate.core.ledger.chain import digest_rows
from quorate.core.privacy import Budget
from quorate.core.requests import Asked
from quorate.core.rows import query_digests
from support.quiet_folder import quiet_folder

Export = Callable[[Ledger], Iterator[dict[str, Any]]]

_SPACE = np.array(list(itertools.product(range(2), range(4), range(100))), dtype=float)  # sex, town, age
_LABELS = (0, 1, -1)


def export_as_kept(ledger: Ledger) -> Iterator[dict[str, Any]]:
    """Yield entries just as the ledger keeps them, with their hashes of callers, queries and labels."""
    for entry in ledger.entries():
        yield {"seq": entry.seq, "kind": entry.event.kind, "body": dict(entry.event.body), "mac": entry.mac}


def guess_answers(export: Export) -> Caught:
    """Let two callers ask one query each, export the ledger, and guess what they asked and were answered."""
    callers, asked = ("1f2e3d4c", "5b6a7988"), _SPACE[[137, 642]]
    with quiet_folder() as folder:
        ledger = Ledger.create(folder / "ledger.sqlite", Budget(epsilon=1.0, delta=0.0), fingerprint="planted")
        for caller, query in zip(callers, query_digests(asked), strict=True):
            request = Asked(caller, [query], id="visit-1", body=hashlib.blake2b(query).digest())
            ledger.admit([request])
            ledger.keep({(caller, query): 1}, {}, [request])
        text = "\n".join(json.dumps(line) for line in export(ledger))
    guessed = [place for place in range(len(_SPACE)) if any(guess in text for guess in _guesses(callers, place))]
    evidence = f"{len(guessed)} of 2 queries were found among {len(_SPACE)} by trying them all"
    return Caught("brute force over all queries", evidence, found=bool(guessed))


def _guesses(callers: tuple[str, ...], place: int) -> Iterator[str]:
    """Yield all hashes that a query may have left, for each caller and label: alone, in a row, in an entry."""
    (query,) = query_digests(_SPACE[[place]])
    body = hashlib.blake2b(query).digest()
    yield query.hex()
    yield body.hex()
    for caller, label in itertools.product(callers, _LABELS):
        answer = answer_row(caller, query, label)
        request = request_row(caller, "visit-1", body, pack([label]))
        for rows in ([answer], [request], [answer, request]):
            yield digest_rows(rows)
            yield hashlib.sha256(b"".join(rows)).hexdigest()


EXPORTS = (kind_bug("export_can_be_guessed", "state", export_as_kept, export_entries, guess_answers),)
