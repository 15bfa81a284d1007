"""Published models as ONNX: they run on any ONNX runtime, without Quorate or Python.

    linear models     with their columns: one matrix `X`, or an input for each column of a data frame
    hypotheses        thresholds, stumps, intervals, boxes, halfspaces, conjunctions
    students          trees and forests, and what skl2onnx converts so that the labels stay the same

Outputs are `label` and, if the model has them, `probabilities`, a column for each class; a regression has `value`. The
file states the claim of the model. Unlike the model, the file answers rows that the model refuses (a missing value, if
it takes none).
"""

import json
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import numpy as np
from sklearn.linear_model import RidgeClassifier
from sklearn.svm import LinearSVC
from sklearn.utils.validation import check_is_fitted

import quorate
from quorate.core.errors import InvalidInput
from quorate.models.export._onnx_graph import OPSETS, TREES, Graph, add_columns, add_rule, add_trees, import_onnx
from quorate.models.linear import PrivateLinearRegression, PrivateLogisticRegression
from quorate.models.linear.model import LinearModel
from quorate.models.selection import PrivateSearchCV
from quorate.models.students import StudentClassifier
from quorate.models.students.cover import CoverClassifier

_PROBES = 256  # rows on which a converted student must say what the student says
_LINEAR = (RidgeClassifier, LinearSVC)  # linear, without probabilities: skl2onnx writes them in 32 bits alone
_KINDS = {"U": "STRING", "i": "INT64", "u": "INT64", "b": "BOOL", "f": "DOUBLE"}  # of labels


def to_onnx(model: Any, *, facts: Mapping[str, str] = MappingProxyType({})) -> bytes:
    """Return a published model as the bytes of an ONNX file.

    A model that answers from private records is refused. `facts` are added to its metadata, next to the claim and the
    classes.

    >>> import quorate as qr
    >>> X = np.random.default_rng(0).normal(size=(4000, 2))
    >>> y = np.where(X[:, 0] > 0, "yes", "no")
    >>> rule = qr.SemiPrivateClassifier(epsilon=4.0, classes=["no", "yes"]).fit(X, y, public=X[:100])
    >>> content = to_onnx(rule)  # doctest: +SKIP
    >>> import onnxruntime  # doctest: +SKIP
    >>> labels, = onnxruntime.InferenceSession(content).run(None, {"X": X[:5]})  # doctest: +SKIP
    >>> labels.tolist() == rule.predict(X[:5]).tolist()  # doctest: +SKIP
    True
    """
    if isinstance(model, PrivateSearchCV):
        check_is_fitted(model, "best_estimator_")
        return to_onnx(model.best_estimator_, facts=facts)
    for kind, fitted, write in _WRITERS:
        if isinstance(model, kind):
            check_is_fitted(model, fitted)
            file = write(model)
            for name, text in facts.items():
                file.metadata_props.add(key=name, value=text)
            import_onnx().checker.check_model(file, full_check=True)
            return bytes(file.SerializeToString())
    raise InvalidInput(
        f"a {type(model).__name__} cannot be exported: published linear models, students and hypotheses can. A model "
        "that answers from private records must stay with its budget"
    )


def _facts(model: Any, classes: Any = None) -> dict[str, str]:
    facts = {"claim": str(model.claim_), "kind": type(model).__name__, "quorate": quorate.__version__}
    classes = getattr(model, "classes_", None) if classes is None else classes
    return facts if classes is None else facts | {"classes": json.dumps(np.asarray(classes).tolist())}


def _write_linear(model: Any) -> Any:
    graph = Graph()
    columns = add_columns(graph, model)
    predictor = graph.numbers("Add", graph.numbers("MatMul", columns, model.coef_.T), model.intercept_)
    if isinstance(model, PrivateLogisticRegression):
        _output_probabilities(graph, predictor, model)
    elif isinstance(model, PrivateLinearRegression):
        low, high = (graph.constant(np.float64(bound)) for bound in model.bounds)
        graph.output("value", graph.node("Clip", predictor, low, high), "DOUBLE", [None])
    else:
        low, high = graph.constant(np.float64(0.0)), graph.constant(np.float64(model.largest))
        graph.output("value", graph.node("Clip", graph.node("Exp", predictor), low, high), "DOUBLE", [None])
    return graph.model(_facts(model))


def _output_probabilities(graph: Graph, predictor: str, model: Any) -> None:
    """Give out labels and probabilities, as `predict` and `predict_proba` compute them."""
    width = model.coef_.shape[0]
    several = width > 1 and not model.multilabel_
    shares = graph.node("Softmax", predictor, axis=1) if several else graph.node("Sigmoid", predictor)
    if model.multilabel_:
        graph.output("label", graph.cast(graph.numbers("Greater", shares, 0.5), "INT64"), "INT64", [None, width])
        graph.output("probabilities", shares, "DOUBLE", [None, width])
        return
    if width == 1:
        shares = graph.node("Concat", graph.node("Sub", graph.constant(np.ones(1)), shares), shares, axis=1)
    _output_shares(graph, shares, model.classes_)


def _output_shares(graph: Graph, shares: str, classes: Any) -> None:
    """Give out the likeliest class, the first of equals, and the shares of all."""
    _output_label(graph, graph.node("ArgMax", shares, axis=1, keepdims=0), classes)
    graph.output("probabilities", shares, "DOUBLE", [None, len(classes)])


def _output_label(graph: Graph, numbers: str, classes: Any) -> None:
    kind = _KINDS.get(classes.dtype.kind)
    if kind is None:
        raise InvalidInput(f"labels of the type {classes.dtype} cannot be exported: texts and numbers can")
    plain = classes.astype(np.int64 if kind == "INT64" else np.float64 if kind == "DOUBLE" else classes.dtype)
    graph.output("label", graph.node("Gather", graph.constant(plain), numbers), kind, [None])


def _write_rule(model: Any) -> Any:
    graph = Graph()
    rows = graph.input("X", "DOUBLE", model.n_features_in_)
    _output_label(graph, add_rule(graph, rows, model.hypothesis_), model.classes_)
    return graph.model(_facts(model))


def _write_student(model: Any) -> Any:
    student = model.student_
    if model.form_ is None and isinstance(student, (*TREES, *_LINEAR)):
        graph = Graph()
        rows = graph.input("X", "DOUBLE", model.n_features_in_)
        if isinstance(student, TREES):
            _output_shares(graph, add_trees(graph, rows, student), student.classes_)
        else:
            _output_label(graph, _linear_labels(graph, rows, student), student.classes_)
        return graph.model(_facts(model, student.classes_))
    file = _convert_student(model)
    file = import_onnx("onnx.compose").add_prefix(file, "s_", rename_inputs=False, rename_outputs=False)
    _rename_outputs(file.graph, {"output_label": "label", "output_probability": "probabilities"})
    import_onnx().helper.set_model_props(file, _facts(model, student.classes_))
    _check_labels(file, model)
    return file


def _linear_labels(graph: Graph, rows: str, student: Any) -> str:
    along = graph.numbers("Add", graph.numbers("MatMul", rows, student.coef_.T), student.intercept_)
    if len(student.classes_) > 2:
        return graph.node("ArgMax", along, axis=1, keepdims=0)
    labels = graph.cast(graph.numbers("Greater", along, 0.0), "INT64")
    return graph.node("Reshape", labels, graph.constant(np.array([-1])))


def _convert_student(model: Any) -> Any:
    student, convert = model.student_, import_onnx("skl2onnx")
    types = import_onnx("skl2onnx.common.data_types")
    if model.form_ is None:
        inputs = [("X", types.DoubleTensorType([None, model.n_features_in_]))]
    else:
        kinds = {"number": types.DoubleTensorType, "other": types.StringTensorType}
        pairs = zip(model.form_.columns, model.form_.kinds, strict=True)
        inputs = [(str(name), kinds[kind]([None, 1])) for name, kind in pairs]
    last = student.steps[-1][1] if hasattr(student, "steps") else student
    options = {id(student): {"zipmap": False}} if hasattr(last, "predict_proba") else None
    try:
        return convert.to_onnx(student, initial_types=inputs, target_opset=OPSETS, options=options)
    except Exception as error:  # of a converter that somebody else wrote
        reason = f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"
        raise InvalidInput(
            f"a student of type {type(student).__name__} cannot be converted to ONNX ({reason})"
        ) from None


def _rename_outputs(graph: Any, names: Mapping[str, str]) -> None:
    """Give the outputs of a converted model the names that all our files have."""
    for output in graph.output:
        output.name = names.get(output.name, output.name)
    for node in graph.node:
        for values in (node.output, node.input):
            values[:] = [names.get(name, name) for name in values]


def _check_labels(file: Any, model: Any) -> None:
    """Refuse a converted student that no runtime takes, or that says other labels than the student on made-up rows."""
    runtime, name = import_onnx("onnxruntime"), type(model.student_).__name__
    try:
        session = runtime.InferenceSession(file.SerializeToString())
        if model.form_ is not None:  # made-up texts would be of no category
            return
        rows = np.random.default_rng(0).normal(size=(_PROBES, model.n_features_in_))
        labels = np.asarray(session.run(["label"], {"X": rows})[0]).ravel()
    except Exception as error:  # of the runtime
        reason = str(error).partition("\n")[0]
        raise InvalidInput(f"a student of type {name}, converted to ONNX, cannot be run ({reason})") from None
    if not np.array_equal(labels.astype(model.classes_.dtype), model.predict(rows)):
        raise InvalidInput(f"a student of type {name}, converted to ONNX, says other labels: it is not exported")


_WRITERS: list[tuple[Any, str, Callable[[Any], Any]]] = [
    (LinearModel, "coef_", _write_linear),
    (CoverClassifier, "hypothesis_", _write_rule),
    (StudentClassifier, "student_", _write_student),
]
