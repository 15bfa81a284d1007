"""The ensemble of teachers, fitted on rows in memory or in parts, and teachers that are estimators of scikit-learn.

Teachers are isolated: each gets copies of its rows and of the queries, and its own randomness.
"""

import copy
import os
import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import nullcontext
from itertools import chain, islice
from typing import TYPE_CHECKING, Any

import numpy as np
from joblib import Parallel, delayed, effective_n_jobs, parallel_config
from numpy.typing import NDArray

from quorate.compute.ensemble.dealing import Dealer, Part, Randomness, deal_units
from quorate.compute.learners import Deal, DeviceName, batched_equivalent, joined_teachers
from quorate.core.arrays import Integers
from quorate.core.ballots import Ballots
from quorate.core.checks import check_count
from quorate.core.errors import InvalidInput
from quorate.core.estimator_calls import Calls, asks_a_copy, call_rows, global_randomness, one_thread, silence
from quorate.core.lazy import import_extra
from quorate.core.progress import advance, progress
from quorate.core.rows import copy_rows, take_rows
from quorate.tables.persons import unit_numbers

if TYPE_CHECKING:
    from quorate.compute.ensemble.electorate import Electorate

Fitted = tuple[Any, int]  # a fitted estimator, or None, and the class that it votes for where it has nothing to say
_Tried = tuple[Any, int, bool]  # as `Fitted`, and whether its rows could not be fitted
_Chunk = tuple[Any, Integers, int]  # rows, codes, and the seed of the teacher's own randomness


_BLOCK = 2**16  # queries put to one teacher at a time
_FITS = 50  # at least this many in one task: shipping a task costs a cluster about as much as a small fit


def _own(estimator: Any, seed: int) -> Any:
    """Return a clone without output to the console, with a separate seed if `random_state` was None."""
    from sklearn.base import clone  # noqa: PLC0415  scikit-learn takes a second to load

    copy = clone(estimator)
    settings = copy.get_params()
    seeds = {name: seed for name, value in settings.items() if _is(name, "random_state") and value is None}
    quiet = {name: 0 for name, value in settings.items() if _is(name, "verbose") and value and value != -1}  # quieter
    alone = {name: 1 for name in settings if _is(name, "n_jobs")}  # threads would add up in the order they finish
    return copy.set_params(**seeds, **quiet, **alone)


def _is(name: str, setting: str) -> bool:
    return name.rpartition("__")[2] == setting


def _fit_one(estimator: Any, chunk: _Chunk, classes: int) -> _Tried:
    """Return the teacher of these rows. A failure of its fit affects this teacher alone."""
    X, codes, seed = chunk
    counts = np.bincount(codes, minlength=classes) if codes.size else np.zeros(classes, dtype=np.int64)
    majority = int(counts.argmax())
    if np.count_nonzero(counts) < 2:
        return None, majority, False
    fitted = _try_fit(_own(estimator, seed), X, codes)
    if fitted is None and isinstance(X, np.ndarray) and not (finite := np.isfinite(X).all(axis=1)).all():
        fitted = _try_fit(_own(estimator, seed), X[finite], codes[finite])  # as teachers fitted in batches do
    return fitted, majority, fitted is None


def _try_fit(estimator: Any, X: Any, codes: Integers) -> Any:
    """Return the estimator fitted on these rows, or None if it fails on them."""
    try:
        return estimator.fit(X, codes)
    except Exception:  # an error here would speak of one teacher's rows
        return None


def _fit_some(estimator: Any, chunks: Sequence[_Chunk], classes: int, parent: int, alone: bool = False) -> list[_Tried]:
    elsewhere = os.getpid() != parent
    if elsewhere:
        warnings.simplefilter("ignore")  # for as long as this worker lives; the parent has silenced itself
    fitted = []
    with np.errstate(all="ignore"), global_randomness() as seed, one_thread() if alone else nullcontext():
        for chunk in chunks:
            seed(chunk[2])
            fitted.append(_fit_one(estimator, chunk, classes))
            advance()  # where this is the process that was called
    return fitted


def fit_estimators(
    estimator: Any,
    X: Any,
    codes: Integers,
    deal: Deal,
    *,
    classes: int,
    n_jobs: int | None = None,
    backend: str | None = None,
) -> "EstimatorTeachers":
    """Fit one clone of the estimator for each chunk of the deal, on any joblib backend: "loky", "dask", "ray", ...

    How many of them fail on their rows is not looked at: here it may be private.
    """
    parts = [(X, codes, deal)]
    return fit_parts(parts, estimator, deal.teachers, classes=classes, n_jobs=n_jobs, backend=backend)[0]


def fit_parts(
    parts: Iterable[Part],
    estimator: Any,
    teachers: int,
    *,
    classes: int,
    n_jobs: int | None = None,
    backend: str | None = None,
    randomness: Randomness | None = None,
) -> tuple["EstimatorTeachers", int]:
    """Fit one clone of the estimator for each chunk of the parts, which are taken as they come.

    A teacher whose rows show one class votes for it, and one without rows for class 0; so does one whose own rows
    cannot be fitted, with the class that most of them show. How many these are is returned too. Where their
    `randomness` is given, linear algebra has one thread.
    """
    if backend == "ray":
        _register_ray()
    secret = np.frombuffer(os.urandom(4 * teachers), dtype=np.uint32) // 2
    seeds = randomness.seeds if randomness else secret.tolist()

    def tasks(jobs: int) -> Iterator[Any]:
        size = max(_FITS, -(-teachers // (4 * jobs))) if jobs > 1 else _FITS
        chunks = zip(_chunks(parts), seeds, strict=True)
        while dealt := [(*chunk, seed) for chunk, seed in islice(chunks, size)]:
            yield delayed(_fit_some)(estimator, dealt, classes, os.getpid(), randomness is not None)

    one_by_one = backend is None and effective_n_jobs(n_jobs) == 1
    bar = progress("fitting teachers,", teachers) if one_by_one else progress(f"fitting {teachers:,} teachers")
    with nullcontext() if backend is None else _choose_backend(backend, n_jobs), silence(), bar:
        fitted = Parallel(n_jobs=n_jobs)(tasks(effective_n_jobs(n_jobs)))
    models, majorities, failures = zip(*(teacher for some in fitted for teacher in some), strict=True)
    electorate = EstimatorTeachers(
        list(zip(models, majorities, strict=True)),
        classes=classes,
        query_seed=randomness.query_seed if randomness else None,
    )
    return electorate, sum(failures)


def check_fit_failures(failed: int, teachers: int) -> None:
    """Tell the owner where more than half of all teachers could not be fitted."""
    if failed > teachers / 2:
        raise InvalidInput(
            "more than half of the teachers could not be fitted on their own rows: missing values, text, or too few "
            "rows for this estimator are the usual reasons. Give rows that are not private as public= to hear why"
        )


def _chunks(parts: Iterable[Part]) -> Iterator[tuple[Any, Integers]]:
    """Yield the rows and the codes of one teacher after the other. Rows without a label (-1) are left out."""
    for X, codes, deal in parts:
        for dealt in np.split(deal.rows, np.cumsum(deal.sizes)[:-1]):
            rows = dealt[codes[dealt] >= 0]
            yield copy_rows(take_rows(X, rows)), codes[rows]


def _choose_backend(backend: str, n_jobs: int | None) -> Any:
    try:
        return parallel_config(backend, n_jobs=-1 if n_jobs is None else n_jobs)
    except ValueError as error:
        raise InvalidInput(f"backend must be a backend of joblib: {error}") from None


def _register_ray() -> None:
    import_extra("ray.util.joblib", "ray", use="backend='ray'").register_ray()


class EstimatorTeachers:
    """Fitted scikit-learn estimators that vote. Printing them shows only public numbers.

    A ballot is a function of one teacher and one query, to the last bit: whatever else is in the batch, however large
    it is and wherever the query stands.
    """

    def __init__(self, fitted: Sequence[Fitted], *, classes: int, query_seed: int | None = None) -> None:
        self.fitted, self.classes, self.teachers = list(fitted), classes, len(fitted)
        # All are clones of one estimator.
        estimator = next((model for model, _ in self.fitted if model is not None), None)
        self._rows = None if estimator is None else call_rows(estimator)
        self._copied = estimator is not None and asks_a_copy(estimator)
        self.query_seed = int.from_bytes(os.urandom(4), "big") if query_seed is None else query_seed

    def votes(self, X: Any) -> Integers:
        """Return how many teachers vote for each class: one row a query, one column a class."""
        counts = np.zeros((len(X), self.classes), dtype=np.int64)
        for start in range(0, len(X), _BLOCK):
            rows = slice(start, min(len(X), start + _BLOCK))
            self._count(take_rows(X, rows), counts[rows])
        return counts

    def ballots(self, X: Any) -> Integers:
        """Return the class that each teacher votes for: one row a query, one column a teacher."""
        result = np.empty((len(X), self.teachers), dtype=np.int64)
        for column, ballots in enumerate(self._each(X)):
            result[:, column] = ballots
        return result

    def close(self) -> None:
        """Do nothing: they stand in this process."""

    def _each(self, X: Any) -> Iterator[Integers | int]:
        """Yield the ballots of one teacher after the other. Each finds the global generators seeded by its place."""
        X = X if hasattr(X, "columns") else np.ascontiguousarray(X, dtype=np.float64)
        calls = Calls(X, self._rows) if any(model is not None for model, _ in self.fitted) else None
        with silence(), global_randomness() as seed, one_thread():  # in this order, as where teachers are fitted
            for teacher, (model, majority) in enumerate(self.fitted):
                if model is None or calls is None:
                    yield majority
                    continue
                value = (self.query_seed + teacher) % 2**32
                seeded = _Seeded(model, seed, value, copied=self._copied) if self._rows == 1 else model
                yield calls.ballots(seeded, majority, self.classes)

    def _count(self, X: Any, counts: Integers) -> None:
        flat, offsets = counts.reshape(-1), np.arange(len(X)) * self.classes
        ones = np.zeros(len(X), dtype=np.int64)
        for ballots in self._each(X):
            if self.classes == 2:
                ones += ballots
            else:
                flat[offsets + ballots] += 1
        if self.classes == 2:
            counts[:, 1], counts[:, 0] = ones, self.teachers - ones

    def __repr__(self) -> str:
        return f"EstimatorTeachers(teachers={self.teachers}, classes={self.classes})"


class _Seeded:
    """An estimator that may draw from the global generators, and remember: before each query it is as it was fitted."""

    def __init__(self, model: Any, seed: Any, value: int, *, copied: bool) -> None:
        self._model, self._seed, self._value, self._copied = model, seed, value, copied

    def predict(self, X: Any) -> Any:
        self._seed(self._value)
        return (copy.deepcopy(self._model) if self._copied else self._model).predict(X)  # proof: step 9


class Ensemble:
    """Teachers fitted on disjoint chunks, wherever they stand, and their ballots.

    Replacing the rows of one unit changes one teacher at most, and so at most one ballot of each query.
    """

    def __init__(self, electorate: "Electorate") -> None:
        self.electorate = electorate  # the fitted teachers are private
        self.teachers, self.classes = electorate.teachers, electorate.classes

    @classmethod
    def fit(cls, X: Any, codes: NDArray[np.int64], deal: Deal, **fitting: Any) -> "Ensemble":
        """Fit one teacher for each chunk of the deal; `codes` are class numbers. `fitting` is as for `fit_parts`."""
        return cls.fit_parts([(X, codes, deal)], deal.teachers, **fitting)

    @classmethod
    def fit_parts(
        cls,
        parts: Iterable[Part],
        teachers: int,
        *,
        estimator: Any,
        classes: int,
        n_jobs: int | None = None,
        backend: str | None = None,
        device: DeviceName = "auto",
        public: Any = None,
        units: int | None = None,
        one_scale: bool = False,
        dealer: Dealer | None = None,
    ) -> "Ensemble":
        """Fit so many teachers, one for each chunk of the parts, which are taken as they come.

        A part is rows, their class numbers from 0 to `classes` - 1, and a deal of them. An estimator with a batched
        equivalent is fitted as one array, on the `device`, which also counts its ballots; any other through joblib, on
        the backend that is named. It is first tried on made-up rows, as many as a teacher has `units`, or on `public`
        ones: what it refuses there, it says. (How many rows people have is not public; each row is a unit unless told.)
        `one_scale` says that columns are of about one size, which makes counting faster and must be public. With a
        `dealer` all randomness of teachers comes from its key, and linear algebra has one thread: the same teachers
        everywhere.
        """
        check_count("classes", classes, least=2)
        learner = batched_equivalent(estimator)
        if learner is not None:
            with progress(f"fitting {teachers:,} teachers"), nullcontext() if dealer is None else one_thread():
                fitted = [learner.fit(*part, classes=classes, device=device, one_scale=one_scale) for part in parts]
            return cls(joined_teachers(fitted))
        coming = iter(parts)
        first = next(coming)
        dealt = first[2].rows.size if units is None else units
        probe(estimator, first[0], rows=-(-dealt // teachers), classes=classes, public=public)
        all_parts = chain([first], coming)
        randomness = None if dealer is None else dealer.randomness(0, teachers)
        electorate, failed = fit_parts(
            all_parts, estimator, teachers, classes=classes, n_jobs=n_jobs, backend=backend, randomness=randomness
        )
        check_fit_failures(failed, teachers)
        return cls(electorate)

    def count(self, X: Any) -> Ballots:
        """Count the ballots of every teacher on these queries."""
        return Ballots(self.electorate.votes(X))

    def count_each(self, batches: Iterable[Any]) -> Iterator[Ballots]:
        """Yield the ballots on these queries, some after the others; the electorate may count the next meanwhile."""
        ahead = getattr(self.electorate, "votes_each", None)
        yield from map(Ballots, map(self.electorate.votes, batches) if ahead is None else ahead(batches))

    def close(self) -> None:
        """Close the connections and workers of the electorate."""
        self.electorate.close()

    def __repr__(self) -> str:
        return f"Ensemble(teachers={self.teachers}, classes={self.classes})"


class RowsInMemory:
    """Rows that are all in memory, in canonical form, and the class number of each; `groups` name their people."""

    def __init__(self, X: Any, codes: Integers, groups: Any = None) -> None:
        self._X, self._codes = X, codes
        self._units, self.count = unit_numbers(len(codes), groups)
        self.features = int(X.shape[1])

    def ensemble(self, *, teachers: int, held_out: int, **fitting: Any) -> tuple[Ensemble, Any, Integers]:
        """Deal the units by a secret permutation and fit the teachers."""
        deal, held_out_rows = deal_units(self._units, self.count, teachers=teachers, held_out=held_out)
        fitted = Ensemble.fit(self._X, self._codes, deal, units=self.count - held_out, **fitting)
        return fitted, take_rows(self._X, held_out_rows), self._codes[held_out_rows]


def probe(estimator: Any, X: Any, *, rows: int, classes: int, public: Any = None) -> None:
    """Refuse an estimator that cannot be fitted on public rows, or on made-up ones where X is a matrix of numbers.

    A teacher's own failure is never reported, since the message may speak of its rows; a setting that no rows could
    satisfy must be, and shows here first. Only the shape and the type of `X` are looked at. A data frame without
    `public` rows is not tried.
    """
    from sklearn.base import clone  # noqa: PLC0415  scikit-learn takes a second to load

    if public is not None:
        made_up = public
    elif isinstance(X, np.ndarray) and X.dtype.kind in "fiub":
        made_up = np.random.default_rng(0).normal(size=(max(rows, 2 * classes), X.shape[1])).astype(X.dtype)
    else:
        return
    codes = np.arange(len(made_up)) % classes
    with silence():
        try:
            clone(estimator).fit(made_up, codes).predict(made_up[:1])
        except Exception as error:
            kind = f"{type(error).__name__}: {error}"
            raise InvalidInput(
                f"the estimator does not take rows like these (tried on rows that are not private) - {kind}"
            ) from error
