"""One site of a federation: it charges its own ledger by its own accounting, and then sends counts.

Claim (replace-one units within this site, one ballot per unit): if the counts are used as declared, every function of
the answers of this site is (epsilon, delta)-differentially private for the epsilon and delta of its own ledger, for
every sequence of queries. The mode determines who must follow the declaration. Proof: PROOF.md.
"""

import secrets
import threading
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quorate.compute.ensemble.clusters import ClusterTeachers
from quorate.compute.ensemble.electorate import EndpointTeachers
from quorate.compute.ensemble.estimators import EstimatorTeachers
from quorate.compute.learners import Teachers
from quorate.core.ballots import release_votes
from quorate.core.errors import IdReused, InvalidInput, QuorateError
from quorate.core.mechanisms import DistributedMax
from quorate.core.mechanisms.base import QueryMechanism
from quorate.core.privacy import Cost
from quorate.core.privacy.budget import charged_together
from quorate.core.requests import Admitted, Asked
from quorate.models.predictors import PrivateClassifier
from quorate.models.saving.codecs import from_plain
from quorate.models.saving.documents import MECHANISMS
from quorate.service.sites._messages import MODES, About, Batch, Counted, Declaration, Masks, Mode

_CALLER = "federation"  # under which the ledger keeps the ids of batches
_PRICES = 64  # The number of mechanisms with a cached price.
_ONE_BALLOT_A_UNIT = (Teachers, EstimatorTeachers, ClusterTeachers, EndpointTeachers)


class Site:
    """The teachers of one owner, and the ledger that pays for their ballots.

    Parameters
    ----------
    classifier
        A `PrivateClassifier` that was loaded from its folder, so that its budget is in a ledger.
    name
        The name of this site in the federation.
    mode
        What the coordinator may see: "counts", only "sums" of all sites, or "noise", only noisy sums. A declaration of
        another mode is refused.
    masks
        The masks that this site shares with the others, for "sums" and "noise".
    corrupt
        For "noise": how many corrupt other sites the declared noise must tolerate, at least, without harm to the people
        of this one.
    schema
        The hash of the schema by which queries are encoded.

    >>> import tempfile, quorate
    >>> X, y = [[0.0], [1.0]] * 600, [0, 1] * 600
    >>> classifier = PrivateClassifier(epsilon=2.0, teachers=40, queries=10, aggregator="noisy_max").fit(X, y)
    >>> folder = tempfile.TemporaryDirectory()
    >>> site = Site(quorate.load(quorate.save(classifier, f"{folder.name}/north")), name="north")
    >>> site.about().teachers, site.about().labels
    (40, [0, 1])
    >>> mechanism = {"kind": "NoisyMax", "teachers": 400, "classes": 2, "scale": 30.0}  # of all sites together
    >>> declaration = Declaration(mechanism, ["north", "south"], "counts")
    >>> before = site.payable(declaration)
    >>> reply = site.ballots(Batch.of("0123456789abcdef" * 2, declaration, np.array([[1.0], [0.0]])))
    >>> reply.totals(2, 2).tolist(), before - reply.payable
    ([[0, 40], [40, 0]], 2)
    >>> site.close(), folder.cleanup()
    (None, None)
    """

    def __init__(
        self,
        classifier: PrivateClassifier,
        *,
        name: str,
        mode: Mode = "counts",
        masks: Masks | None = None,
        corrupt: int = 0,
        schema: str = "",
    ) -> None:
        if not isinstance(classifier, PrivateClassifier) or classifier.session_.ledger is None:
            raise InvalidInput(
                "classifier must be a PrivateClassifier from a folder, because its ledger holds the budget"
            )
        self._check_teachers(classifier.session_.answerer.ensemble.electorate)
        if classifier.form_ is not None:
            raise InvalidInput("classifier must take rows of numbers; fit it on a matrix or with a schema")
        if mode not in MODES:
            raise InvalidInput(f"mode must be one of {', '.join(MODES)}, not {mode!r}")
        if (masks is None) != (mode == "counts") or (masks is not None and masks.name != name):
            raise InvalidInput("masks must be this site's own, and require mode 'sums' or 'noise'")
        self.name, self.mode, self._masks, self._corrupt = name, mode, masks, corrupt
        self._classifier, self._schema = classifier, schema
        self._session = classifier.session_
        self._budget: Any = self._session.budget
        self.start = secrets.token_hex(16)  # Distinguishes this object from others with the same keys.
        self._prices: dict[bytes, tuple[QueryMechanism, Cost]] = {}
        self._lock = threading.Lock()

    def _check_teachers(self, teachers: Any) -> None:
        """Refuse teachers with several ballots a unit, and teachers whose ballots are charged elsewhere."""
        if not isinstance(teachers, _ONE_BALLOT_A_UNIT):  # proof: step 3
            raise InvalidInput(
                "classifier must have its own teachers with one ballot a unit; a federation cannot be a site of "
                "another federation, because its sites would charge for another mechanism"
            )

    @property
    def teachers(self) -> int:
        """The number of teachers here."""
        return self._classifier.teachers_

    def about(self) -> About:
        """Return the public description of this site."""
        classifier = self._classifier
        labels, features = classifier.classes_.tolist(), int(classifier.n_features_in_)
        return About(self.name, self.teachers, labels, features, classifier.unit_, self.mode, self._schema)

    def payable(self, declaration: Declaration) -> int:
        """Return how many queries under this declaration the ledger can pay for, or refuse it.

        Nothing is charged.
        """
        return int(self._budget.affordable(self._price(declaration)[1]))

    def ballots(self, batch: Batch) -> Counted:
        """Charge for a batch and return its counts in the form of the mode. A batch is answered once."""
        queries = self._classifier.check_queries(batch.queries())
        mechanism, cost = self._price(batch.declaration)
        self._check_starts(batch)
        context = batch.context()
        self._take(
            Asked(_CALLER, (context,), batch.id, context), cost, batch.rows
        )  # charge, then answer; proof: step 2
        counts = release_votes(
            self._session.answerer.ensemble, queries, lambda votes: self._seal(votes, mechanism, context)
        )
        return Counted(batch.id, context, counts.astype("<u8").tobytes(), int(self._budget.affordable(cost)))

    def _take(self, request: Asked, cost: Cost, rows: int) -> None:
        """Take the id of a batch, charge for its rows, and note that the id is used: all on the disk, in this order."""
        ledger = self._session.ledger
        assert ledger is not None
        with self._lock:  # The ledger cannot distinguish two requests of one id from one process.
            (admitted,) = ledger.admit([request])
            if not isinstance(admitted, Admitted):
                raise admitted
            if admitted.outcome is not None:
                raise _id_reused()  # proof: step 4
            self._budget.spend(cost, times=rows)
            mark = secrets.randbelow(2**31)
            (marks,) = ledger.keep({}, {(request.caller, request.body): mark}, [request], kept_before=1)
            if marks != [mark]:  # another process took this one for dead, and the id with it
                raise marks if isinstance(marks, QuorateError) else _id_reused()

    def _check_starts(self, batch: Batch) -> None:
        """Refuse masks that are not of this start of this site: another may have used them. proof: step 4."""
        if self._masks is None:
            return
        if sorted(batch.starts) != self._masks.roster or batch.starts[self.name] != self.start:
            raise InvalidInput("this site has started anew, or the batch is not for it: enrol again, and ask again")

    def _seal(self, votes: NDArray[np.int64], mechanism: QueryMechanism, context: bytes) -> NDArray[np.uint64]:
        """Return the counts in the form that may leave the site."""
        if isinstance(mechanism, DistributedMax):
            votes = mechanism.add_share(votes, teachers=self.teachers)
        return votes.view(np.uint64) if self._masks is None else self._masks.masked(votes, context)

    def _price(self, declaration: Declaration) -> tuple[QueryMechanism, Cost]:
        """Return the declared mechanism and the cost of a query by this site's own accounting; proof: step 3."""
        digest = declaration.digest()
        price = self._prices.get(digest)
        if price is None:
            mechanism = self._read_mechanism(declaration)
            order = self._budget.order
            price = mechanism, charged_together(mechanism.query_cost(order), mechanism.answer_cost(order))
            if len(self._prices) < _PRICES:
                self._prices[digest] = price
        return price

    def _read_mechanism(self, declaration: Declaration) -> QueryMechanism:
        """Return the mechanism of a declaration that this site agrees to."""
        if declaration.mode != self.mode:
            raise InvalidInput(f"this site answers in the mode {self.mode!r} alone")
        if self._masks is not None and declaration.roster != self._masks.roster:
            raise InvalidInput(f"this site adds up with {', '.join(self._masks.roster)} alone")
        try:
            mechanism = from_plain(declaration.mechanism, *MECHANISMS)
        except (KeyError, TypeError, ValueError) as error:
            text = str(error) if isinstance(error, InvalidInput) else "it is none that this version knows"
            raise InvalidInput(f"the declared mechanism is refused: {text}") from None
        if not isinstance(mechanism, QueryMechanism):
            raise InvalidInput(
                "a site prices mechanisms that pay for each query: no-quorums happen where it cannot see"
            )
        classes = len(self._classifier.classes_)
        if mechanism.teachers < self.teachers or mechanism.vote_columns() not in (None, classes):
            raise InvalidInput(f"the mechanism must count {classes} classes, and no fewer teachers than are here")
        self._check_noise(mechanism, declaration)
        return mechanism

    def _check_noise(self, mechanism: QueryMechanism, declaration: Declaration) -> None:
        """Refuse noise that is added nowhere, or that too few sites add."""
        if isinstance(mechanism, DistributedMax) != (self.mode == "noise"):
            raise InvalidInput("DistributedMax is for the mode 'noise', in which sites add noise, and is its mechanism")
        if isinstance(mechanism, DistributedMax) and (
            mechanism.sites != len(declaration.roster) or mechanism.corrupt < self._corrupt
        ):
            raise InvalidInput(
                f"noise must be shared among the {len(declaration.roster)} sites that add up, and suffice with "
                f"{self._corrupt} of them corrupt"
            )

    def close(self) -> None:
        """Close the ledger."""
        self._session.close()


def _id_reused() -> IdReused:
    return IdReused("this batch was answered before. Ask in a new batch")
