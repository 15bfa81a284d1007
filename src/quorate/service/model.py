"""A served model: its inputs and outputs, the queue before its session, its ledger, and its readiness."""

import asyncio
import contextlib
import time
from collections.abc import Callable, Sequence
from functools import partial
from itertools import accumulate
from typing import Any

import numpy as np

from quorate.core.errors import LedgerRefused
from quorate.core.ledger import Refusal
from quorate.core.privacy import Cost
from quorate.core.requests import Replies, Request
from quorate.core.rows import join_rows
from quorate.models.saving import PrivateFolder, whole_spending
from quorate.models.saving.saving import default_share
from quorate.service._batcher import RequestBatcher
from quorate.service._inputs import Inputs, MatrixInput, inputs_of
from quorate.service._outputs import ANSWERS, Outputs, outputs_of
from quorate.tables import Schema

VERSION = "1"  # of every model: the protocol asks for one
LEDGER_UNANSWERING = "ledger_unanswering"  # the cause of a refusal
_STALL_SECONDS = 5.0  # after which it is looked whether the ledger keeps a batch from being answered
_MAX_NOTES = 100  # Refusals that wait for the next write; the ledger caps its table too.
_PROBE_VALID_SECONDS = 0.25
_PROBE_WAIT_SECONDS = 1.5  # a ledger that takes longer is as good as none
_VERIFIED_SECONDS = 60.0  # a whole ledger is read at most this often


class PublishedSession:
    """The session of a published model, which charges nothing and stores nothing."""

    def __init__(self, model: Any) -> None:
        self._model, self._answers = model, ANSWERS[model.outputs]

    def ask_all(self, requests: Sequence[Request]) -> list[Replies]:
        """Answer requests, each to the bit as by itself."""
        sizes = [len(request.X) for request in requests]
        if len(sizes) == 1 or sum(sizes) > getattr(self._model, "rows_predicted_alone", 0):
            return [self._ask(request.X) for request in requests]
        return _cut(self._ask(join_rows([request.X for request in requests])), sizes)

    def _ask(self, X: Any) -> Replies:
        refused = np.zeros(len(X), dtype=np.bool_)
        details = self._answers.details(self._model, X)
        codes = self._answers.codes(self._model, X, details)
        return Replies(labels=codes, refused=refused, spent=Cost(0.0), told=details)


def _cut(replies: Replies, sizes: Sequence[int]) -> list[Replies]:
    """Return the replies of each request, whose rows were answered together."""
    ends = list(accumulate(sizes))
    parts = [slice(end - size, end) for end, size in zip(ends, sizes, strict=True)]
    return [
        Replies(
            labels=replies.labels[part], refused=replies.refused[part], spent=replies.spent, told=replies.told[part]
        )
        for part in parts
    ]


class Latest:
    """The latest value of a slow function. A thread calls it, once at a time, when the value is old."""

    def __init__(self, function: Callable[[], Any], *, valid_seconds: float) -> None:
        self._function, self._valid_seconds = function, valid_seconds
        self.value: Any = None
        self._valid_until = 0.0
        self._task: asyncio.Task[None] | None = None

    async def refresh(self, patience_seconds: float) -> bool:
        """Return whether the value is recent: it is not where the function takes longer than the patience."""
        if time.monotonic() < self._valid_until:
            return True
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._call())
        done, _ = await asyncio.wait([self._task], timeout=patience_seconds)
        return bool(done)

    async def _call(self) -> None:
        self.value = await asyncio.to_thread(self._function)
        self._valid_until = time.monotonic() + self._valid_seconds


class Model:
    """A fitted model behind a name.

    `session` answers batches of requests (`ask_all`), and `ledger`, if any, holds the budget and the keys. A ledger may
    count only a part of the claim; `whole_view` turns its view into the spending of the whole claim.
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
        whole_view: Callable[[Any], Any] = lambda view: view,
        default_share: Callable[[str], dict[str, Any]] | None = None,
        hides_entries: bool = False,
    ) -> None:
        self.name, self.session, self.ledger, self.claim = name, session, ledger, claim
        self.published = isinstance(session, PublishedSession)  # Anybody may ask it, without a key, at no privacy cost.
        self.inputs, self.outputs, self.whole_view = inputs, outputs, whole_view
        self.batcher = RequestBatcher(
            getattr(session, "ask_all", _refuse_all), limit=queue_limit, idle=getattr(session, "on_idle", None)
        )
        self._probe = Latest(self._find_ledger_cause, valid_seconds=_PROBE_VALID_SECONDS)
        self.verification = Latest(self._verify_ledger, valid_seconds=_VERIFIED_SECONDS)
        self.default_share = default_share or getattr(ledger, "default_share", None)  # of a key, by its project
        self.ledger_seconds: float | None = None  # that the latest probe of the ledger took
        self.refused = ""  # why it is not loaded, and answers nothing
        self._keys = ledger  # the ledger that has its keys, also where nothing else of it is used
        self.hides_outcomes = self.progress is not None  # Only the owner of an everlasting model may see the outcomes.
        # Others must not see that records came or went, which are entries of the ledger: models/knn/PROOF.md, step 9.
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
            inputs=inputs_of(model, schema),
            outputs=outputs_of(model),
            claim=model.claim_,
            ledger=getattr(model.session_, "ledger", None),
            queue_limit=queue_limit,
            hides_entries=model.spending.hides_entries,
            **({} if folder is None else _views_of(folder, model.session_)),
        )

    @classmethod
    def of_published(cls, name: str, model: Any, *, schema: Schema | None = None, queue_limit: int = 1024) -> "Model":
        """Return a model of a published folder under a name: its answers are free."""
        session, inputs, outputs = PublishedSession(model), inputs_of(model, schema), outputs_of(model)
        return cls(name, session=session, inputs=inputs, outputs=outputs, claim=model.claim_, queue_limit=queue_limit)

    @classmethod
    def of_refused(cls, name: str, keys: Any = None, *, cause: str = "refused_at_start") -> "Model":
        """Return an unavailable model, such as one with a refused ledger; holders of its keys get the reason.

        `keys` is a ledger that has them, if it can be read.
        """
        model = cls(name, session=None, inputs=MatrixInput(1), outputs=Outputs(np.array([0])))
        model.refused, model._keys = cause, keys
        return model

    @property
    def find_key(self) -> Callable[[str], Any] | None:
        """The function that finds a key of this model by its token; None without keys."""
        return None if self._keys is None else self._keys.find_key

    def find_subject(self, issuer: str, subject: str) -> Any:
        """Return the key of a subject of an issuer of tokens, or None without one."""
        return None if self._keys is None else self._keys.find_subject(issuer, subject)

    @property
    def progress(self) -> dict[str, Any] | None:
        """The public progress of an everlasting model's phase; None for other models."""
        return getattr(self.session, "progress", None)

    def metadata(self) -> dict[str, Any]:
        """Return the model's metadata as the protocol has it."""
        parameters: dict[str, Any] = {
            "claim": self.claim,
            "classes": self.outputs.classes.tolist(),
            "label_if_not_answered": self.outputs.unanswered,
        }
        if self.inputs.missing_texts is not None:
            parameters["missing_texts"] = list(self.inputs.missing_texts)
        if self.outputs.labels is not None:
            parameters["labels"] = self.outputs.labels.tolist()
        return {
            "name": self.name,
            "versions": [VERSION],
            "platform": "quorate",
            "inputs": [tensor._asdict() for tensor in self.inputs.tensors],
            "outputs": [tensor._asdict() for tensor in self.outputs.tensors],
            "parameters": parameters,
        }

    def note(self, caller: str, code: str) -> None:
        """Queue a refusal of a caller with a key for the next write to the ledger."""
        if self.ledger is not None and len(self._notes) < _MAX_NOTES:
            self._notes.append((time.time(), caller, code))

    async def find_cause(self) -> str:
        """Return the class of what keeps the model from answering; nothing where it answers.

        Its thread must run, and its ledger, if it has one, take a write that is synced.
        """
        if not self.batcher.answering:
            return "not_answering"
        if self.ledger is None:
            return ""
        return str(self._probe.value) if await self._probe.refresh(_PROBE_WAIT_SECONDS) else LEDGER_UNANSWERING

    def _find_ledger_cause(self) -> str:
        began = time.perf_counter()
        try:
            self.ledger.probe()
            self.ledger_seconds = time.perf_counter() - began
        except LedgerRefused as error:
            return error.cause
        except Exception as error:  # Any error means not ready; its type goes to the log.
            return type(error).__name__
        return ""

    def _verify_ledger(self) -> Any:
        try:
            return self.ledger.verify()
        except Exception:
            return None  # The page says that the ledger was not verified.

    async def write_notes(self) -> None:
        """Write the refusals to the ledger."""
        notes, self._notes = self._notes, []
        if notes:
            await asyncio.to_thread(self.ledger.note_refusals, [Refusal(*note) for note in notes])

    async def read_keys(self) -> None:
        """Read the keys of the ledger again. After a failed read the next request gets the error."""
        if self._keys is not None:
            with contextlib.suppress(LedgerRefused):
                await asyncio.to_thread(self._keys.read_keys)

    async def refuse_if_stalled(self) -> None:
        """Refuse all requests if the ledger has not answered for a while: another process may hold its lock."""
        if self.ledger is None or self.batcher.seconds_under_way < _STALL_SECONDS:
            return
        if await self.find_cause() == LEDGER_UNANSWERING:
            self.batcher.refuse_all(
                LedgerRefused("the ledger does not answer", cause=LEDGER_UNANSWERING, retry_after=_STALL_SECONDS)
            )

    async def close(self) -> None:
        """Answer queued requests, write the remaining notes, and return the lease."""
        await self.batcher.close()
        try:
            await self.write_notes()
        finally:
            if hasattr(self.session, "close"):
                await asyncio.to_thread(self.session.close)


def _views_of(folder: PrivateFolder, session: Any) -> dict[str, Any]:
    """Return what the folder of a model says of its account and of the shares of its keys."""
    views: dict[str, Any] = {"whole_view": partial(whole_spending, folder)}
    ledger = getattr(session, "ledger", None)
    return views if ledger is None else views | {"default_share": partial(default_share, folder, ledger)}


def _refuse_all(requests: list[Any]) -> list[Any]:
    raise RuntimeError("this model has no session")
