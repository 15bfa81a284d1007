"""The options of the single methods of `quorate fit`: who votes, which hypotheses there are, what is tried."""

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
        About how many records (or people) there will be: a public number. Needed to choose share and votes.
    queries
        The number of queries to plan for. More can be asked: accuracy then suffers, not privacy.
    radius
        How near a record must be to vote, the same for all queries; by default set by the share of the public table.
    share
        A query reaches as far as this share of the public table; by default chosen on that table.
    votes
        How many votes of full weight a unit may cast in total; by default chosen on the public table.
    kernel
        Whether weights fall with the squared distance, or are all equal within the radius.
    metric
        Whether distances are between directions or between rows. The second needs a public table.
    scores
        Also give the noisy share of votes for each class. With two classes, labels then have an eighth more noise.
    bounds
        The label is a number between these two, such as 0,250: answers are means of the records nearby. Declare them;
        they must not be read from the records.
    device
        Where votes are counted: on the CPU, on a GPU ("cuda"), or on a GPU if there is one. The votes are the same.
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
        The learner of each teacher. The first seven are fitted all at once and fast. The default is logistic, or the
        best on the public table if that has labels; "auto" tries learners with simulated labels if it has none.
    teachers
        The number of teachers to which the records are dealt.
    aggregator
        The mechanism that counts the ballots.
    queries
        The number of queries to plan for.
    no_quorums
        How many queries may end without a quorum, for mechanisms that pay only for those.
    disagreement
        The mean share of teachers expected to vote against the plurality, if known.
    holdout
        The share of units kept from all teachers to estimate their disagreement, and the shares of the classes,
        privately, for a tenth of the budget.
    scores
        Answer with the noisy share of votes for each class: `quorate predict` then writes a column for each.
    threshold
        With --scores: the noisy share at or above which the second of two classes is answered, or "balanced".
    prior
        The shares of the classes, such as no=0.9,yes=0.1, or "holdout" for an estimate. Read from the public table if
        it has labels. "balanced" compares with it, and a warning says if a class is too rare to win a majority.
    class_weight
        "balanced" lets each teacher weight the classes by its own rows; or weights, such as no=1,yes=8; or "none".
        "auto" is balanced with --scores if the learner takes weights.
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
    """The student that answers first, and the teachers that may disagree with it.

    Parameters
    ----------
    student
        The folder of a published student or hypothesis. Its schema encodes the table, unless another is given.
    learner
        The learner of each teacher. The first seven are fitted all at once and fast.
    teachers
        The number of teachers to which the records are dealt.
    dissents
        How many times the teachers may clearly disagree with the student.
    no_quorums
        How many of these dissents may end without a quorum.
    queries
        The number of queries to plan for when choosing the number of teachers.
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
        The learner of each teacher. The first seven are fitted all at once and fast.
    concept
        A class of hypotheses, instead of a learner.
    chunk
        The number of units of each teacher.
    no_quorums
        How many queries of a phase may end without a quorum.
    growth
        The ratio of the number of queries of each phase to that of the one before.
    max_phase_size
        The largest number of queries of a phase, with --growth above 1.
    refresh
        What teaches the next phase: the queries, or a pool of points that the owner feeds.
    relabel
        "votes" teaches with released labels, "labelboost" with the labels of a chosen hypothesis.
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
    """The class of hypotheses for two labels, and the rows of a person that are used.

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
        A table of queries to answer in this command. Their answers are written to answers.csv in the folder, and no
        model is kept. Without it the folder contains the model, for `quorate predict` and `quorate serve`.
    """

    ask: Annotated[Path | None, Parameter(group="Tables")] = None


@dataclass(frozen=True, kw_only=True)
class PlannedHypotheses(AskedHypotheses):
    """The class of hypotheses of a method that plans for a number of queries.

    Parameters
    ----------
    queries
        The number of queries to plan for; by default those of --ask, or 100 without it.
    """

    queries: int | None = None


@dataclass(frozen=True, kw_only=True)
class Candidates(Hypotheses):
    """The class of hypotheses from which one is chosen among public candidates.

    Parameters
    ----------
    points
        How many rows of the public table, chosen at random, define the candidates.
    ask
        A table of queries to answer in the same command. Answers are written to answers.csv in the folder.
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
        The size of the public grid of thresholds; by default chosen from the number of units and epsilon.
    per_person
        With --groups, whether coverage is for all rows of a new person together, or for the first.
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
        The number of parts into which the values of a number are cut; 1 makes straight lines. The default is 8, or
        fewer if there are many columns.
    cross
        Pairs of columns that interact, such as age:sex,age:ward.
    waves
        The number of random Fourier features of all numbers together; "auto" takes as many as the noise allows.
    """

    cuts: int | None = None
    cross: str | None = None
    waves: int | Literal["auto"] = 0


@Parameter(name="*", group=Group("Label", sort_key=3))
@dataclass(frozen=True, kw_only=True)
class Target:
    """The label of a regression.

    Parameters
    ----------
    bounds
        The label is a number between these two, such as 0,250: a least-squares regression is fitted. Declare them; they
        must not be read from the records.
    largest
        The label is a count, at most this large: a Poisson regression is fitted.
    """

    bounds: str | None = None
    largest: float | None = None


@Parameter(name="*", group=Group("Trials", sort_key=3))
@dataclass(frozen=True, kw_only=True)
class Trials:
    """The candidates, and how the best is chosen.

    Parameters
    ----------
    cuts
        The numbers of parts to try for cutting numbers, separated by commas: straight lines for 1, curves for more.
    scoring
        The private score on held-out records by which the best is chosen.
    held_out
        The share of units for scoring. They are not used for fitting.
    tried
        The probability that a given candidate is tried, if a secret random number of trials is run.
    method
        The number of trials: a secret random number, or one for each candidate. "auto" takes what costs less.
    """

    cuts: str = "1,2,4,8"
    scoring: Literal["accuracy", "balanced_accuracy", "neg_brier_score", "roc_auc"] = "accuracy"
    held_out: float = 0.2
    tried: float = 0.9
    method: Literal["auto", "random stopping", "composition"] = "auto"
