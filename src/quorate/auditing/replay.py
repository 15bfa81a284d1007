"""Deterministic replay: the same entropy tape on neighbouring data sets.

If every random draw is the same, any difference between two data sets that differ in one unit is due to that unit. It
may change the ballots of one teacher, and through them answers that are charged; but not the classes, the plan, the
claim, an error, the cost, or how much randomness is drawn before the first answer that differs. A replay does not
measure the probabilities of answers: the games do.
"""

import os
import random
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from sklearn.base import clone

from quorate.auditing.plays import PlayNoise
from quorate.core.errors import InvalidInput, NoQuorum, QuorateError
from quorate.core.mechanisms import base

__all__ = ["Draw", "Replay", "entropy_tape", "fitted_ensemble", "off_the_tape", "replay"]

_PUBLIC = ("classes_", "teachers_", "claim_", "mechanism_", "n_features_in_", "plan_", "terms_", "phase_", "progress_")
_LAWS = ("laplace", "gaussian", "words", "bernoulli_exp", "choice")
_alone = threading.Lock()
_aside: list[None] = []  # one entry for each `off_the_tape` that lasts
_system_noise: Any = vars(base)["system_noise"]  # the one object that all mechanisms draw from

Data = tuple[Any, Any]
Draw = tuple[str, int]


@contextmanager
def entropy_tape(seed: int) -> Iterator[list[Draw]]:
    """Take the system's randomness and all noise of this process from a seed, and yield the list of all draws.

    Only for audits: meanwhile, no answer of this process is private.
    """
    noise, drawn = PlayNoise(seed), list[Draw]()
    generator = np.random.default_rng([seed, 1])
    true_urandom, standard = os.urandom, vars(random)

    def urandom(size: int) -> bytes:
        if _aside:
            return true_urandom(size)
        drawn.append(("urandom", size))
        return generator.bytes(size)

    def taped(law: str) -> Callable[..., Any]:
        def draw(*arguments: Any) -> Any:
            drawn.append((law, int(arguments[-1]) if law != "choice" else len(arguments[0])))
            if law == "bernoulli_exp":
                return generator.random(arguments[1]) < np.exp(-float(arguments[0]))
            return getattr(noise, law)(*arguments)

        return draw

    if not _alone.acquire(blocking=False):
        raise InvalidInput("an entropy tape is running in this process already; end it first")
    state = np.random.get_state(), random.getstate()  # noqa: NPY002
    try:
        os.urandom = standard["_urandom"] = urandom  # the second is what `secrets` and generators without a seed ask
        np.random.seed(seed)  # noqa: NPY002
        random.seed(seed)
        for law in _LAWS:
            setattr(_system_noise, law, taped(law))  # an attribute of the object hides the method of its class
        yield drawn
    finally:
        os.urandom = standard["_urandom"] = true_urandom
        np.random.set_state(state[0])  # noqa: NPY002
        random.setstate(state[1])
        for law in _LAWS:
            vars(_system_noise).pop(law, None)
        _alone.release()


@contextmanager
def off_the_tape() -> Iterator[None]:
    """Take randomness from the system inside this block, not from the tape: estimators name their tasks by it."""
    _aside.append(None)
    try:
        yield
    finally:
        _aside.pop()


@dataclass(frozen=True)
class Replay:
    """What differed between two data sets on one tape; `forbidden` describes the differences that must not occur."""

    teachers_changed: int
    ballots_changed: int
    answers_changed: int
    forbidden: tuple[str, ...]

    @property
    def sound(self) -> bool:
        """Whether there is no forbidden difference."""
        return not self.forbidden


class _Answer(NamedTuple):
    said: str
    drawn: int  # so far
    spent: str  # so far
    failed: bool  # an error, and no answer that is paid for


@dataclass
class _Seen:
    """One run: what everybody sees, what the owner sees, and the draws made by the time of each."""

    public: dict[str, str]
    ballots: np.ndarray
    answers: list[_Answer]
    drawn: list[Draw]
    fitted_after: int
    failed: str = ""  # why there is nothing to compare, where that is so


def replay(make: Any, first: Data, second: Data, queries: Any, *, seed: int = 0) -> Replay:
    """Fit and ask on two neighbouring data sets with one tape, and return what differed.

    `make` is an unfitted predictor, or a function that makes one. Queries are asked one by one until an answer differs:
    after that, everything may.

    >>> from quorate import PrivateClassifier
    >>> X, y = np.arange(200.0)[:, np.newaxis], np.arange(200) % 2
    >>> other = y.copy()
    >>> other[0] = 1
    >>> made = PrivateClassifier(epsilon=2.0, teachers=100, queries=4, aggregator="noisy_max", classes=[0, 1])
    >>> replay(made, (X, y), (X, other), [[3.0], [90.0]]).forbidden
    ()
    """
    one, other = (_run(make, data, np.asarray(queries), seed) for data in (first, second))
    if one.failed and one.failed == other.failed:
        raise InvalidInput(f"nothing was replayed, since this comes of both data sets: {one.failed}")
    forbidden = [
        f"{name} is {one.public.get(name)} on one data set and {other.public.get(name)} on the other"
        for name in sorted({*one.public, *other.public})
        if one.public.get(name) != other.public.get(name)
    ]
    teachers, ballots = 0, 0
    if one.ballots.shape != other.ballots.shape:
        forbidden.append("the number of teachers or of queries they vote on differs")
    else:
        differ = one.ballots != other.ballots
        teachers, ballots = int(differ.any(axis=0).sum()), int(differ.sum())
        if teachers > 1:
            forbidden.append(f"the ballots of {teachers} teachers differ, and of one they may")
    if one.drawn[: one.fitted_after] != other.drawn[: other.fitted_after]:
        forbidden.append("fitting asks for other randomness")
    changed = 0
    for place, (mine, theirs) in enumerate(zip(one.answers, other.answers, strict=False)):
        if mine.said != theirs.said:
            changed = sum(a.said != b.said for a, b in zip(one.answers, other.answers, strict=False))
            if mine.failed or theirs.failed:
                forbidden.append(f"query {place} ends with an error that depends on one unit")
            break
        if one.drawn[: mine.drawn] != other.drawn[: theirs.drawn]:
            forbidden.append(f"query {place} asks for other randomness, though all answers so far are the same")
            break
        if mine.spent != theirs.spent:
            forbidden.append(f"query {place} costs something else, though all answers so far are the same")
            break
    return Replay(teachers, ballots, changed, tuple(forbidden))


def _run(make: Any, data: Data, queries: np.ndarray, seed: int) -> _Seen:
    with entropy_tape(seed) as drawn:
        predictor = make() if callable(make) else clone(make)
        try:
            predictor.fit(*data)
        except Exception as error:  # whatever it is, everybody sees it
            told = _told(error)
            return _Seen({"refusal": told}, np.zeros((0, 0)), [], drawn, len(drawn), failed=told)
        after = len(drawn)
        public = {name: repr(getattr(predictor, name)) for name in _PUBLIC if hasattr(predictor, name)}
        ballots = np.asarray(fitted_ensemble(predictor).fitted.ballots(queries))
        answers: list[_Answer] = []
        failures = set()
        for row in queries:
            failed = False
            try:
                told = predictor.predict(row[np.newaxis])
                said = repr((told.tolist(), getattr(told, "scores", None)))
            except Exception as error:
                said, failed = _told(error), not isinstance(error, NoQuorum)
                failures.add("" if isinstance(error, QuorateError) else said)
            else:
                failures.add("")
            spent = repr(predictor.budget_.spent()) if hasattr(predictor, "budget_") else ""
            answers.append(_Answer(said, len(drawn), spent, failed))
        return _Seen(public, ballots, answers, drawn, after, failed="" if "" in failures else "; ".join(failures))


def _told(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"


def fitted_ensemble(predictor: Any) -> Any:
    """Return the teachers of a fitted predictor: those its session asks."""
    session = getattr(predictor, "session_", None)
    for holder in (session, getattr(session, "answerer", None)):
        ensemble = getattr(holder, "ensemble", None)
        if ensemble is not None:
            return ensemble
    raise InvalidInput(f"a replay looks at predictors with an ensemble, not at {type(predictor).__name__}")
