"""The outputs of a model: how its answers become tensors.

A classifier:

    label     the class: BYTES, INT64, FP64 or BOOL, as the classes are
    index     INT64: the number of the class among the sorted classes, -1 for no quorum, -2 for refused
    outcome   BYTES: answered, no_quorum or refused (the budget ended before this query, or its phase is closed)
    scores    FP64 [-1, classes]: the noisy share of each class, zeros for refused; or published probabilities
    set       BYTES: the labels in the prediction set, as a JSON list

A model of several labels at once:

    labels    INT64 [-1, labels]: 1 for each label that is likelier than not, 0 for the others
    scores    FP64 [-1, labels]: the probability of each label

A regressor:

    value       FP64
    low, high   FP64: the ends of an interval around it; the smallest or largest number there is where it has none

A release:

    answer, error   FP64: the share of the private records, and one standard deviation; -1 where it is not known
    low, high       FP64: a 95% interval, of a published release
    note            BYTES: what a reader must know of a number of a group, which may be negative; its outcome is
                    no_quorum where the noise leaves no answer, and its ends are as those of a regressor
    outcome         as above, of an online release

Where a query was not answered, `label` is an empty text, or a number that is no class (`metadata` says which), or
false; read `outcome` first. Responses are not padded: the length of a response can tell an eavesdropper one class from
another where the connection is not encrypted.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from quorate.models.predictors.labels import class_codes
from quorate.release.queries.base import NOTHING
from quorate.service._codec import ResponseTensor, TensorInfo, Values, join_names
from quorate.service._errors import Refused

Numbers = NDArray[np.int64]
Flags = NDArray[np.bool_]

OUTPUT_NAMES = (
    "label",
    "index",
    "outcome",
    "scores",
    "set",
    "labels",
    "value",
    "low",
    "high",
    "answer",
    "error",
    "note",
)

_OUTCOMES = ("refused", "no_quorum", "answered")
_LABEL_TYPES = {
    "i": ("INT64", np.int64),
    "u": ("INT64", np.int64),
    "f": ("FP64", np.float64),
    "b": ("BOOL", np.bool_),
}


class Outputs:
    """The answers of a model as tensors.

    Parameters
    ----------
    classes
        The classes of a classifier. Its outputs are label, index and outcome. Without classes only `extra` is sent.
    extra
        The tensors of this kind of model beyond these.
    read
        Takes the numbers that a session answered, which queries were refused, and what a published model says beside;
        returns the values of the tensors in `extra`, and under "index" the class numbers where the session has others.
    labels
        The labels of a model of several labels at once.
    """

    def __init__(
        self,
        classes: NDArray[Any] | None,
        extra: Sequence[TensorInfo] = (),
        read: Callable[[Numbers, Flags, Any], Mapping[str, Values]] = lambda numbers, refused, details: {},
        labels: NDArray[Any] | None = None,
    ) -> None:
        self.classes = np.zeros(0) if classes is None else classes
        self.labels, self._read = labels, read
        datatype, array_type = _LABEL_TYPES.get(self.classes.dtype.kind, ("BYTES", None))
        self.unanswered: Any = ""
        self._label_values: Values  # of each class, and last of no answer
        if array_type is None:
            self._label_values = [*(str(label) for label in self.classes.tolist()), ""]
        else:
            numbers: NDArray[Any] = self.classes.astype(array_type)
            self.unanswered = False if datatype == "BOOL" else _number_of_no_class(numbers)
            self._label_values = np.array([*self.classes.tolist(), self.unanswered], dtype=array_type)
        label = (
            []
            if classes is None or labels is not None
            else [("label", datatype), ("index", "INT64"), ("outcome", "BYTES")]
        )
        self.tensors = [*(TensorInfo(name, datatype, [-1]) for name, datatype in label), *extra]
        self.names = [tensor.name for tensor in self.tensors]
        self._datatypes = {tensor.name: tensor.datatype for tensor in self.tensors}

    def choose(self, requested: Sequence[tuple[str, bool]] | None, *, binary: bool) -> Sequence[tuple[str, bool]]:
        """Return the outputs to send, all of them where none is requested. An unknown one is refused."""
        if requested is None:
            return [(name, binary) for name in self.names]
        if any(name not in self.names for name, _ in requested):
            raise Refused("bad_request", f"outputs must be among {join_names(self.names)}")
        return requested

    def write(
        self, numbers: Numbers, refused: Flags, outputs: Sequence[tuple[str, bool]], details: Any = None
    ) -> list[ResponseTensor]:
        """Return these outputs, in this order; `details` holds further results of the model."""
        values = dict(self._read(numbers, refused, details))
        values["index"] = index = np.where(refused, -2, values.get("index", numbers))
        if "outcome" in self.names:
            values["outcome"] = [_OUTCOMES[min(number, 0) + 2] for number in index.tolist()]
        if "label" in self.names:
            values["label"] = self._labels(np.maximum(index, -1))
        return [ResponseTensor(name, self._datatypes[name], values[name], binary) for name, binary in outputs]

    def _labels(self, codes: Numbers) -> Values:
        if isinstance(self._label_values, list):
            return [self._label_values[code] for code in codes.tolist()]
        values: NDArray[Any] = self._label_values[codes]
        return values


def _number_of_no_class(classes: NDArray[Any]) -> Any:
    """Return -1, or a number below all classes where -1 is one."""
    return -1 if -1 not in classes else classes.min().item() - 1


class Answers(NamedTuple):
    """How one kind of answer is served: the tensors of `Outputs` and their values, and how a published model answers.

    A published model gives, for checked queries, `details` and `codes`: numbers of classes or of queries.
    """

    tensors: Callable[[Any], Sequence[TensorInfo]] = lambda model: ()
    read: Callable[[Any, Numbers, Flags, Any], Mapping[str, Values]] = lambda model, numbers, refused, details: {}
    details: Callable[[Any, Any], Any] = lambda model, X: None
    codes: Callable[[Any, Any, Any], Numbers] = lambda model, X, details: np.zeros(len(X), dtype=np.int64)
    classifies: bool = False


def _columns(*names: str) -> Callable[[Any], Sequence[TensorInfo]]:
    return lambda model: [TensorInfo(name, "BYTES" if name in ("note", "outcome") else "FP64", [-1]) for name in names]


def _scores(model: Any) -> Sequence[TensorInfo]:
    return [TensorInfo("scores", "FP64", [-1, len(model.classes_)])]


def _several_labels(model: Any) -> Sequence[TensorInfo]:
    shape = [-1, len(model.labels_)]
    return [TensorInfo("labels", "INT64", shape), TensorInfo("scores", "FP64", shape)]


def _read_vote_shares(model: Any, numbers: Numbers, refused: Flags, details: Any) -> Mapping[str, Values]:
    scoring = model.scoring()
    shares = np.where(refused[:, np.newaxis], 0.0, scoring.probabilities(numbers))
    return {"index": scoring.labels(numbers), "scores": shares}


def _read_intervals(model: Any, numbers: Numbers, refused: Flags, details: Any) -> Mapping[str, Values]:
    return dict(zip(("value", "low", "high"), np.ascontiguousarray(np.transpose(details)), strict=True))


def _read_bars(release: Any, numbers: Numbers, refused: Flags, details: Any) -> Mapping[str, Values]:
    bars = release.bars(numbers + NOTHING)
    return {name: np.where(np.isnan(bars[name]), -1.0, bars[name]) for name in ("answer", "error", "low", "high")}


def _read_groups(release: Any, numbers: Numbers, refused: Flags, answers: Any) -> Mapping[str, Values]:
    bars = {name: answers[name].to_numpy(zero_copy_only=False) for name in ("answer", "low", "high")}
    largest = np.finfo(np.float64).max
    ends = {"answer": 0.0, "low": -largest, "high": largest}
    return {name: np.nan_to_num(bars[name], nan=end) for name, end in ends.items()} | {
        "note": answers["note"].to_pylist()
    }


def _read_online(release: Any, numbers: Numbers, refused: Flags, details: Any) -> Mapping[str, Values]:
    shares, errors = release.read(np.maximum(numbers, 0))
    return {"answer": np.where(refused, -1.0, shares), "error": np.where(refused, -1.0, errors)}


def _label_codes(model: Any, X: Any, details: Any) -> Numbers:
    return class_codes(model.classes_, model.predict(X))


def _likeliest_codes(model: Any, X: Any, shares: Any) -> Numbers:
    """Return the numbers of the labels; a model that predicts the likeliest class is not asked again."""
    if getattr(model, "predicts_likeliest", False):
        return np.asarray(shares.argmax(axis=1), dtype=np.int64)
    return _label_codes(model, X, shares)


ANSWERS = {  # By the kind of outputs in the model's contract.
    "labels": Answers(codes=_label_codes, classifies=True),
    "probabilities": Answers(
        _scores,
        lambda model, numbers, refused, details: {"scores": details},
        lambda model, X: model.predict_proba(X),
        _likeliest_codes,
        classifies=True,
    ),
    "vote shares": Answers(_scores, _read_vote_shares, classifies=True),
    "label sets": Answers(
        lambda model: [TensorInfo("set", "BYTES", [-1])],
        lambda model, numbers, refused, sets: {"set": [json.dumps(model.classes_[row].tolist()) for row in sets]},
        lambda model, X: model.predict_set(X),
        _label_codes,
        classifies=True,
    ),
    "several labels": Answers(
        _several_labels,
        lambda model, numbers, refused, scores: {"labels": (scores > 0.5).astype(np.int64), "scores": scores},
        details=lambda model, X: model.predict_proba(X),
    ),
    "values": Answers(
        _columns("value"),
        lambda model, numbers, refused, details: {"value": details},
        details=lambda model, X: model.predict(X),
    ),
    "noisy values": Answers(_columns("value"), lambda model, numbers, refused, details: {"value": model.read(numbers)}),
    "intervals": Answers(
        _columns("value", "low", "high"),
        _read_intervals,
        details=lambda model, X: np.nan_to_num(np.column_stack([model.predict(X), model.predict_interval(X)])),
    ),
    "released shares": Answers(
        _columns("answer", "error", "low", "high"), _read_bars, codes=lambda release, X, details: X[:, 0]
    ),
    "released numbers": Answers(
        _columns("answer", "low", "high", "note", "outcome"),
        _read_groups,
        details=lambda release, queries: release.ask(queries),
        codes=lambda release, queries, answers: -answers["answer"].is_null().to_numpy().astype(np.int64),
    ),
    "online shares": Answers(_columns("answer", "error", "outcome"), _read_online),
}


def outputs_of(model: Any) -> Outputs:
    """Return the outputs of a fitted model."""
    answers = ANSWERS[model.outputs]
    extra, read = answers.tensors(model), partial(answers.read, model)
    if model.outputs == "several labels":
        return Outputs(np.array([0, 1]), extra, read, model.labels_)
    return Outputs(model.classes_ if answers.classifies else None, extra, read)
