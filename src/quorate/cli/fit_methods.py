"""The methods of `quorate fit`: which estimator each fits, and which options are not its constructor's parameters.

Type, default and help of all other options are read from the signature and the docstring of the estimator.
"""

import inspect
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any, Literal

from cyclopts import Group

from quorate.cli.options import AggregatorName, ConceptName, Device, LearnerName, Trusted, option, options_from

_NOT_OPTIONS = (  # of the estimators: objects, what tables give, and what takes more than a line to explain
    "account backend ballots beta cells classes columns concept cutoff_epsilon estimator kappa labelled "
    "model offset on_no_quorum param_grid rate student tried"
)
_GROUP = Group("Model", sort_key=3)
_EXTRA: dict[str, tuple[Any, Any, str]] = {  # type, default, help
    "account": (
        Path | None,
        None,
        "The folder of an account, made by `quorate ledger account`: a total that this model draws on, with others "
        "about the same people.",
    ),
    "cluster": (
        str | None,
        None,
        "Where the files are read and the model is fitted: a Dask scheduler (tcp://host:8786), a Ray cluster "
        "(ray://host:10001), ray for one that runs on this machine, or local for Dask workers that are started "
        "here. Tables may be addresses of Parquet files (s3://bucket/visits). No row reaches this process.",
    ),
    "concept": (ConceptName, "stumps", "The class of hypotheses."),
    "cross": (str, "", "Pairs of columns that interact, such as age:sex,age:ward."),
    "cuts": (int | None, None, "The number of parts into which the values of a number are cut; 1 for straight lines."),
    "learner": (LearnerName | None, None, "The learner of each teacher. Those up to tree are fitted all at once."),
    "memory": (
        str | None,
        None,
        "About how much memory to use apart from the program and the teachers, such as 2GB. Rows wait on disk until "
        "they are fitted. 1GB for several files, a folder or a pattern; a single file is read whole without it.",
    ),
    "model": (Path, inspect.Parameter.empty, "The folder of a published classifier or regression."),
    "spill": (Path | None, None, "The folder where rows wait for --memory; by default the system's temporary folder."),
    "student": (Path, inspect.Parameter.empty, "The folder of a published student or hypothesis."),
    "trusted": (Trusted, (), ""),
    "waves": (int | Literal["auto"], 0, "The number of random Fourier features of all numbers together."),
}
_TYPES: dict[str, Any] = {  # of parameters that are plain texts in Python
    "aggregator": Literal[AggregatorName, "auto"],
    "device": Device,
    "scoring": Literal["accuracy", "balanced_accuracy", "neg_brier_score", "roc_auc"],
}
_HELPS = {
    "aggregator": "How ballots become answers. auto takes the one that is expected to answer most queries correctly, "
    "chosen without reading the records.",
}


@dataclass(frozen=True)
class Method:
    """A subcommand of `quorate fit`: an estimator, or several estimators among which the options choose."""

    help: str
    estimators: tuple[str, ...]
    extra: str = ""  # options that are not parameters of the estimator
    skip: str = ""  # parameters that are not options
    defaults: Mapping[str, Any] = field(default_factory=dict)  # where they differ from the estimator's
    types: Mapping[str, Any] = field(default_factory=dict)  # where they differ from the estimator's
    helps: Mapping[str, str] = field(default_factory=dict)  # where the estimator's speak of Python
    title: str = "A private model"  # of the report
    proofs: str | None = None

    def classes(self) -> list[Any]:
        """Return the estimators, imported."""
        paths = (path.split(":") for path in self.estimators)
        return [getattr(import_module(f"quorate.{module}"), name) for module, name in paths]

    def options(self) -> list[inspect.Parameter]:
        """Return the options: the extra ones, then the parameters of the estimators."""
        extra = self.extra.split()
        types, helps = _TYPES | dict(self.types), _HELPS | dict(self.helps)
        parts = ((name, *_EXTRA[name]) for name in extra)
        return [
            option(name, types.get(name, kind), self.defaults.get(name, default), helps.get(name, text), group=_GROUP)
            for name, kind, default, text in parts
        ] + list(
            options_from(
                self.classes(),
                skip=f"{_NOT_OPTIONS} {self.skip} {self.extra}",
                group=_GROUP,
                defaults=self.defaults,
                types=types,
                helps=helps,
            )
        )


def _concept(name: str, example: str, help: str, **settings: Any) -> Method:
    """Return a method that fits a class of hypotheses."""
    text = f"{help}\n\nExample: `quorate fit {name} visits.csv --label outcome --classes ill,well{example} --out model`"
    where = "students" if name == "semi-private" else "predictors"
    class_name = "".join(part.capitalize() for part in name.split("-")) + "Classifier"
    settings = {"extra": "concept", "title": "Private answers", "proofs": "concepts"} | settings
    return Method(text, (f"models.{where}:{class_name}",), **settings)


METHODS = {
    "linear": Method(
        """\
Fit a publishable logistic regression with probabilities, or a regression of numbers (--bounds, --largest).

A public table (--public) or a schema (--schema) says what the columns hold; neither needs labels. Without both, the
model learns that from the records, within the same epsilon. The report plots what each column adds, with error bars.
Several labels, separated by commas, are columns of 0 and 1, or of two --classes.

Example: `quorate fit linear visits.csv --label outcome --public survey.csv --groups patient --out model`

A table larger than memory: `quorate fit linear visits/*.parquet --memory 1GB --schema schema.json --out model`

On a cluster: `quorate fit linear visits/*.parquet --cluster tcp://head:8786 --schema schema.json --out model`
""",
        tuple(f"models.linear:Private{family}Regression" for family in ("Logistic", "Linear", "Poisson")),
        extra="account cuts cross waves memory spill cluster",
        helps={
            "bounds": "The label is a number between these two, such as 0,250. Declare them; do not read them from the "
            "records.",
            "largest": "The label is a count, at most this large.",
        },
        title="A linear model",
        proofs="linear",
    ),
    "subsample": Method(
        """\
Fit teachers on disjoint parts of the records, for `quorate predict` and `quorate serve`.

The folder contains the model and its budget.

Example: `quorate fit subsample visits.csv --label outcome --public survey.csv --groups patient --out model`

A table larger than memory: `quorate fit subsample visits/*.parquet --memory 2GB --schema schema.json --out model`

On a cluster: `quorate fit subsample visits/*.parquet --cluster tcp://head:8786 --schema schema.json --out model`
""",
        ("models.predictors:PrivateClassifier",),
        extra="learner account memory spill cluster",
        types={"learner": Literal[LearnerName, "auto"] | None},
        helps={
            "class_weight": "Weights of the classes for the learner: balanced, none, or numbers such as no=1,yes=8. "
            "auto balances with --scores if the learner takes weights.",
            "prior": "The shares of the classes, such as no=0.9,yes=0.1, or holdout for an estimate. Read from the "
            "public table if it has labels.",
        },
    ),
    "search": Method(
        """\
Try linear models with more or fewer cuts of numbers, and keep the best, which may be published.

One budget pays for all trials; a public table (--public) or a schema (--schema) is needed.

Example: `quorate fit search visits.csv --label outcome --public survey.csv --cuts 1,4,8 --out model`
""",
        ("models.selection:PrivateSearchCV",),
        extra="cuts",
        skip="largest_error",
        types={"cuts": str},
        defaults={"cuts": "1,2,4,8", "scoring": "accuracy"},
        helps={
            "cuts": "The numbers of parts to try for cutting numbers, separated by commas.",
            "scoring": "The score that selects the model; roc_auc is the noisiest.",
        },
        title="A linear model",
        proofs="linear",
    ),
    "everlasting": Method(
        """\
Fit teachers that answer without end: queries train the teachers of later queries.

The folder contains the model and its budget. Records and queries are both protected. The chunk size and the number of
no-quorums are planned on the public table if it has labels, or on simulated points of a class of hypotheses.

Example: `quorate fit everlasting visits.csv --concept thresholds --label y --classes 0,1 --out model`
""",
        ("models.everlasting:EverlastingClassifier",),
        extra="learner concept",
        skip="growth max_phase_size refresh",
        types={
            "learner": Literal[LearnerName, "direction"] | None,
            "concept": ConceptName | None,
            "chunk": int | Literal["auto"],
        },
        defaults={"learner": "logistic", "concept": None, "chunk": "auto"},
    ),
    "neighbours": Method(
        """\
Answer from the records near a query. Each unit pays for its own votes; `quorate neighbours` inserts and forgets.

The folder contains the model, the private records and the budget. Radius and noise are chosen on the public table
(--public).

Example: `quorate fit neighbours visits.csv --label outcome --public survey.csv --records 5000 --out model`
""",
        ("models.knn:NeighbourClassifier", "models.knn:NeighbourRegressor"),
        defaults={"metric": "euclidean"},  # of a table; "cosine" is for embeddings
        helps={"bounds": "The label is a number between these two, such as 0,250: answers are means nearby."},
    ),
    "student-first": Method(
        """\
Fit teachers that correct a published student; only their disagreement with it costs budget.

The folder contains the model and its budget. The student's schema encodes the table, unless another is given.

Example: `quorate fit student-first visits.csv --student rule --label outcome --out model`
""",
        ("models.predictors:StudentFirstClassifier",),
        extra="student learner account trusted",
        defaults={"learner": "logistic"},
    ),
    "conformal": Method(
        """\
Turn the answers of a published model into prediction sets or intervals with guaranteed coverage.

The table contains records that the model has not seen. The folder may be published. A regression takes
--largest-error.

Example: `quorate fit conformal visits.csv --model rule --label outcome --miscoverage 0.1 --epsilon 0.5 --out sets`
""",
        ("models.conformal:ConformalClassifier", "models.conformal:ConformalRegressor"),
        extra="model account trusted",
    ),
    "semi-private": _concept(
        "semi-private",
        " --public survey.csv",
        "Choose one publishable hypothesis among those that the public table (--public) tells apart.",
        skip="delta mode",
        title="A private hypothesis",
    ),
    "agnostic": _concept(
        "agnostic",
        " --queries 200",
        "Fit teachers on a class of hypotheses, even if none fits the labels perfectly.",
        skip="alpha",
    ),
    "universal": _concept(
        "universal",
        "",
        "Answer any number of queries on one budget: ballots first, then one hypothesis.",
    ),
    "pure": _concept(
        "pure",
        " --queries 20",
        "Answer a few queries with delta 0.",
        skip="alpha subset",
        defaults={"queries": 100},
    ),
    "stable": _concept(
        "stable", "", "Answer with uniformly stable predictions: one unit hardly changes them.", skip="subset"
    ),
}
