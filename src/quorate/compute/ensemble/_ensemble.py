"""The ensemble: teachers fitted on disjoint chunks of the records, and their sealed ballots."""

from collections.abc import Iterable, Iterator
from contextlib import nullcontext
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quorate.compute.ensemble.dealing import Dealer, Part
from quorate.compute.ensemble.electorate import Electorate
from quorate.compute.ensemble.estimators import check_fit_failures, fit_parts
from quorate.compute.learners import Deal, DeviceName, batched_equivalent, joined_teachers
from quorate.core.ballots import Ballots
from quorate.core.checks import check_count
from quorate.core.errors import InvalidInput
from quorate.core.estimator_calls import one_thread
from quorate.core.isolation import silence
from quorate.core.progress import progress


class Ensemble:
    """Teachers fitted on disjoint chunks, wherever they stand, and their ballots.

    Replacing the rows of one unit changes one teacher at most, and so at most one ballot of each query.
    """

    def __init__(self, electorate: Electorate) -> None:
        self._electorate = electorate

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

    @property
    def teachers(self) -> int:
        """The number of teachers."""
        return self._electorate.teachers

    @property
    def classes(self) -> int:
        """The number of classes."""
        return self._electorate.classes

    @property
    def electorate(self) -> Electorate:
        """The fitted teachers, for the owner's model files. They are private."""
        return self._electorate

    def count(self, X: Any) -> Ballots:
        """Count the ballots of every teacher on these queries."""
        return Ballots(self._electorate.votes(X))

    def count_each(self, batches: Iterable[Any]) -> Iterator[Ballots]:
        """Yield the ballots on these queries, some after the others; the electorate may count the next meanwhile."""
        ahead = getattr(self._electorate, "votes_each", None)
        yield from map(Ballots, map(self._electorate.votes, batches) if ahead is None else ahead(batches))

    def close(self) -> None:
        """Close the connections and workers of the electorate."""
        self._electorate.close()

    def __repr__(self) -> str:
        return f"Ensemble(teachers={self.teachers}, classes={self.classes})"


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
