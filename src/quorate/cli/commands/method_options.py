"""The options of a method of `quorate fit` of its own: who votes, which hypotheses there are, what is tried."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Group, Parameter

from quorate.cli.options import ConceptName, Device, LearnerName

__all__ = [
    "AskedHypotheses",
    "Candidates",
    "Columns",
    "Hypotheses",
    "Neighbours",
    "Phases",
    "PlannedHypotheses",
    "Sets",
    "StudentFirst",
    "Target",
    "Teachers",
    "Trials",
]


@Parameter(name="*", group=Group("Neighbours", sort_key=3))
@dataclass(frozen=True, kw_only=True)
class Neighbours:
    """Who votes on a query, and with which weight.

    Parameters
    ----------
    records
        About how many records (or people) there will be: a public number. Needed for a choice of share and votes.
    queries
        How many queries are planned for. More can be asked: accuracy suffers then, not privacy.
    radius
        How near a record must be to vote, the same for all queries; by the share of the public table unless given.
    share
        A query reaches as far as this share of the public table; chosen on it unless given.
    votes
        How many votes of full weight a unit may cast in its life; chosen on the public table unless given.
    kernel
        Whether weights fall with the squared distance, or are all alike within the radius.
    metric
        Whether distances are between directions or between rows. The second needs a public table.
    scores
        Give the noisy share of votes for each class too. Of two classes labels then have an eighth more noise.
    bounds
        The label is a number between these two, as in 0,250: answers are means of the records nearby. Declare them;
        they must not be read from the records.
    device
        Where votes are counted: on the CPU, on a GPU ("cuda"), or on a GPU where there is one. They are the same.
    """

    records: int | None = None
    queries: int = 1000
    radius: float | None = None
    share: float | Literal["auto"] = "auto"
    votes: float | Literal["auto"] = "auto"
    kernel: Literal["linear", "flat"] = "linear"
    metric: Literal["cosine", "euclidean"] = "euclidean"
    scores: bool = False
    bounds: str | None = None
    device: Device = "auto"


@Parameter(name="*", group=Group("Teachers", sort_key=3))
@dataclass(frozen=True, kw_only=True)
class Teachers:
    """Who votes, how ballots are counted, and what is planned for.

    Parameters
    ----------
    learner
        What each teacher is. The first seven are fitted all at once and fast. Unless given it is logistic, or what does
        best on the public table where that has labels; "auto" tries with simulated labels where it has none.
    teachers
        How many teachers the records are dealt to.
    aggregator
        The mechanism that counts the ballots.
    queries
        How many queries are planned for.
    no_quorums
        How many queries may end without a quorum, for mechanisms that pay for those alone.
    disagreement
        The mean share of teachers expected to vote against the plurality, if it is known.
    holdout
        The share of units kept from all teachers to estimate their disagreement, and the shares of the classes,
        privately, for a tenth of the budget.
    scores
        Answer with the noisy share of votes for each class: `quorate predict` then writes a column for each.
    threshold
        With --scores: the noisy share from which on the second of two classes is answered, or "balanced".
    prior
        The shares of the classes, as in no=0.9,yes=0.1, or "holdout" for an estimate. Taken from the public table where
        it has labels. "balanced" compares with it, and where a class is too rare to win a majority, you are told.
    class_weight
        "balanced" lets each teacher weigh the classes by its own rows; or weights, as in no=1,yes=8; or "none". "auto"
        is balanced with --scores, where the learner takes weights.
    jobs
        How many processes fit teachers that are not fitted all at once; -1 takes every core.
    device
        Where teachers that are fitted all at once are fitted: on the CPU, on a GPU ("cuda"), or on a GPU where there is
        one.
    """

    learner: LearnerName | Literal["auto"] | None = None
    teachers: int | Literal["auto"] = "auto"
    aggregator: Literal[
        "auto", "quorum", "noisy_max", "confident_max", "soft_majority", "sharp_majority", "between_thresholds"
    ] = "auto"
    queries: int = 1000
    no_quorums: int | Literal["auto"] = "auto"
    disagreement: float | None = None
    holdout: float = 0.0
    scores: bool = False
    threshold: float | Literal["balanced"] | None = None
    prior: str | None = None
    class_weight: str = "auto"
    jobs: int | None = None
    device: Device = "auto"


@Parameter(name="*", group=Group("Student and teachers", sort_key=3))
@dataclass(frozen=True, kw_only=True)
class StudentFirst:
    """The student that answers first, and the teachers who may disagree with it.

    Parameters
    ----------
    student
        The folder of a published student or hypothesis. Its schema encodes the table, unless another is given.
    learner
        What each teacher is. The first seven are fitted all at once and fast.
    teachers
        How many teachers the records are dealt to.
    dissents
        How many times the teachers may clearly disagree with the student.
    no_quorums
        How many of the queries that they disagree on may end without a quorum.
    queries
        How much traffic is planned for, to choose the number of teachers.
    jobs
        How many processes fit teachers that are not fitted all at once; -1 takes every core.
    device
        Where teachers that are fitted all at once are fitted: on the CPU, on a GPU ("cuda"), or on a GPU where there is
        one.
    """

    student: Path
    learner: LearnerName = "logistic"
    teachers: int | Literal["auto"] = "auto"
    dissents: int = 50
    no_quorums: int = 10
    queries: int = 100_000
    jobs: int | None = None
    device: Device = "auto"


@Parameter(name="*", group=Group("Teachers and phases", sort_key=3))
@dataclass(frozen=True, kw_only=True)
class Phases:
    """Who votes in a phase of the everlasting method, and how one phase teaches the next.

    Parameters
    ----------
    learner
        What each teacher is. The first seven are fitted all at once and fast.
    concept
        A class of hypotheses, in place of a learner.
    chunk
        How many units a teacher has.
    no_quorums
        How many queries of a phase may end without a quorum.
    growth
        How many times more queries each phase takes than the one before.
    max_phase_size
        How many queries a phase takes at most, with --growth above 1.
    refresh
        What teaches the next phase: the queries, or a pool of points that the owner feeds.
    relabel
        "votes" teaches with released labels, "labelboost" with those of a chosen hypothesis.
    jobs
        How many processes fit teachers that are not fitted all at once; -1 takes every core.
    device
        Where teachers that are fitted all at once are fitted: on the CPU, on a GPU ("cuda"), or on a GPU where there is
        one.
    """

    learner: Literal[LearnerName, "direction"] = "logistic"
    concept: ConceptName | None = None
    chunk: int | Literal["auto"] = "auto"
    no_quorums: int | Literal["auto"] = "auto"
    growth: float = 1.0
    max_phase_size: int | None = None
    refresh: Literal["queries", "pool"] = "queries"
    relabel: Literal["votes", "labelboost"] = "votes"
    jobs: int | None = None
    device: Device = "auto"


@Parameter(name="*", group=Group("Hypotheses", sort_key=3))
@dataclass(frozen=True, kw_only=True)
class Hypotheses:
    """The class of hypotheses of two labels, and the rows of a person that are used.

    Parameters
    ----------
    concept
        The class of hypotheses.
    rows_per_person
        With --groups, how many rows of a person are used.
    """

    concept: ConceptName = "stumps"
    rows_per_person: int = 1


@dataclass(frozen=True, kw_only=True)
class AskedHypotheses(Hypotheses):
    """The class of hypotheses of a method that writes a model, or answers in the same command and keeps none.

    Parameters
    ----------
    ask
        Queries to answer in this command, a table. Their answers stand in answers.csv in the folder, and no model is
        kept. Without it the folder holds the model, for `quorate predict` and `quorate serve`.
    """

    ask: Annotated[Path | None, Parameter(group="Tables")] = None


@dataclass(frozen=True, kw_only=True)
class PlannedHypotheses(AskedHypotheses):
    """The class of hypotheses of a method that plans for a number of queries.

    Parameters
    ----------
    queries
        How many queries the budget is planned for; those of --ask unless given, or 100 without it.
    """

    queries: int | None = None


@dataclass(frozen=True, kw_only=True)
class Candidates(Hypotheses):
    """The class of hypotheses of which one is chosen among public candidates.

    Parameters
    ----------
    points
        How many rows of the public table, at random, define the candidates.
    ask
        Queries to answer in the same command, a table. Answers stand in answers.csv in the folder.
    """

    points: int | None = None
    ask: Annotated[Path | None, Parameter(group="Tables")] = None


@Parameter(name="*", group=Group("Sets", sort_key=3))
@dataclass(frozen=True, kw_only=True)
class Sets:
    """The published model whose answers become sets or intervals, and how often they may miss.

    Parameters
    ----------
    model
        The folder of a published classifier or regression. Its schema encodes the table, unless another is given.
    alpha
        The share of new units whose set or interval may miss their label.
    largest_error
        For a regression: a public number that errors hardly exceed. It may be a hundred times too large at no cost.
    cells
        The size of the public grid of thresholds; chosen from the number of units and epsilon unless given.
    per_person
        With --groups, whether the sets of all rows of a new person hold their labels together, or that of the first.
    """

    model: Path
    alpha: float = 0.1
    largest_error: float | None = None
    cells: int | Literal["auto"] = "auto"
    per_person: Literal["all", "first"] = "all"


@Parameter(name="*", group=Group("Columns", sort_key=3))
@dataclass(frozen=True, kw_only=True)
class Columns:
    """How the columns of an additive model are made from the public table.

    Parameters
    ----------
    cuts
        Into how many parts the values of a number are cut; 1 makes straight lines. 8 unless given, or fewer where there
        are many columns.
    cross
        Pairs of columns that matter together, as in age:sex,age:ward.
    waves
        How many random Fourier features of all numbers together; "auto" takes as many as the noise allows.
    """

    cuts: int | None = None
    cross: str | None = None
    waves: int | Literal["auto"] = 0


@Parameter(name="*", group=Group("Label", sort_key=3))
@dataclass(frozen=True, kw_only=True)
class Target:
    """What the label is where it is no class.

    Parameters
    ----------
    bounds
        The label is a number between these two, as in 0,250: a least-squares regression is fitted. Declare them; they
        must not be read from the records.
    largest
        The label is a count of at most so many: a Poisson regression is fitted.
    """

    bounds: str | None = None
    largest: float | None = None


@Parameter(name="*", group=Group("Trials", sort_key=3))
@dataclass(frozen=True, kw_only=True)
class Trials:
    """What is tried, and how the best is told.

    Parameters
    ----------
    cuts
        Into how many parts numbers may be cut, separated by commas: straight lines for 1, curves for more.
    scoring
        The private score on held-out records by which the best is chosen.
    held_out
        The share of units that score. They take no part in fitting.
    tried
        The probability with which a given candidate is tried, where a secret random number of trials is run.
    method
        How many trials there are: a secret random number, or one for each candidate. "auto" takes what costs less.
    """

    cuts: str = "1,2,4,8"
    scoring: Literal["accuracy", "balanced_accuracy", "neg_brier_score", "roc_auc"] = "accuracy"
    held_out: float = 0.2
    tried: float = 0.9
    method: Literal["auto", "random stopping", "composition"] = "auto"
