"""The account of a ledger, recounted from its bare entries by other code than the ledger's own.

A store's tables are read directly: SQLite's files from a copy, so that a killed server's log is left for the next
server to recover, and PostgreSQL's over a connection of the test's own.
"""

import json
import shutil
import sqlite3
import struct
import tempfile
from collections import Counter
from contextlib import closing
from pathlib import Path


class Place:
    """Where a model's ledger is, for reading: a PostgreSQL URL, or the file in the model's folder."""

    def __init__(self, folder, url=None):
        self._file, self._url = Path(folder) / "ledger.sqlite", url
        self._looking = None

    def after_a_kill(self, *, others=False):
        """Return a connection to what a dead server left; with `others`, while others go on."""
        if self._url is not None or others:
            return self._connected()
        copies = tempfile.mkdtemp(prefix="quorate-copy-")
        try:
            for suffix in ("", "-wal"):
                source = self._file.with_name(self._file.name + suffix)
                if source.exists():
                    shutil.copyfile(source, Path(copies) / source.name)
            copied = sqlite3.connect(Path(copies) / self._file.name)
            copied.execute("SELECT count(*) FROM quorate_entry").fetchone()  # the copy's log is read here
            return copied
        finally:
            shutil.rmtree(copies)

    def outcome_now(self, name):
        """Return the label that is committed for this id just now, or None."""
        if self._looking is None:
            self._looking = self._connected()
        mark = "?" if self._url is None else "%s"
        found = self._looking.execute(f"SELECT outcome FROM quorate_request WHERE id = {mark}", (name,)).fetchone()
        return _label(found[0]) if found is not None and found[0] is not None else None

    def _connected(self):
        if self._url is None:
            return sqlite3.connect(f"{self._file.as_uri()}?mode=ro", uri=True)
        import psycopg

        return psycopg.connect(self._url, autocommit=True)

    def close(self):
        if self._looking is not None:
            self._looking.close()
            self._looking = None


def _label(outcome):
    (label,) = struct.unpack("q", bytes(outcome))
    return label


class Recount:
    """What the entries say, added up, and held against the price of the answers.

    `advance` reads what a dead server left, beyond what was read before, and returns what is wrong with it.
    """

    def __init__(self, place, price):
        self._place, self._price = place, price
        self.entries, self._head = 0, None
        self.capacity, self.spent = None, None
        self.leased, self.paid = Counter(), Counter()  # quanta of each lease, and outcomes that they pay for
        self.answers = 0  # and no-quorums that are on record
        self.kinds = Counter()
        self._checked = set()  # ids whose rows were found

    def advance(self, book, *, others=False):
        """Read on, and hold the ledger against what clients received."""
        with closing(self._place.after_a_kill(others=others)) as connection:
            problems = self._read(connection)
            return problems + self._hold_against(connection, book)

    def _read(self, connection):
        problems = []
        rows = connection.execute("SELECT seq, kind, body, mac FROM quorate_entry ORDER BY seq").fetchall()
        if self.entries and (len(rows) < self.entries or rows[self.entries - 1][3] != self._head):
            return [f"the ledger had {self.entries} entries, and they are gone or changed"]
        for place, (seq, kind, body, _) in enumerate(rows[self.entries :], start=self.entries + 1):
            if seq != place:
                problems.append(f"entry {place} is missing")
            problems += self._add(kind, json.loads(body))
        if rows:
            self.entries, self._head = len(rows), rows[-1][3]
        return problems

    def _add(self, kind, body):
        self.kinds[kind] += 1
        problems = []
        if kind == "opened":
            self.capacity, self.spent = int(body["capacity"][0]), int(body["spent"][0])
        elif kind in ("leased", "returned"):
            amount = int(body["renyi"]) * (1 if kind == "leased" else -1)
            self.leased[body["lease"]] += amount
            self.spent += amount
        elif kind == "answered":
            self.answers += body["answered"] + body["no_quorums"]
            self.paid[body["lease"]] += body["no_quorums"] + (0 if self._price.free else body["answered"])
        if not 0 <= self.spent <= self.capacity:
            problems.append(f"{self.spent} quanta are charged, of {self.capacity}")
        lease = body.get("lease")
        if lease is not None and self.paid[lease] * self._price.unit > self.leased[lease]:
            problems.append(f"lease {lease} of {self.leased[lease]} quanta paid for {self.paid[lease]} outcomes")
        return problems

    def _hold_against(self, connection, book):
        problems = []
        received = len(book.answers)
        if received > self.answers or sum(self.paid.values()) * self._price.unit > (self.spent or 0):
            problems.append(f"{received} answers were received, {self.answers} are on record and paid for")
        unchecked = [name for name in book.answers if name not in self._checked]
        if not unchecked:
            return problems
        rows = connection.execute("SELECT id, outcome FROM quorate_request WHERE outcome IS NOT NULL").fetchall()
        kept = {name: _label(outcome) for name, outcome in rows}
        for name in unchecked:
            if kept.get(name) != book.label(name):
                problems.append(f"{name} was answered {book.label(name)}; the ledger says {kept.get(name)}")
        self._checked.update(unchecked)
        return problems
