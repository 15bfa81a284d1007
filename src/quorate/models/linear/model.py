"""The base of the linear models: columns, units, the budget, the claim, and predictions at no cost."""

from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.base import BaseEstimator, clone
from sklearn.utils.validation import check_consistent_length, check_is_fitted, validate_data

from quorate.core.arrays import Floats
from quorate.core.checks import check_delta, check_positive, warn_of_private
from quorate.core.errors import Infeasible, InvalidInput
from quorate.core.estimator_calls import Calls, one_thread, silence
from quorate.core.mechanisms import NoisyVectors
from quorate.core.privacy import Budget
from quorate.core.privacy.claims import Claim, Node, replaced
from quorate.core.progress import progress
from quorate.models.linear._engine import Fitted, Problem, entries_of, fit
from quorate.models.linear._sums import PrivateSums
from quorate.models.linear._tables import FitsTables
from quorate.models.linear.curves import curves_from, curves_of
from quorate.models.predictors.records import check_matrix, check_records
from quorate.models.predictors.sklearn_compat import CountedCopies, ShowsClaim
from quorate.models.saving.contract import Outputs, SavedModel, Spending, State
from quorate.tables import Category, ColumnMarginal, LearnedFacts, Schema
from quorate.tables.columns import Kind
from quorate.tables.containers import OpenTable, column_names, is_frame, open_matrix, open_table_or_matrix
from quorate.tables.features import AdditiveColumns, HashedColumns
from quorate.tables.features.additive import column_of, fineness_for, names_of
from quorate.tables.features.blocks import Block, Ramps
from quorate.tables.features.combined import Interaction
from quorate.tables.features.learned_cuts import choose_cut_share, entries_of_cuts, learn_cuts
from quorate.tables.features.words import as_counts, finite_numbers
from quorate.tables.frames import ColumnKind, FrameFormat
from quorate.tables.learned import (
    PUBLIC_FACTS,
    LearnedColumns,
    choose_share,
    entries_of_schema,
    first_rows,
    learn_columns,
    private_columns,
    slack_for_texts,
)
from quorate.tables.persons import unit_numbers
from quorate.tables.reading import DEFAULT_READING

_NO_WEIGHTS = (
    "sample_weight is refused: a weight that depends on private records would change how much one of them can move the "
    "released sums. Where a person has several rows, name the person in groups"
)
_NO_COLUMNS = (
    "columns must be an AdditiveColumns, a HashedColumns or a Schema, not a {}: what another transformer learns from "
    "private rows (means, categories, a vocabulary) would leave them without noise"
)
LEARNED = "learned"  # columns=: by noisy counts of the private rows, within the model's own budget
_WITH_MODEL = "together with the model that was fitted with it"
_WITH_SCHEMA = "its columns were learned from private rows under a claim of their own, which adds to this one"
_LEARNED_WIDTH = 2000  # entries of a fit for each column and output: more than its cells need
_MOST_RELEASES = 10  # of a fit, that have an entry for each category and output
_FITTED = (
    "coef_",
    "intercept_",
    "coef_deviations_",
    "shift_",
    "is_constant_",
    "claim_",
    "claim_part_",
    "columns_",
    "curves_",
    "entries_",
    "schema_",
    "schema_share_",
)
_WIDE = 300  # columns of a sparse matrix, up to which it is filled
_HOPELESS_ERROR = 0.5  # of a share that the whole budget measures: one half, unmeasured, is off by no more
_MOST_LOG_ODDS = 10.0  # of an offset, to either side
_OFFSET_CUTS = (-_MOST_LOG_ODDS, -3.0, -1.0, 1.0, 3.0, _MOST_LOG_ODDS)  # between which a curve corrects an offset


def check_columns(columns: Any) -> Any:
    """Return columns made from public rows or declarations; refuse any that would learn from private rows."""
    if not isinstance(columns, AdditiveColumns | HashedColumns):
        raise InvalidInput(_NO_COLUMNS.format(type(columns).__name__))
    return columns


def refuse_weights(sample_weight: Any) -> None:
    """Refuse sample weights, with the reason."""
    if sample_weight is not None:
        raise InvalidInput(_NO_WEIGHTS)


def make_private_pipeline(columns: AdditiveColumns | HashedColumns, model: Any) -> Any:
    """Combine columns and a linear model into one unfitted estimator, with one claim for both.

    `fit(X, y, public=...)` makes the columns from the public rows, or from declarations, and the model from noisy sums
    of the private rows. A scikit-learn pipeline would fit its first step on the private rows: the means of a
    `StandardScaler` or the categories of an encoder would be in the model without noise, and no claim would hold. Such
    a step is refused here.

    >>> from quorate.tables.features import AdditiveColumns
    >>> from quorate.models.linear import PrivateLogisticRegression
    >>> lines = make_private_pipeline(AdditiveColumns(cuts=1), PrivateLogisticRegression(classes=[0, 1]))
    >>> X, public = np.random.default_rng(0).normal(size=(2, 2000, 3))
    >>> lines.fit(X, (X[:, 0] > 0).astype(int), public=public).coef_.shape
    (1, 3)
    """
    if not isinstance(model, LinearModel):
        raise InvalidInput(
            f"the last step must be a linear model of quorate.models.linear, not a {type(model).__name__}"
        )
    return clone(model).set_params(columns=clone(check_columns(columns)))


def _check_same_columns(X: Any, public: Any) -> None:
    """Refuse public rows of other columns than the private ones, whose number and names are public."""
    if isinstance(X, OpenTable) and list(X.columns) != list(public.columns):
        apart = sorted({str(name) for name in {*X.columns} ^ {*public.columns}})
        told = f"these are in one alone: {', '.join(map(repr, apart))}" if apart else "they come in another order"
        raise InvalidInput(f"private and public rows must have the same columns: {told}")
    if X.shape[1] != public.shape[1]:
        raise InvalidInput(
            f"private and public rows must have the same columns, and these have {X.shape[1]} and {public.shape[1]}"
        )


def _named_as(columns: AdditiveColumns, names: list[Any]) -> AdditiveColumns:
    """Return columns with the names of the table: those of a matrix are numbers."""
    own = {str(name): name for name in names}
    declared, shares = (
        {own[name]: value for name, value in each.items()} for each in (columns.declared, columns.shares)
    )
    ordered = {name: declared[name] for name in names}
    return AdditiveColumns(declared=ordered, shares=shares, reading=columns.reading)


def _kind_of_block(block: Any) -> ColumnKind:
    if not isinstance(block, Ramps):
        return "text"
    return "date" if block.date else "number"


_ROWS_ALONE = 4096  # Up to this many rows, each is predicted to the bit as by itself.


class _OneRow:
    """A function of one row, as `Calls` puts rows to a model: one at a time, so that no row depends on others."""

    def __init__(self, log_odds: Callable[[Any], Any]) -> None:
        self._log_odds = log_odds

    def predict(self, rows: Floats) -> Floats:
        """Return the log odds of the only row."""
        return np.asarray(self._log_odds(rows[0]), dtype=np.float64).reshape(1, 1)


class LinearModel(FitsTables, SavedModel, CountedCopies, ShowsClaim, BaseEstimator):
    """A generalised linear model over columns made from public rows. Subclasses set the family."""

    spending = Spending(published=True, chargeable=True, searchable=True, gaussian=True)
    summary = "A linear model, fitted by noisy sums of private records."
    saved_attributes = ("claim_", "claim_part_", "shift_", "is_constant_")
    rows_predicted_alone = _ROWS_ALONE  # so that a server may answer as many rows of several callers together

    epsilon: float
    delta: float
    columns: Any
    offset: Any = None

    def _fit_rows(self, X: Any, targets: Floats, *, groups: Any, public: Any, **problem: Any) -> Fitted:
        """Fit weights on private rows; `problem` says what is fitted, besides the columns."""
        warn_of_private(public, X)
        self._forget_fit()
        X, public = self._with_log_odds(X), None if public is None else self._with_log_odds(public)
        columns = self._unfitted_columns(X, public)
        wide = isinstance(columns, HashedColumns)
        known = None if public is None else self._public_rows(public, wide)
        rows = self._private_rows(X, known, wide)
        if rows.shape[0] < 1:
            raise InvalidInput("X has no rows; at least 1 is needed")
        check_consistent_length(rows, targets)
        self._check_offset(rows)
        units, number = unit_numbers(rows.shape[0], groups)
        one_each = groups is None
        self.unit_ = "row" if one_each else "person"
        firsts = None if one_each else first_rows(units)
        sizes = {"units": number, "epsilon": self.epsilon, "outputs": problem["outputs"]}
        noisy = self._fit_columns(columns, X, rows, known, firsts, **sizes)
        private = PrivateSums(self._encoder(rows), targets, units, number, one_each=one_each)
        return self._fit_sums(private, known, noisy, problem)

    def _forget_fit(self) -> None:
        """Forget an earlier fit, and count this one."""
        if "_fits" in vars(self):
            self._count_fit()
        check_positive("epsilon", self.epsilon)
        check_delta(self.delta)
        for name in _FITTED:
            self.__dict__.pop(name, None)

    def _fit_sums(
        self, private: PrivateSums, known: Any, noisy: NoisyVectors | None, problem: dict[str, Any]
    ) -> Fitted:
        """Fit weights by noisy sums of private rows; `noisy` has what is left where columns were learned."""
        described = self._described(problem)
        self.entries_ = entries_of(described, self.delta)
        if noisy is None:
            noisy = self._open_vectors(0.0, self.entries_, private.units)  # proof: step 3
        points = None if known is None else self.columns_.encode(known)
        # One thread: the matrices are small, and threads of linear algebra would spin ten times as long as they work.
        with progress("fitting a linear model"), one_thread():
            fitted = fit(described, private, points, noisy)  # proof: step 4
        self.shift_, self.is_constant_ = fitted.shift, fitted.constant
        if fitted.interactions:
            self.columns_.together_ = [*fitted.interactions]
        self.claim_part_ = noisy.claim_part()
        return fitted

    def _open_vectors(self, slack: float, entries: int, units: int) -> NoisyVectors:
        """Open the budget of a fit. One of which even a single share would be noise alone is refused."""
        noisy = NoisyVectors(self._budget(slack), entries=entries)
        error = noisy.scale(squared_sensitivity=1, fraction=1.0) / units
        if error >= _HOPELESS_ERROR:
            raise Infeasible(
                f"at epsilon = {self.epsilon:g} a single share of {units:,} sample{'s' * (units > 1)}, measured with "
                f"the whole budget, would be off by {error:.2g} on average, so that a model would say nothing; raise "
                "epsilon"
            )
        return noisy

    def _fit_columns(
        self,
        columns: Any,
        X: Any,
        rows: Any,
        known: Any,
        firsts: NDArray[np.int64] | None,
        *,
        count: Any = None,
        **sizes: Any,
    ) -> NoisyVectors | None:
        """Fit the columns, some of them on private rows; return the vectors that paid, None if nothing was spent.

        `count` sums what a function says of the first row of each unit, where these are not in memory.
        """
        noisy = None
        if columns is None:
            noisy, columns = self._learn_columns(rows, firsts, sizes["units"], sizes["outputs"])
        columns = self._declare_offset(columns, rows.shape[1])
        self.columns_ = columns.fit(known, **sizes)
        self.form_ = self._form(X, rows)
        if known is None and isinstance(columns, AdditiveColumns) and (uncut := columns.uncut()):
            if noisy is None:
                features = sum(len(block.names) for block in self.columns_.blocks_)
                width = _LEARNED_WIDTH * len(columns.declared) + _MOST_RELEASES * features
                width = entries_of_cuts(list(uncut.values())) + width * sizes["outputs"]
                noisy = self._open_vectors(0.0, width, sizes["units"])  # proof: step 3
            if count is None:
                chosen = slice(None) if firsts is None else firsts
                read = {name: block.read(column_of(rows, name), columns.rules) for name, block in uncut.items()}
                count = {name: values[chosen] for name, values in read.items()}
            self.columns_ = self._learn_cuts(
                count, uncut, columns, noisy=noisy, units=sizes["units"], outputs=sizes["outputs"]
            ).fit(None, **sizes)
        return noisy

    def claim_part(self) -> Node:
        """Return the noisy sums of the fit."""
        return self.claim_part_

    def to_state(self) -> State:
        """Return settings and columns, the coefficients, and how much of each may be noise."""
        check_is_fitted(self, "coef_")
        if callable(self.offset):
            raise InvalidInput("a function as offset is not saved; fit with the offset as a column, by its name")
        document = {"columns": self.columns_.document(), "curves": [asdict(curve) for curve in self.curves_]}
        state = State({**self.fitted_values(), **document})
        columns = {f"columns_{part}": values for part, values in self.columns_.arrays().items()}
        weights = {"coef": self.coef_, "intercept": self.intercept_, "deviations": self.coef_deviations_}
        state.put_arrays("weights", **weights, **columns)
        return state

    @classmethod
    def from_state(cls, state: State) -> Self:
        """Return the model of a state, as it was after `fit`."""
        arrays, document = state.arrays("weights"), state.values["columns"]
        model = cls.from_fitted_values(state.values)
        parts = {part.removeprefix("columns_"): array for part, array in arrays.items() if part.startswith("columns_")}
        columns = HashedColumns if "words" in document else AdditiveColumns
        model.columns_ = columns.from_document(document, parts)
        model.coef_, model.coef_deviations_ = arrays["coef"], arrays["deviations"]
        model.intercept_ = arrays["intercept"] if arrays["intercept"].ndim else float(arrays["intercept"])
        model.curves_ = curves_from(state.values["curves"])
        if model.coef_.shape[-1] != len(model.columns_.get_feature_names_out()) or not np.isfinite(model.coef_).all():
            raise InvalidInput("the weights of the model do not fit its columns; it is not loaded")
        return model

    @property
    def outputs(self) -> Outputs:
        """What an answer is: a number."""
        return "values"

    def page_facts(self, schema: Any = None) -> list[str]:
        """Return how large the model is, and its classes."""
        facts = [f"{type(self).__name__}: {self.coef_.size} coefficients of {self.n_features_in_} columns."]
        if self.is_constant_:
            baseline = "constant was found: every answer is the same" if self.offset is None else "offset was found"
            facts.append(f"No model better than the {baseline}.")
        if pairs := [part for part in getattr(self.columns_, "together_", ()) if isinstance(part, Interaction)]:
            names = (f"{part.first.name} and {part.second.name}" for part in pairs)
            facts.append(f"Pairs of columns that interact: {', '.join(names)}.")
        if hasattr(self, "classes_"):
            facts.append(f"Classes: {', '.join(map(str, self.classes_.tolist()))}.")
        return facts

    def _budget(self, slack: float) -> Budget:
        return Budget(epsilon=self.epsilon, delta=self.delta, slack=slack)

    def _learn_columns(
        self, rows: Any, firsts: NDArray[np.int64] | None, number: int, outputs: int
    ) -> tuple[NoisyVectors, AdditiveColumns]:
        """Learn the columns for a part of the budget that public numbers choose; return them and all that is left.

        Of a schema only the numbers without a range are learned.
        """
        declared, every, slack = self._declared_schema(), names_of(rows), slack_for_texts(self.delta)
        names = every if declared is None else [name for name in every if str(name) in declared.open_ranges]
        if declared is not None and set(map(str, every)) != set(declared.columns):
            raise InvalidInput("the columns of X and those that the schema declares have different names")
        width = _LEARNED_WIDTH * len(every) * outputs
        noisy = self._open_vectors(slack, entries_of_schema(len(names)) + width, number)  # proof: step 6
        self.schema_share_ = choose_share(noisy, units=number, columns=len(names), slack=slack)
        values = {str(name): column_of(rows, name) for name in names}
        columns = private_columns(values, list(values), firsts)
        reading = DEFAULT_READING if declared is None else declared.reading
        learned = learn_columns(
            columns,
            noisy,
            units=number,
            slack=slack,
            share=self.schema_share_,
            reading=reading,
            **fineness_for(len(names), number * outputs),
        )
        self.schema_ = self._learned_schema(learned, number, declared)
        return noisy, _named_as(AdditiveColumns.from_schema(self.schema_), every)

    @staticmethod
    def _learn_cuts(
        values: Any,
        uncut: dict[Any, Block],
        columns: AdditiveColumns,
        *,
        noisy: NoisyVectors,
        units: int,
        outputs: int,
    ) -> AdditiveColumns:
        """Learn where private values of declared columns are, for a part of the budget that public numbers choose."""
        if not (share := choose_cut_share(noisy, list(uncut.values()), units)):
            return columns
        fineness = fineness_for(len(uncut), units * outputs)
        learned = learn_cuts(uncut, values, noisy, units=units, share=share, **fineness)  # proof: step 6
        return columns.with_learned(learned)

    def _described(self, problem: dict[str, Any]) -> Problem:
        shares = self.columns_.known_shares() if isinstance(self.columns_, AdditiveColumns) else None
        if isinstance(self.columns_, AdditiveColumns):
            problem |= {"sides": self.columns_.sides}
        if self.offset is not None:
            problem |= {"offset": self._offset_weights()}
        return Problem(atoms=self.columns_.atoms(), together=self.columns_.families(), shares=shares, **problem)

    def _with_log_odds(self, X: Any) -> Any:
        """Return the rows of a matrix with their log odds by a callable offset as one more column.

        Each row is asked alone, and one on which the function fails has none: proof: step 4.
        """
        if not callable(self.offset):
            return X
        if is_frame(X) or sparse.issparse(X):
            raise InvalidInput(
                "offset is a function of rows of a dense matrix; give another table a column of log odds"
            )
        rows = open_matrix(X)
        with silence(), one_thread():
            return np.hstack([rows, Calls(rows, 1).values(_OneRow(self.offset), 1)])

    def _queries_with_log_odds(self, X: Any) -> Any:
        """Return rows with the column of their log odds, which they may have already; no value of a row decides."""
        if not callable(self.offset):
            return X
        rows = X if is_frame(X) or sparse.issparse(X) else open_matrix(X)
        return rows if rows.shape[1] == self.n_features_in_ else self._with_log_odds(rows)

    def _check_offset(self, rows: Any) -> None:
        """Refuse an offset that names no column, before anything is learned from the rows."""
        if self.offset is not None and not callable(self.offset) and self.offset not in names_of(rows):
            raise InvalidInput(f"offset must be a column of X or a function of its rows, got {self.offset!r}")

    def _declare_offset(self, columns: Any, width: int) -> Any:
        """Return columns among which the offset is a straight line between public bounds, and a curve beside it."""
        if self.offset is None:
            return columns
        if isinstance(columns, HashedColumns):
            raise InvalidInput("offset takes a table or a dense matrix; hashed columns have no column of log odds")
        name = width - 1 if callable(self.offset) else self.offset
        declared = columns.declared or {}
        known = dict(declared if isinstance(declared, Mapping) else enumerate(declared))
        block = Ramps(str(name), _OFFSET_CUTS, missing=True, line=(-_MOST_LOG_ODDS, _MOST_LOG_ODDS))
        return columns.set_params(declared={**known, name: block}, shares=None)

    def _offset_weights(self) -> Floats:
        """Return the weights that make log odds of the columns, the intercept first. A missing offset is 0."""
        names = self.columns_.names_
        name = len(names) - 1 if callable(self.offset) else self.offset
        ends = np.cumsum([1, *(len(block.names) for block in self.columns_.blocks_[: names.index(name) + 1])])
        weights = np.zeros(1 + sum(int(values.shape[1]) for values in self.columns_.atoms()))
        weights[[0, ends[-2], ends[-1] - 1]] = -_MOST_LOG_ODDS, 2 * _MOST_LOG_ODDS, _MOST_LOG_ODDS
        return weights

    def _declared_schema(self) -> Schema | None:
        return self.columns if isinstance(self.columns, Schema) else None

    def _learned_schema(self, learned: LearnedColumns, units: int, declared: Schema | None) -> Schema:
        """Return the learned schema. A column that the noise hid is one of a single category, whatever its type."""
        scale = max((marginal.scale for marginal in learned.marginals.values()), default=float(units))
        hidden: dict[str, Kind] = dict.fromkeys(learned.hidden, Category(("",)))  # proof: step 6
        unseen = dict.fromkeys(learned.hidden, ColumnMarginal((0.0, float(units)), 0.0, scale))
        claim = str(Claim(self.epsilon, self.delta, unit=replaced(self.unit_), conditions=(_WITH_MODEL, PUBLIC_FACTS)))
        facts = LearnedFacts(claim, self.epsilon, self.delta, units, learned.marginals | unseen, learned.notes)
        found = learned.kinds | hidden
        return Schema(found, learned=facts) if declared is None else declared.with_kinds(found, learned=facts)

    def _is_learned(self) -> bool:
        """Return whether columns are to be learned from the private rows, within the model's own budget."""
        declared = self._declared_schema()
        if declared is not None:
            return bool(declared.open_ranges)
        return isinstance(self.columns, str) and self.columns == LEARNED

    def _draw(self, fitted: Fitted, scale: float = 1.0) -> None:
        """Keep what each column adds; `scale` is a unit of the target."""
        self.curves_ = curves_of(self.columns_, fitted.weights[:, 1:], fitted.covariances, fitted.centre, scale)

    def _encoder(self, X: Any) -> Callable[[NDArray[np.int64]], Floats]:
        """Return what encodes some of the private rows. Texts and words are looked up once for all releases."""
        columns = self.columns_
        if isinstance(X, np.ndarray):
            return lambda rows: columns.encode(X[rows])
        read = columns.read(X)
        if isinstance(columns, HashedColumns):
            return lambda rows: columns.spread(read[rows])
        return lambda rows: columns.spread([values[rows] for values in read])

    def _public_rows(self, public: Any, wide: bool) -> Any:
        """Return public rows, opened, and learn their columns. Rows of a `wide` matrix stay sparse."""
        if wide:
            return validate_data(self, public, reset=True, accept_sparse="csr", dtype=np.float64)
        if not is_frame(public):
            return check_matrix(self, public, missing=True, reset=True, role="public")
        validate_data(self, public, reset=True, skip_check_array=True)
        return open_table_or_matrix(public, source="the public table")

    def _private_rows(self, X: Any, known: Any, wide: bool) -> Any:
        """Return private rows, opened. Only their shape and the names of columns can be refused: proof: step 5."""
        if wide:
            rows: Any = as_counts(X if sparse.issparse(X) else open_matrix(X))
        elif known is not None and is_frame(X) != isinstance(known, OpenTable):
            raise InvalidInput("private and public rows come both as data frames, or both as matrices of numbers")
        else:
            rows = open_table_or_matrix(X, source="X") if is_frame(X) else open_matrix(X)
        if len(rows.shape) != 2:
            raise InvalidInput(f"X must be a table of rows and columns, not an array of shape {rows.shape}")
        if known is not None:
            _check_same_columns(rows, known)
        validate_data(self, X if is_frame(X) else rows, reset=known is None, skip_check_array=True)
        return rows

    def _form(self, X: Any, rows: Any) -> FrameFormat | None:
        """Return how queries come: the kinds are those of the blocks, never of the private rows. Proof: step 4."""
        if isinstance(self.columns_, HashedColumns):
            return None
        names = self.columns_.names_
        if len(names) != self.n_features_in_:
            raise InvalidInput(f"{len(names)} columns are declared, and X has {self.n_features_in_}")
        if not isinstance(rows, OpenTable):
            if names != list(range(len(names))):
                raise InvalidInput("the columns are declared by name, and X is a matrix, whose columns have none")
            return None
        if set(names) != set(column_names(X)):
            raise InvalidInput("the columns of X and those declared have different names")
        kinds = [_kind_of_block(block) for block in self.columns_.blocks_]
        return FrameFormat.of_kinds(X, names, kinds, self.columns_.rules)

    def _unfitted_columns(self, X: Any, public: Any) -> AdditiveColumns | HashedColumns | None:
        """Return the columns given, or what a table of this kind and width takes; None if they are to be learned."""
        if self._is_learned():
            if public is not None:
                raise InvalidInput("columns that are learned take no public rows: these would say what they hold")
            return None
        if (declared := self._declared_schema()) is not None:
            return AdditiveColumns.from_schema(declared)
        wide = sparse.issparse(X) and X.shape[1] > _WIDE
        default = HashedColumns() if wide else AdditiveColumns()
        columns: AdditiveColumns | HashedColumns = (
            default if self.columns is None else clone(check_columns(self.columns))
        )
        if public is None and columns.declared is None:
            raise InvalidInput(
                "without public rows the columns must be declared: columns=AdditiveColumns(declared=...), with (low, "
                "high), cuts or categories for each, or fit(X, y, public=...)"
            )
        return columns

    def _claim(self, *conditions: str) -> str:
        open_ = () if self.shift_ is None else ("the public rows are not protected",)
        declared = self._declared_schema()
        learned_before = getattr(self.columns, "shares", None) if declared is None else declared.learned
        if self._is_learned():
            open_ = (*open_, PUBLIC_FACTS)
        if learned_before is not None:
            open_ = (*open_, _WITH_SCHEMA)
        return str(Claim(self.epsilon, self.delta, unit=replaced(self.unit_), conditions=(*open_, *conditions)))

    def check_queries(self, X: Any) -> Any:
        """Return queries in the form that the model takes, or raise an error."""
        check_is_fitted(self, "coef_")
        if isinstance(X, OpenTable) and self.takes_opened:
            return X
        X = self._queries_with_log_odds(X)
        if isinstance(self.columns_, HashedColumns):
            return validate_data(self, X, reset=False, accept_sparse="csr", dtype=np.float64)
        return check_records(self, X, estimator=self, reset=False, missing=True)

    @property
    def takes_opened(self) -> bool:
        """Whether queries may be the columns of `FrameFormat.read_opened`, which are checked already."""
        return self.form_ is not None and isinstance(self.columns_, AdditiveColumns)

    def private_queries(self, X: Any) -> Any:
        """Return private rows as queries, each value read as `fit` reads it: none is refused. Proof: step 5."""
        check_is_fitted(self, "coef_")
        X = self._queries_with_log_odds(X)
        validate_data(self, X, reset=False, skip_check_array=True)  # of names, and of how many there are
        if isinstance(self.columns_, HashedColumns):
            counts = as_counts(finite_numbers(X))
            counts.data = np.nan_to_num(counts.data)  # what is no number counts as 0 there
            return counts
        if self.form_ is None:
            return finite_numbers(X)
        if not is_frame(X):
            raise InvalidInput("the model was fitted on a data frame, and takes private rows as one too")
        return self.form_.read(X, role="private")

    def _predictor(self, X: Any) -> Floats:
        """Return the linear predictor of each row and output."""
        checked = self.check_queries(X)  # says so if there was no fit
        rows = np.ascontiguousarray(self.columns_.encode(checked))
        if len(rows) <= _ROWS_ALONE:  # A product of matrices would round a row by how many stand beside it.
            return np.asarray((rows[:, np.newaxis] @ self.coef_.T)[:, 0] + self.intercept_)
        return np.asarray(rows @ self.coef_.T + self.intercept_)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.input_tags.sparse = True  # hashed where it is wide, filled where not
        tags.non_deterministic = True
        return tags
