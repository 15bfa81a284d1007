"""Clients that hammer a server which is being killed, keep their ids, and write down what they were told."""

import asyncio
import json
import random
from dataclasses import dataclass, field

_PAUSE = 0.002  # seconds before a client turns to a server again that it lost
_LATER = {"in_progress": 0.002, "ledger_refused": 0.05}  # seconds before it asks again, by the code of a refusal


@dataclass
class Book:
    """What clients asked and what they received. Everything that is checked is checked against this."""

    bodies: dict = field(default_factory=dict)  # id -> the bytes that were asked
    answers: dict = field(default_factory=dict)  # id -> the bytes that came back
    refusals: dict = field(default_factory=dict)  # code -> how many
    problems: list = field(default_factory=list)
    repeats: int = 0
    lost: int = 0  # connections that ended before the answer came

    def label(self, name):
        """Return the number of the class that came back for this id, -1 for no quorum."""
        outputs = {output["name"]: output["data"] for output in json.loads(self.answers[name])["outputs"]}
        return outputs["index"][0]


class Client:
    """One connection at a time, one request at a time.

    `heard` is called with the id of each new answer, and with None when anything else comes back.
    """

    def __init__(
        self,
        book,
        port,
        model,
        *,
        features,
        heard=lambda name: None,
        repeat=0.1,
        each_connection=50,
        spread=1.0,
        patience=30.0,
        token=None,
    ):
        self._book, self._port, self._path = book, port, f"/v2/models/{model}/infer"
        self._features, self._spread, self._heard, self._repeat = features, spread, heard, repeat
        self._each, self._patience = each_connection, patience
        self._key = "" if token is None else f"authorization: Bearer {token}\r\n"
        self._reader = self._writer = None
        self._used = 0
        self._random = random.Random(random.SystemRandom().getrandbits(64))

    async def run(self, done):
        """Ask new and old queries until `done()`."""
        try:
            while not done():
                name = self._old_query() if self._random.random() < self._repeat else self.new_query()
                await self.settle(name, done)
        finally:
            self.close()

    def _old_query(self):
        """Return an id that was asked before: any, or a late one, which may be under way."""
        asked = list(self._book.bodies)
        if not asked:
            return self.new_query()
        return self._random.choice(asked if self._random.random() < 0.5 else asked[-40:])

    def new_query(self):
        """Make up a query that nobody has asked, and return its id."""
        name = f"{self._random.getrandbits(96):x}"
        self._book.bodies[name] = self._query(name)
        return name

    async def settle(self, name, done):
        """Ask with this id until somebody answers, whoever is killed meanwhile. Return the code of a refusal."""
        while not done():
            try:
                status, body = await asyncio.wait_for(self._post(self._book.bodies[name]), self._patience)
            except (OSError, asyncio.IncompleteReadError, ValueError, TimeoutError):
                self._book.lost += 1
                self.close()
                await asyncio.sleep(_PAUSE * self._random.random())
                continue
            code = self._note(name, status, body)
            if code not in _LATER:
                return code
            await asyncio.sleep(_LATER[code])
        return None

    def _note(self, name, status, body):
        if status == 200:
            before = self._book.answers.setdefault(name, body)
            self._heard(name if before is body else None)
            self._book.repeats += before is not body
            if before != body:
                self._book.problems.append(f"two answers for {name}: {before!r} and {body!r}")
            return None
        self._heard(None)
        try:
            code = json.loads(body)["code"]
        except (ValueError, KeyError):
            code = f"status {status}"
        self._book.refusals[code] = self._book.refusals.get(code, 0) + 1
        if name in self._book.answers and code == "budget_spent":
            self._book.problems.append(f"{name} was answered, and is refused now")
        return code

    def _query(self, name):
        values = [self._random.gauss(0, self._spread) for _ in range(self._features)]
        tensor = {"name": "features", "shape": [1, len(values)], "datatype": "FP64", "data": values}
        return json.dumps({"id": name, "inputs": [tensor]}).encode()

    async def _post(self, body):
        if self._writer is None or self._used >= self._each:
            self.close()
            self._reader, self._writer = await asyncio.open_connection("127.0.0.1", self._port)
        self._used += 1
        head = f"POST {self._path} HTTP/1.1\r\nhost: localhost\r\ncontent-length: {len(body)}\r\n{self._key}\r\n"
        self._writer.write(head.encode() + body)
        lines = (await self._reader.readuntil(b"\r\n\r\n")).split(b"\r\n")
        fields = dict(line.lower().split(b":", 1) for line in lines[1:] if line)
        return int(lines[0].split()[1]), await self._reader.readexactly(int(fields[b"content-length"]))

    def close(self):
        if self._writer is not None:
            self._writer.transport.abort()
        self._reader = self._writer = None
        self._used = 0
