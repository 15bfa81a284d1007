"""A model as it is served: its tensors, the queue before its session, and its ledger."""

import asyncio
import contextlib
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from quorate.core.errors import LedgerRefused
from quorate.core.privacy import Cost
from quorate.core.requests import Replies, Request
from quorate.models.predictors.labels import class_codes
from quorate.models.saving import PrivateFolder, whole_spending
from quorate.service.batcher import RequestBatcher
from quorate.service.readiness import Readiness
from quorate.service.releases import OnlineOutputs, QueryInput, ShareOutputs
from quorate.service.sets import IntervalOutputs, SetOutputs, ValueOutputs, told_intervals
from quorate.service.tensors import (
    Inputs,
    LabelsOutputs,
    MatrixInput,
    NoisyScoreOutputs,
    Outputs,
    SchemaInputs,
    ScoreOutputs,
    inputs_of,
)
from quorate.tables import Schema

VERSION = "1"  # of every model: the protocol asks for one
_MAX_NOTES = 100  # refusals kept for the next writing; the ledger caps its table too


class PublishedAnswers:
    """What a session is to private teachers, for a model that was published: nothing is charged, and nothing kept.

    `answer` returns numbers for checked queries: of classes, or of queries that a release has answered. `told` returns
    what the model says beyond them.
    """

    def __init__(self, answer: Callable[[Any], NDArray[np.int64]], told: Callable[[Any], Any]) -> None:
        self._answer, self._told = answer, told

    def ask_all(self, requests: Sequence[Request]) -> list[Replies]:
        """Answer requests, each by itself."""
        return [self._asked(request.X) for request in requests]

    def _asked(self, X: Any) -> Replies:
        refused = np.zeros(len(X), dtype=np.bool_)
        return Replies(labels=self._answer(X), refused=refused, spent=Cost(0.0), told=self._told(X))


class Model:
    """A fitted classifier behind a name.

    `session` answers batches of requests (`ask_all`), and `ledger`, if there is one, holds the budget and the keys.
    `told` makes of the ledger's view what may be said of the model: its account need not be the whole.
    """

    def __init__(
        self,
        name: str,
        *,
        session: Any,
        inputs: Inputs,
        outputs: Outputs,
        claim: str = "",
        ledger: Any = None,
        queue_limit: int = 1024,
        told: Callable[[Any], Any] = lambda view: view,
        hides_entries: bool = False,
    ) -> None:
        self.name, self.session, self.ledger, self.claim = name, session, ledger, claim
        self.told = told
        self.inputs, self.outputs = inputs, outputs
        self.batcher = RequestBatcher(
            getattr(session, "ask_all", _nobody), limit=queue_limit, idle=getattr(session, "on_idle", None)
        )
        self.readiness = Readiness(self.batcher, ledger)
        self.refused = ""  # why it is not loaded, and answers nothing
        self._keys = ledger  # the ledger that has its keys, also where nothing else of it is used
        self.hides_outcomes = self.progress is not None  # only the owner of an everlasting model may count them
        # nor may others see that records came or went, which are entries of the ledger (models/knn/PROOF.md, step 9)
        self.hides_entries = self.hides_outcomes or hides_entries
        self._notes: list[tuple[float, str, str]] = []

    @classmethod
    def of(
        cls,
        name: str,
        model: Any,
        *,
        schema: Schema | None = None,
        queue_limit: int = 1024,
        folder: PrivateFolder | None = None,
    ) -> "Model":
        """Return a fitted model that answers through a session under a name; `schema` is that of its folder."""
        return cls(
            name,
            session=model.session_,
            inputs=_INPUTS[model.inputs](model, schema),
            outputs=_SERVED[model.outputs].tensors(model),
            claim=model.claim_,
            ledger=getattr(model.session_, "ledger", None),
            queue_limit=queue_limit,
            hides_entries=model.spending.hides_entries,
            **({} if folder is None else {"told": partial(whole_spending, folder)}),
        )

    @classmethod
    def of_published(cls, name: str, model: Any, *, schema: Schema | None = None, queue_limit: int = 1024) -> "Model":
        """Return a model of a published folder under a name: its answers are free."""
        served, inputs = _SERVED[model.outputs], _INPUTS[model.inputs](model, schema)
        session = PublishedAnswers(partial(served.codes, model), partial(served.details, model))
        outputs = served.tensors(model)
        return cls(name, session=session, inputs=inputs, outputs=outputs, claim=model.claim_, queue_limit=queue_limit)

    @classmethod
    def of_refused(cls, name: str, keys: Any = None, *, cause: str = "refused_at_start") -> "Model":
        """Return a model that answers nothing, such as one whose ledger is refused. Who has a key of it is told so.

        `keys` is a ledger that has them, if it can be read.
        """
        model = cls(name, session=None, inputs=MatrixInput(1), outputs=Outputs(np.array([0])))
        model.refused, model._keys = cause, keys
        return model

    @property
    def find_key(self) -> Callable[[str], Any] | None:
        """What finds a key of this model by its token; None where there are no keys."""
        return None if self._keys is None else self._keys.find_key

    @property
    def published(self) -> bool:
        """Whether the model was published: anybody may ask it, without a key and at no privacy cost."""
        return isinstance(self.session, PublishedAnswers)

    @property
    def progress(self) -> dict[str, Any] | None:
        """How far the phase of an everlasting model has come: everybody may know. None for a model of another kind."""
        return getattr(self.session, "progress", None)

    def metadata(self) -> dict[str, Any]:
        """Return the model's metadata as the protocol has it."""
        several = {} if self.outputs.labels is None else {"labels": self.outputs.labels.tolist()}
        return {
            "name": self.name,
            "versions": [VERSION],
            "platform": "quorate",
            "inputs": [tensor._asdict() for tensor in self.inputs.described()],
            "outputs": [tensor._asdict() for tensor in self.outputs.described()],
            "parameters": self._missing()
            | {
                "claim": self.claim,
                "classes": self.outputs.classes.tolist(),
                "label_if_not_answered": self.outputs.unanswered,
                **several,
            },
        }

    def _missing(self) -> dict[str, list[str]]:
        """Return which texts of a file mean that a value is missing, where a schema says so."""
        return (
            {"missing_texts": list(self.inputs.schema.missing_texts)} if isinstance(self.inputs, SchemaInputs) else {}
        )

    def note(self, caller: str, code: str) -> None:
        """Remember a refusal of somebody who has a key, to be written to the ledger with the next ones."""
        if self.ledger is not None and len(self._notes) < _MAX_NOTES:
            self._notes.append((time.time(), caller, code))

    async def write_notes(self) -> None:
        """Write the refusals to the ledger."""
        notes, self._notes = self._notes, []
        if notes:
            from quorate.core.ledger import Refusal  # noqa: PLC0415

            await asyncio.to_thread(self.ledger.note_refusals, [Refusal(*note) for note in notes])

    async def read_keys(self) -> None:
        """Read the keys of the ledger again. Where it cannot be read, whoever asks next is told."""
        if self._keys is not None:
            with contextlib.suppress(LedgerRefused):
                await asyncio.to_thread(self._keys.read_keys)

    async def close(self) -> None:
        """Answer what is queued, write what is to be written, and give the lease back."""
        await self.batcher.close()
        try:
            await self.write_notes()
        finally:
            if hasattr(self.session, "close"):
                await asyncio.to_thread(self.session.close)


class _Served(NamedTuple):
    """How one kind of answer is served: its tensors, and what a published model says of checked queries.

    A published model gives class numbers, or numbers of queries, and whatever else its answers say.
    """

    tensors: Callable[[Any], Outputs]
    codes: Callable[[Any, Any], NDArray[np.int64]] = lambda model, X: np.zeros(len(X), dtype=np.int64)
    details: Callable[[Any, Any], Any] = lambda model, X: None


def _label_codes(model: Any, X: Any) -> NDArray[np.int64]:
    return class_codes(model.classes_, model.predict(X))


_INPUTS: dict[str, Callable[[Any, Schema | None], Inputs]] = {
    "rows": inputs_of,
    "queries": lambda model, schema: QueryInput(model),
}
_SERVED = {
    "labels": _Served(lambda model: Outputs(model.classes_), _label_codes),
    "probabilities": _Served(
        lambda model: ScoreOutputs(model.classes_), _label_codes, lambda model, X: model.predict_proba(X)
    ),
    "vote shares": _Served(lambda model: NoisyScoreOutputs(model.classes_, model.scoring())),
    "label sets": _Served(
        lambda model: SetOutputs(model.classes_), _label_codes, lambda model, X: model.predict_set(X)
    ),
    "several labels": _Served(
        lambda model: LabelsOutputs(model.labels_), details=lambda model, X: model.predict_proba(X)
    ),
    "values": _Served(lambda model: ValueOutputs(), details=lambda model, X: model.predict(X)),
    "noisy values": _Served(lambda model: ValueOutputs(model.read)),
    "intervals": _Served(lambda model: IntervalOutputs(), details=told_intervals),
    "released shares": _Served(ShareOutputs, lambda model, X: X[:, 0]),
    "online shares": _Served(OnlineOutputs),
}


def _nobody(requests: list[Any]) -> list[Any]:
    raise RuntimeError("this model has no session")
