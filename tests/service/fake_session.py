"""A session and a ledger in memory, for tests of the service that need neither teachers nor noise."""

import threading
from types import SimpleNamespace

import numpy as np

from quorate.core.errors import BudgetSpent, IdReused
from quorate.core.privacy import Cost
from quorate.core.requests import Replies
from quorate.service._inputs import MatrixInput
from quorate.service._outputs import Outputs
from quorate.service.model import Model


class FakeSession:
    """Answers 1 where the first feature is above 0, no quorum where it is 0, and 0 otherwise; each new row costs 1."""

    def __init__(self, budget=10**9):
        self.left, self.groups, self.closed = budget, [], False
        self.ids, self.answers = {}, {}
        self.asking, self.held = threading.Event(), threading.Event()
        self.held.set()
        self.ledger = FakeLedger(self)

    def ask_all(self, requests):
        self.asking.set()
        self.held.wait(60)
        self.groups.append(len(requests))
        return [self._ask(request) for request in requests]

    def _ask(self, request):
        place = (request.caller, request.id)
        if request.id is not None and place in self.ids:
            body, replies = self.ids[place]
            return replies if body == request.body else IdReused("this id was used")
        labels = np.full(len(request.X), -1, dtype=np.int64)
        refused = np.zeros(len(request.X), dtype=bool)
        for row, values in enumerate(np.asarray(request.X)):
            key = (request.caller, values.tobytes())
            if key not in self.answers:
                if self.left == 0:
                    refused[row] = True
                    continue
                self.left -= 1
                self.answers[key] = -1 if values[0] == 0 else int(values[0] > 0)
            labels[row] = self.answers[key]
        if refused.all():
            return BudgetSpent("the budget has 0.0 left of 12345.678")
        replies = Replies(labels=labels, refused=refused, spent=Cost(0.0))
        if request.id is not None:
            self.ids[place] = request.body, replies
        return replies

    def close(self):
        self.closed = True


class FakeLedger:
    def __init__(self, session):
        self.session, self.noted, self.keys = session, [], {}

    def view(self):
        return SimpleNamespace(
            left=0.5, spent_epsilon=0.5, epsilon=1.0, delta=1e-6, entries=1, head="ab", leases=(), keys=()
        )

    def find_key(self, token):
        return self.keys.get(token)

    def read_keys(self):
        pass

    def probe(self):
        pass

    def add(self, token, *scopes):
        self.keys[token] = SimpleNamespace(id=token.split("_")[1], name=token, scopes=scopes, revoked=False)

    def note_refusals(self, refusals):
        self.noted += refusals


def fake_model(name="m", classes=("no", "yes"), columns=3, **told):
    session = FakeSession(**told)
    return Model(
        name,
        session=session,
        inputs=MatrixInput(columns),
        outputs=Outputs(np.array(classes)),
        claim="(1, 1e-06)-differentially private",
        ledger=session.ledger,
    )
