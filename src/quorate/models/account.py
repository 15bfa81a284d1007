"""A shared privacy budget: a total (epsilon, delta) that several models of the same people draw on.

Each model declares its own (epsilon, delta) and is charged for all of it before anything is drawn. It is refused if the
total would be exceeded. Epsilons add up, and so do deltas, for any models and any order of queries (release/PROOF.md,
step 8). The account is a folder with a ledger, like that of a model, so that a charge is never refunded.
"""

import json
import math
from collections.abc import Iterator
from contextlib import contextmanager
from fractions import Fraction
from pathlib import Path
from typing import Any, Literal, TypeVar

from quorate.core import ledger as ledgers
from quorate.core.checks import check_delta, check_positive
from quorate.core.errors import BudgetSpent, InvalidInput
from quorate.core.privacy import RENYI_QUANTA, Budget, Cost
from quorate.core.privacy.claims import Total, claim_document, shared_node
from quorate.core.privacy.cost import float_down
from quorate.models.saving.contract import SavedModel
from quorate.models.saving.folder import PrivateFolder, open_folder

KIND = "account"
_STAYS = "Interrupted: the account was charged before anything was drawn, and what was charged stays charged."
Unit = Literal["record", "person"]
Model = TypeVar("Model")


class Account:
    """A total (epsilon, delta) for several releases about the same people, kept in a folder.

    Parameters
    ----------
    folder
        Where the account is kept; created if it does not exist.
    epsilon, delta
        The total. For an existing account, give the same values or none.
    unit
        What is protected: "record" (the default) or "person". An account of persons refuses a model that protects only
        records. The unit of an existing account cannot change.

    >>> import tempfile
    >>> from quorate import QueryRelease, Workload
    >>> home = tempfile.TemporaryDirectory()
    >>> account = Account(Path(home.name) / "census", epsilon=2.0, delta=2e-6)
    >>> census = {"sex": ["f", "m"] * 5000}
    >>> sexes = {"subject": Workload.marginals(1), "columns": {"sex": ["f", "m"]}, "account": account}
    >>> first = QueryRelease(**sexes, epsilon=1.5).fit(census)
    >>> account.left()
    (0.5, 1e-06)
    >>> QueryRelease(**sexes, epsilon=1.0).fit(census)
    Traceback (most recent call last):
    quorate.core.errors.BudgetSpent: the account has (0.5, 1e-06) left, and this asks for (1, 1e-06): nothing was drawn
    >>> account.close(); home.cleanup()
    """

    def __init__(
        self,
        folder: str | Path,
        *,
        epsilon: float | None = None,
        delta: float | None = None,
        unit: Unit | None = None,
    ) -> None:
        if unit not in (None, "record", "person"):
            raise InvalidInput(f"unit must be 'record' or 'person', got {unit!r}")
        path = Path(folder)
        if path.exists() and (not path.is_dir() or any(path.iterdir())):
            self._folder = _open_account(path)
            self.ledger: ledgers.Ledger = self._folder.ledger()
        else:
            if epsilon is None:
                raise InvalidInput(f"{path} holds no account yet; give epsilon= and delta=, the total of a new one")
            total = epsilon, 1e-6 if delta is None else delta
            self._folder, self.ledger = _create_account(path, *total, unit or "record")
        manifest = self._folder.manifest
        self.epsilon, self.delta = float(manifest["epsilon"]), float(manifest["delta"])
        self.unit = str(manifest["unit"])
        if epsilon not in (None, self.epsilon) or delta not in (None, self.delta) or unit not in (None, self.unit):
            self.close()
            claim = f"({self.epsilon:g}, {self.delta:g}) for each {self.unit}"
            raise InvalidInput(f"{path} holds an account of {claim}; open it with these values or with none")

    @classmethod
    def of(cls, account: "Account | str | Path") -> "Account":
        """Return an account, given the account itself or its folder."""
        return account if isinstance(account, Account) else cls(account)

    @property
    def total(self) -> Total:
        """The clause of a claim that names the account."""
        return Total(self.epsilon, self.delta, self.unit)

    def left(self) -> tuple[float, float]:
        """Return the epsilon and the delta that are left."""
        remaining = self.ledger.budget().remaining()
        return remaining.renyi, remaining.slack

    @staticmethod
    def whole(epsilon: float, delta: float) -> tuple[float, float]:
        """Return epsilon rounded down to whole quanta, so that decimal sums add up here too; and delta."""
        epsilon, delta = check_positive("epsilon", epsilon), check_delta(delta)
        return float_down(Fraction(math.floor(Fraction(epsilon) * RENYI_QUANTA), RENYI_QUANTA)), delta

    def charge(self, *, epsilon: float, delta: float, unit: str) -> None:
        """Charge for an (epsilon, delta)-differentially private model of this unit, before anything is drawn.

        Raise `BudgetSpent`, and charge nothing, if the total would be exceeded.
        """
        if self.unit == "person" and unit != "person":
            raise InvalidInput(
                "this account protects persons with all their records; give the person of each row as groups="
            )
        try:
            self.ledger.budget().spend(Cost(epsilon, delta))
        except BudgetSpent:
            rest = "({:g}, {:g})".format(*self.left())
            raise BudgetSpent(
                f"the account has {rest} left, and this asks for ({epsilon:g}, {delta:g}): nothing was drawn"
            ) from None

    @contextmanager
    def charge_during(self, *, epsilon: float, delta: float, unit: str) -> Iterator[None]:
        """Charge for the model that the block fits; an interrupted caller is told that the charge stays."""
        self.charge(epsilon=epsilon, delta=delta, unit=unit)
        try:
            yield
        except KeyboardInterrupt as error:
            error.__notes__ = [_STAYS]  # inner notes say that nothing is spent, and do not know the account
            raise

    def fit(self, model: Model, *records: Any, groups: Any = None, **options: Any) -> Model:
        """Charge the account for a model's epsilon and delta, fit it and return it.

        Its claim names the account.

        If the fit fails after the charge, the charge stays.
        """
        settings: Any = model
        self.check_claim(settings)
        if groups is not None:
            options["groups"] = groups
        if "account" in settings.get_params(deep=False):  # it charges by itself, after its own checks
            return settings.set_params(account=self).fit(*records, **options)  # type: ignore[no-any-return]
        epsilon, delta = self.whole(settings.epsilon, getattr(settings, "delta", 0.0))  # some have no delta
        settings.set_params(epsilon=epsilon)
        with self.charge_during(epsilon=epsilon, delta=delta, unit="record" if groups is None else "person"):
            settings.fit(*records, **options)
        if isinstance(getattr(type(model), "claim_", None), property):
            settings.total_ = self.total  # until it is fitted again
        else:
            settings.claim_ += f"; {self.total}"
        return model

    def check_claim(self, model: Any) -> None:
        """Refuse a model whose epsilon and delta do not cover all of a unit: `fit` charges exactly those."""
        if not isinstance(model, SavedModel):
            raise InvalidInput(f"a {type(model).__name__} cannot be charged to an account; use a model of Quorate")
        model.check_chargeable()  # proof: step 8 of release/PROOF.md

    def __deepcopy__(self, memo: Any) -> "Account":
        return self  # scikit-learn clones parameters, and an account must not be copied

    def close(self) -> None:
        """Close the ledger."""
        self.ledger.close()


def _open_account(path: Path) -> PrivateFolder:
    folder = open_folder(path)
    if folder.kind != KIND or not isinstance(folder, PrivateFolder):
        raise InvalidInput(f"{path} must be an account, got a model of kind {folder.kind!r}")
    return folder


def _create_account(path: Path, epsilon: float, delta: float, unit: str) -> tuple[PrivateFolder, "ledgers.Ledger"]:
    epsilon, delta = check_positive("epsilon", epsilon), check_delta(delta)
    manifest = {"epsilon": epsilon, "delta": delta, "unit": unit}
    # At order infinity costs are epsilons. The slack holds the deltas of all models, so the budget has a little more.
    account = Budget(epsilon=epsilon, delta=math.nextafter(delta, 1.0) if delta else 0.0, order=math.inf, slack=delta)
    claim = claim_document(shared_node(epsilon, delta, account), unit=unit)
    folder = PrivateFolder.create(path, KIND, manifest, {"claim.json": json.dumps(claim).encode()})
    ledger = ledgers.Ledger.create(path / "ledger.sqlite", account, fingerprint=folder.fingerprint)
    folder.seal()
    return folder, ledger
