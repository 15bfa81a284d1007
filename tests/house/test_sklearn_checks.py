"""scikit-learn's own checks of every public estimator: each passes, or is listed with the reason."""

import re
import warnings
from importlib import import_module

import pytest
from check_subjects import SUBJECTS
from sklearn.base import BaseEstimator
from sklearn.utils.estimator_checks import check_estimator
from test_public_names import API

import quorate as qr
from quorate.core.mechanisms import ExponentialChoice
from quorate.models.sklearn_checks import NO_ANSWER, NOISE, expected_failed_checks
from quorate.service.sites import FederatedClassifier
from support.documents import DOCS

BY_CHANCE = (NOISE, NO_ANSWER)  # two draws may agree
RELEASES = {qr.QueryRelease, qr.OnlineRelease, qr.GroupRelease}  # which are fitted on a table, and predict nothing
AT_SITES = {FederatedClassifier}  # whose teachers are fitted elsewhere: from_sites makes it
OF_TEXTS = {qr.PromptClassifier}  # which takes no matrix
NOT_THE_ESTIMATOR = ("non deterministic", "SCIPY_ARRAY_API")  # why scikit-learn itself leaves a check out


def outcomes(estimator, expected):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return check_estimator(estimator, expected_failed_checks=expected, on_fail=None, on_skip=None)


LONG = ("OwnPrivatePoissonRegression", "OwnPrivateSearchCV")  # others share their code


@pytest.mark.parametrize(
    "estimator",
    [pytest.param(one, marks=[pytest.mark.long] if type(one).__name__ in LONG else []) for one in SUBJECTS],
    ids=lambda subject: type(subject).__name__,
)
def test_every_check_passes_or_is_listed_with_its_reason(estimator):
    expected = expected_failed_checks(estimator)
    results = outcomes(estimator, expected)
    assert len(results) > 40
    failed = [(one["check_name"], one["exception"]) for one in results if one["status"] == "failed"]
    assert not failed
    skipped = [str(one["exception"]) for one in results if one["status"] == "skipped"]
    assert all(any(reason in text for reason in NOT_THE_ESTIMATOR) for text in skipped), skipped
    passed = {one["check_name"] for one in results if one["status"] == "passed"}
    assert not {name for name, reason in expected.items() if name in passed and reason not in BY_CHANCE}


def test_what_is_listed_for_its_noise_passes_without_noise(monkeypatch):
    """The first of the best hypotheses in place of a random one: then two fits agree, and nothing is left to list."""
    monkeypatch.setattr(ExponentialChoice, "choose", lambda self, tally: tally.pick(tally.counts.nonzero()[0][0], 0))
    [subject] = [one for one in SUBJECTS if isinstance(one, qr.SemiPrivateClassifier)]
    assert {one["status"] for one in outcomes(subject, {})} == {"passed", "skipped"}


def test_every_public_estimator_is_checked():
    public = [getattr(import_module(module), name) for module, name in API]
    estimators = {kind for kind in public if isinstance(kind, type) and issubclass(kind, BaseEstimator)}
    checked = {kind for subject in SUBJECTS for kind in type(subject).__mro__}
    assert estimators - checked == RELEASES | AT_SITES | OF_TEXTS
    assert len(estimators) >= 20


@pytest.mark.parametrize("estimator", SUBJECTS, ids=lambda subject: type(subject).__name__)
def test_a_class_of_ones_own_has_the_list_of_what_it_extends(estimator):
    listed = expected_failed_checks(estimator)
    assert expected_failed_checks(type("Own", (type(estimator),), {})(**estimator.get_params(deep=False))) == listed
    listed.clear()
    assert expected_failed_checks(qr.PrivateClassifier())


def rows_of_the_page():
    """Return the table of docs/reference/scikit-learn.md: for each estimator and reason, the checks that fail."""
    rows = []
    for subject in SUBJECTS:
        name = type(subject).__name__.removeprefix("Own")
        reasons = {}
        for check, reason in expected_failed_checks(subject).items():
            reasons.setdefault(reason, []).append(f"`{check}`")
        rows += [f"| `{name}` | {', '.join(sorted(checks))} | {reason} |" for reason, checks in reasons.items()]
    return list(dict.fromkeys(rows))


def test_the_page_of_the_reference_has_the_table():
    page = (DOCS / "reference" / "scikit-learn.md").read_text()
    assert re.findall(r"^\| `.*\|$", page, re.MULTILINE) == rows_of_the_page()
    clean = {type(one).__name__.removeprefix("Own") for one in SUBJECTS if not expected_failed_checks(one)}
    told = re.sub(r"\s+", " ", page).partition("No check fails for ")[2].partition(".")[0]
    assert set(re.findall(r"`(\w+)`", told)) == {name.replace("Drawn", "Hashed") for name in clean}
