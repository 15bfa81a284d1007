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

from quorate.auditing._plays import PlayNoise
from quorate.core.errors import InvalidInput, NoQuorum, QuorateError
from quorate.core.mechanisms import base

_PUBLIC = ("classes_", "teachers_", "claim_", "mechanism_", "n_features_in_", "plan_", "terms_", "phase_", "progress_")
_LAWS = ("laplace", "gaussian", "words", "choice")
_alone = threading.Lock()
_aside: list[None] = []  # one entry for each `off_the_tape` that lasts
_system_noise: Any = vars(base)["system_noise"]  # the one object that all mechanisms draw from

Data = tuple[Any, Any]
Draw = tuple[str, int]


@contextmanager
def entropy_tape(seed: int, *, before_draw: Callable[[], None] = lambda: None) -> Iterator[list[Draw]]:
    """Take the system's randomness and all noise of this process from a seed, and yield the list of all draws.

    `before_draw` is called before each draw of noise. Only for audits: meanwhile, no answer of this process is private.
    """
    noise, draws = PlayNoise(seed), list[Draw]()
    generator = np.random.default_rng([seed, 1])
    true_urandom, standard = os.urandom, vars(random)

    def urandom(size: int) -> bytes:
        if _aside:
            return true_urandom(size)
        draws.append(("urandom", size))
        return generator.bytes(size)

    def taped(law: str) -> Callable[..., Any]:
        def draw(*arguments: Any) -> Any:
            before_draw()
            draws.append((law, int(arguments[-1]) if law != "choice" else len(arguments[0])))
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
        yield draws
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
    text: str
    draws: int  # so far
    spent: str  # so far
    failed: bool  # an error, and no answer that is paid for


@dataclass
class _Run:
    """One run: what everybody sees, what the owner sees, and the draws made by the time of each."""

    public: dict[str, str]
    ballots: np.ndarray
    answers: list[_Answer]
    draws: list[Draw]
    draws_of_fit: int
    failure: str = ""  # why there is nothing to compare, where that is so


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
    run, other = (_run(make, data, np.asarray(queries), seed) for data in (first, second))
    if run.failure and run.failure == other.failure:
        raise InvalidInput(f"nothing was replayed, since this comes of both data sets: {run.failure}")
    forbidden = [
        f"{name} is {run.public.get(name)} on one data set and {other.public.get(name)} on the other"
        for name in sorted({*run.public, *other.public})
        if run.public.get(name) != other.public.get(name)
    ]
    teachers, ballots = 0, 0
    if run.ballots.shape != other.ballots.shape:
        forbidden.append("the number of teachers or of queries they vote on differs")
    else:
        differ = run.ballots != other.ballots
        teachers, ballots = int(differ.any(axis=0).sum()), int(differ.sum())
        if teachers > 1:
            forbidden.append(f"the ballots of {teachers} teachers differ, and of one they may")
    if run.draws[: run.draws_of_fit] != other.draws[: other.draws_of_fit]:
        forbidden.append("fitting asks for other randomness")
    forbidden += _compare_answers(run, other)
    changed = sum(mine.text != theirs.text for mine, theirs in zip(run.answers, other.answers, strict=False))
    return Replay(teachers, ballots, changed, tuple(forbidden))


def _compare_answers(run: _Run, other: _Run) -> list[str]:
    """Return the forbidden difference at the first query where the runs differ, if there is one."""
    for query, (mine, theirs) in enumerate(zip(run.answers, other.answers, strict=False)):
        if mine.text != theirs.text:
            failed = mine.failed or theirs.failed
            return [f"query {query} ends with an error that depends on one unit"] if failed else []
        if run.draws[: mine.draws] != other.draws[: theirs.draws]:
            return [f"query {query} asks for other randomness, though all answers so far are the same"]
        if mine.spent != theirs.spent:
            return [f"query {query} costs something else, though all answers so far are the same"]
    return []


def _run(make: Any, data: Data, queries: np.ndarray, seed: int) -> _Run:
    with entropy_tape(seed) as draws:
        predictor = make() if callable(make) else clone(make)
        try:
            predictor.fit(*data)
        except Exception as error:  # whatever it is, everybody sees it
            refusal = _describe_error(error)
            return _Run({"refusal": refusal}, np.zeros((0, 0)), [], draws, len(draws), failure=refusal)
        draws_of_fit = len(draws)
        public = {name: repr(getattr(predictor, name)) for name in _PUBLIC if hasattr(predictor, name)}
        ballots = np.asarray(fitted_ensemble(predictor).electorate.ballots(queries))
        answers: list[_Answer] = []
        failures = set()
        for row in queries:
            failed = False
            try:
                answer = predictor.predict(row[np.newaxis])
                text = repr((answer.tolist(), getattr(answer, "scores", None)))
            except Exception as error:
                text, failed = _describe_error(error), not isinstance(error, NoQuorum)
                failures.add("" if isinstance(error, QuorateError) else text)
            else:
                failures.add("")
            spent = repr(predictor.budget_.spent()) if hasattr(predictor, "budget_") else ""
            answers.append(_Answer(text, len(draws), spent, failed))
        failure = "" if "" in failures else "; ".join(failures)
        return _Run(public, ballots, answers, draws, draws_of_fit, failure=failure)


def _describe_error(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"


def fitted_ensemble(predictor: Any) -> Any:
    """Return the teachers of a fitted predictor: those its session asks."""
    session = getattr(predictor, "session_", None)
    for holder in (session, getattr(session, "answerer", None)):
        ensemble = getattr(holder, "ensemble", None)
        if ensemble is not None:
            return ensemble
    raise InvalidInput(f"a replay looks at predictors with an ensemble, not at {type(predictor).__name__}")
