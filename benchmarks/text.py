"""Language models: a head start from log odds, prompts as teachers, and what a writer's budget pays for.

The models' scores of SST-2, and the texts that they wrote, come from the file that $QUORATE_MODELS names, which
`benchmarks/text_scores.py` and `benchmarks/text_writing.py` write on a machine that has the models. Without it their
figures are absent. What the mechanisms make of scores is drawn here, several times. Plans need no model.
"""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.figures import Figure
from quorate.core.errors import Infeasible
from quorate.core.mechanisms import Dissent
from quorate.models.linear import PrivateLogisticRegression
from quorate.models.text import PrivateWriter, PromptClassifier
from quorate.tables.containers import as_table

DELTA = 1e-6
_EPSILONS = {"epsilon0.147": 0.147, "epsilon1": 1.0}
_PROMPT_EPSILONS = {"epsilon0.147": 0.147, "epsilon0.5": 0.5, "epsilon1": 1.0, "epsilon3": 3.0}
_FITS = 8
_DRAWS = 10
_PUBLIC = 100  # sentences that set the middle of each prompt
_WRITER: dict[str, Any] = {"epsilon": 3.0, "delta": DELTA, "tokens": 60, "batch": 100}


def measure(quick: bool) -> Iterator[Figure]:
    """Yield the figures of language models."""
    scores = None if quick else _read_scores()
    yield from _offset_figures(scores)
    yield from _prompt_figures(scores)
    yield from _plan_figures()
    yield from _writing_figures(scores)


def _read_scores() -> dict[str, Any] | None:
    path = Path(os.environ.get("QUORATE_MODELS", ""))
    if not path.is_file():
        return None
    with np.load(path) as arrays:
        return {name: arrays[name].astype(np.float64) for name in arrays.files}


def _offset_figures(scores: dict[str, Any] | None) -> Iterator[Figure]:
    """Yield accuracies with and without the offset, in percent: means over fits."""
    alone = None if scores is None else 100 * float(np.mean((scores["odds_test"] > 0) == (scores["labels_test"] > 0)))
    yield "text.offset.sst2.zero_shot.accuracy_percent", alone, "%"
    for name, epsilon in _EPSILONS.items():
        headed, plain = (None if scores is None else _accuracy(scores, epsilon, offset) for offset in (True, False))
        about = f"text.offset.sst2.{name}"
        yield f"{about}.embeddings.accuracy_percent", plain, "%"
        yield f"{about}.accuracy_percent", headed, "%"
        gain = None
        if headed is not None and plain is not None and alone is not None:
            gain = headed - max(plain, alone)
        yield f"{about}.points_over_best_alone", gain, "points"


def _accuracy(scores: dict[str, Any], epsilon: float, offset: bool) -> float:
    def rows(part: str) -> Any:
        return np.column_stack([scores[f"embeddings_{part}"], *([scores[f"odds_{part}"]] if offset else [])])

    column = scores["embeddings_test"].shape[1] if offset else None
    truth, found = scores["labels_test"], []
    for _ in range(_FITS):
        model = PrivateLogisticRegression(epsilon=epsilon, delta=DELTA, classes=[0, 1], offset=column)
        model.fit(rows("train"), scores["labels_train"], public=rows("dev"))
        found.append(100 * float(np.mean(model.predict(rows("test")) == truth)))
    return float(np.mean(found))


def _asked_nothing(prompts: Any, words: Any) -> Any:
    raise AssertionError("recorded scores need no model")


class _Recorded:
    """Prompts whose scores were recorded: an electorate, and the zero-shot model."""

    classes = 2

    def __init__(self, scores: dict[str, Any]) -> None:
        prompts = scores["prompts"]
        self._ballots = (prompts[_PUBLIC:] > prompts[:_PUBLIC].mean(axis=0)).astype(np.int64)
        self._zero_shot = (scores["odds_test"] > scores["odds_dev"][:_PUBLIC].mean()).astype(np.int64)
        self.teachers, self.queries = prompts.shape[1], len(self._ballots)
        self.truth = scores["labels_test"][: self.queries].astype(np.int64)

    def votes(self, X: Any) -> Any:
        ones = self._ballots[self._numbers(X)].sum(axis=1)
        return np.stack([self.teachers - ones, ones], axis=1)

    def zero_shot(self, X: Any) -> Any:
        return self._zero_shot[self._numbers(X)]

    def close(self) -> None:
        pass

    def _numbers(self, X: Any) -> list[int]:
        return [int(text) for text in X["text"].to_pylist()]


def _prompt_figures(scores: dict[str, Any] | None) -> Iterator[Figure]:
    """Yield what prompts behind a student add to the zero-shot model: means over runs of 500 sentences."""
    recorded = None if scores is None or "prompts" not in scores else _Recorded(scores)
    texts = [] if recorded is None else [str(number) for number in range(recorded.queries)]
    alone = None
    if recorded is not None:
        alone = 100 * float(np.mean(recorded.zero_shot(as_table({"text": texts})) == recorded.truth))
    yield "text.prompts.sst2.zero_shot.accuracy_percent", alone, "%"
    for name, epsilon in _PROMPT_EPSILONS.items():
        gains = []
        dissents: Any = "auto"
        for _ in range(0 if recorded is None else _DRAWS):
            words = {0: "negative", 1: "positive"}
            classifier = PromptClassifier(_asked_nothing, words, epsilon=epsilon, delta=DELTA, dissents=dissents)
            labels = classifier.open(recorded).predict(texts).labels  # type: ignore[arg-type]
            dissents = classifier.dissent_.no_quorums  # chosen once
            gains.append(100 * float(np.mean(labels == recorded.truth)) - alone)  # type: ignore[union-attr,operator]
        yield f"text.prompts.sst2.{name}.points_over_zero_shot", float(np.mean(gains)) if gains else None, "points"


def _plan_figures() -> Iterator[Figure]:
    """Yield what one budget pays for: tokens drawn among scores, and objections that a Dissent would report."""
    plan = PrivateWriter.plan(records=5000, **_WRITER)
    yield "text.write.planned_texts", plan.texts, "texts"
    yield "text.write.private_tokens_of_a_batch", plan.texts // plan.batches * plan.private_tokens, "tokens"
    objections = 0
    while _reports(objections + 1, plan.batch):
        objections += 1
    yield "text.write.objections_that_dissent_would_pay_for", objections, "objections"


def _reports(objections: int, teachers: int) -> bool:
    """Return whether a Dissent of the whole budget reports so many objections on which all prompts agree."""
    try:
        dissent = Dissent.calibrate(epsilon=_WRITER["epsilon"], delta=DELTA, teachers=teachers, dissents=objections)
    except Infeasible:
        return False
    return dissent.distance() <= teachers // 2


def _writing_figures(scores: dict[str, Any] | None) -> Iterator[Figure]:
    """Yield how good texts are as examples: of a writer at epsilon 3, InvisibleInk at 9 and the public model alone."""
    for name in ("sst2", "ag_news"):
        known = scores is not None and f"written_{name}_labels" in scores
        about = f"text.write.{name}"
        right = {who: _judge(scores, name, who) if known else None for who in ("quorate", "invisible_ink", "public")}
        for who, accuracy in right.items():
            yield f"{about}.{who}.accuracy_percent", accuracy, "%"
        gain = right["quorate"] - right["invisible_ink"] if known else None  # type: ignore[operator]
        yield f"{about}.points_over_invisible_ink", gain, "points"
        free, speed = scores[f"written_{name}_shares"].tolist() if known and scores is not None else (None, None)
        yield f"{about}.free_share", free, ""
        yield f"{about}.speed_over_bare_model", speed, ""


def _judge(scores: Any, name: str, who: str) -> float:
    """Return how often a logistic regression on embeddings of written texts names the class of a real one."""
    from sklearn.linear_model import LogisticRegression

    model = LogisticRegression(C=10.0, max_iter=1000)
    model.fit(scores[f"written_{name}_{who}"], scores[f"written_{name}_labels"])
    return 100 * float(model.score(scores[f"written_{name}_judges"], scores[f"written_{name}_truth"]))
