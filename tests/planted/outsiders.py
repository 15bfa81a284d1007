"""Twelve bugs that somebody planted who did not write the attacks. One general attack finds all of them.

Each changes what is paid: a sensitivity, the number of releases, the order of a charge and a draw. None has an attack
of its own: the attack plays a run of `quorate.auditing.runs` (for a `FederatedClassifier`, a site and its coordinator)
and compares what a unit moved with what was charged.
"""

from dataclasses import replace
from typing import Any

import numpy as np

from planted.attacks import Twin, compare_in_run, judge_charges
from planted.bug import Caught, PlantedBug, replaced, replacement_bug
from planted.sites import QUERIES, SitesHere, opened_models
from quorate.auditing._charges import Played, compare_charges
from quorate.core.ballots import release_counts
from quorate.core.mechanisms import ConfidentMax
from quorate.core.mechanisms.base import Answers
from quorate.core.privacy import Cost
from quorate.models.knn._ballots import Ballot, Terms
from quorate.models.knn._session import Nearby
from quorate.release import _release
from quorate.release._growing import GrowingRelease
from quorate.release.engines import _prefix
from quorate.release.engines._marginals import _Steps
from quorate.release.proposals import Proposals
from quorate.release.queries import Prefixes, Ranges
from quorate.service.sites._site import Site
from quorate.service.sites.coordinator import DeclaredSites


def _pays_for_one_score(self: _Steps, vector: Any, square: int, fraction: float) -> Any:
    """Pay for every vector as for one marginal, and a record moves each of several scores: that is the mistake."""
    return self.payer.draw_release(vector, self.noise, squared_sensitivity=2, fraction=fraction)


def _pays_for_records_once(self: GrowingRelease, measurement: Any, sums: Any) -> tuple[int, ...]:
    """Pay k times for k records of a person, which move a count by k: that is the mistake."""
    inflated = sums.squared_length * self._counted.records_per_person
    return tuple(square * inflated for square in measurement.squares)


def _pays_for_one_cell(self: Ranges) -> int:
    """Pay for the ranges that begin or end at a cell, and not for all that contain it: that is the mistake."""
    return self.length


def _pays_within_a_group(self: Prefixes) -> int:
    """Pay as if a record never changed its group: that is the mistake."""
    return self.length - 1


def _pays_for_one_column(self: _prefix.Grid) -> int:
    """Pay as if a record were added, not replaced: that is the mistake."""
    squares = 1
    for axis in self._axes:
        squares *= axis.squares
    return squares


def _pays_for_the_largest_term(coefficients: Any, lines: int) -> int:
    """Pay for one term of the series instead of all: that is the mistake."""
    return int(2 * coefficients.max() ** 2)


def _measures_for_nothing(self: Proposals, query: Any) -> int:
    """Measure a crossing without a budget: that is the mistake."""
    measurement = self.measurement

    class _Free:
        def __getattr__(self, name: str) -> Any:
            return getattr(measurement, name)

        def release(self, total: int, *, budget: Any) -> int:
            return int(measurement.release(total))

    self.measurement = _Free()
    try:
        return _ANSWER_QUERY(self, query)
    finally:
        self.measurement = measurement


_ANSWER_QUERY = vars(Proposals)["_answer_query"]


def _pays_for_no_report(cls: type[Terms], **settings: Any) -> Terms:
    """Leave reports of wear out of what noise is made for: that is the mistake."""
    terms = _CALIBRATE(**settings)
    return replace(terms, scale=terms.scale * (terms.capacity / terms.squares) ** 0.5)


_CALIBRATE = Terms.calibrate


def _keeps_amounts_afterwards(self: Nearby, X: Any) -> Answers:
    """Draw, and keep what units have spent once that is done: that is the mistake."""
    ballots = self.units.count(self.space.points(X))
    labels = release_counts(ballots, self._answers)
    if self.file is not None:
        self.file.keep_spends(self.units.spends())
    return Answers(labels=labels, spent=Cost(0.0))


def _takes_votes_for_counts(self: Ballot) -> int:
    """Price a replacement as if a vote for one class could not be one against the other: that is the mistake."""
    return 2


def _charges_queries_alone(self: Site, declaration: Any) -> Any:
    """Charge for a query, and not for its answer: that is the mistake."""
    mechanism = self._read_mechanism(declaration)
    return mechanism, mechanism.query_cost(self._budget.order)


def _divides_delta(epsilon: float, delta: float, records: int) -> tuple[float, float]:
    """Divide delta by the number of records, as if group privacy were composition: that is the mistake."""
    return epsilon / records * (1 - 1e-9), delta / records


_DECLARED = ConfidentMax(teachers=20, classes=2, threshold=12, test_scale=40.0, winner_scale=8.0)


def _ask_site(opposed: int) -> Played:
    """Ask a site for its counts, of which so many ballots are for the first class, and answer from them."""
    with opened_models("north") as (opened,):
        counts = DeclaredSites(SitesHere(Site(opened, name="north")), _DECLARED)
        votes = np.tile([opposed, 20 - opposed], (8, 1))
        with replaced(type(opened.session_.answerer.ensemble.electorate), "votes", lambda *_: votes):
            answers = _DECLARED.answers(counts.votes(QUERIES))
        return Played(answers.labels.tolist(), budgets=[opened.budget_])


def _compare_sites(twin: Twin) -> Caught:
    return judge_charges(twin, lambda: compare_charges(_ask_site, 4, 5))


def _bug(name: str, of: tuple[Any, str], broken: Any, run: str) -> PlantedBug:
    return replacement_bug(name, "replay", of, broken, compare_in_run(run))


OUTSIDERS = (
    _bug("scores_paid_as_one", (_Steps, "_release"), _pays_for_one_score, "engine_adaptive"),
    _bug("records_paid_once", (GrowingRelease, "_paid"), _pays_for_records_once, "growing_people"),
    _bug("ranges_paid_by_a_cell", (Ranges, "sensitivity"), _pays_for_one_cell, "queries_ranges"),
    _bug("prefixes_within_a_group", (Prefixes, "sensitivity"), _pays_within_a_group, "queries_prefixes_by_group"),
    _bug("grid_of_an_addition", (_prefix.Grid, "squared_sensitivity"), _pays_for_one_column, "engine_prefix_boxes"),
    _bug(
        "largest_term_of_a_factor",
        (_prefix, "_squared_sensitivity"),
        _pays_for_the_largest_term,
        "engine_prefix_prefixes",
    ),
    _bug("measurement_not_charged", (Proposals, "_answer_query"), _measures_for_nothing, "online"),
    _bug("reports_not_paid", (Terms, "calibrate"), _pays_for_no_report, "nearest"),
    _bug("amounts_kept_afterwards", (Nearby, "draw"), _keeps_amounts_afterwards, "nearest_after_crashes"),
    _bug("replaced_as_if_counted", (Ballot, "replacement"), _takes_votes_for_counts, "nearest_replaced"),
    replacement_bug("site_charges_queries", "replay", (Site, "_price"), _charges_queries_alone, _compare_sites),
    _bug("delta_divided_by_records", (_release, "loss_for_each_record"), _divides_delta, "release_of_people"),
)
