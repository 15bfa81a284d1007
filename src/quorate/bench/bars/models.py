"""Bars of `quorate bench models`: linear models."""

from quorate.bench.figures import Bar

__all__ = ["MODELS"]

MODELS: dict[str, Bar | None] = {
    # A random half of the test file is public, columns are automatic, delta is 1e-5: medians over five splits.
    "linear.adult.epsilon1.auc": (">=", 0.904),
    "linear.adult.epsilon1.accuracy_percent": (">=", 85.4),
    "linear.adult.epsilon1.balanced_percent": None,
    "linear.adult.epsilon0.25.auc": (">=", 0.900),
    "linear.adult.epsilon0.25.accuracy_percent": (">=", 85.0),
    "linear.adult.epsilon0.25.balanced_percent": None,
    "linear.adult.epsilon0.05.auc": None,
    "linear.adult.epsilon0.05.accuracy_percent": (">=", 83.7),
    "linear.adult.epsilon0.05.balanced_percent": None,
    "linear.bank.epsilon1.auc": (">=", 0.903),
    "linear.bank.epsilon1.accuracy_percent": None,
    "linear.bank.epsilon1.balanced_percent": (">=", 80.0),  # with the threshold at the share of the rare class
    "linear.bank.epsilon0.25.auc": (">=", 0.893),
    "linear.bank.epsilon0.25.accuracy_percent": None,
    "linear.bank.epsilon0.25.balanced_percent": None,
    # Public rows of one sex only, or of people over 45 only.
    "linear.adult.public_women.epsilon1.auc": (">=", 0.89),
    "linear.adult.public_women.epsilon1.accuracy_percent": (">=", 84.0),
    "linear.adult.public_women.epsilon1.balanced_percent": None,
    "linear.adult.public_men.epsilon1.auc": (">=", 0.89),
    "linear.adult.public_men.epsilon1.accuracy_percent": (">=", 84.0),
    "linear.adult.public_men.epsilon1.balanced_percent": None,
    "linear.adult.public_over_45.epsilon1.auc": (">=", 0.89),
    "linear.adult.public_over_45.epsilon1.accuracy_percent": (">=", 84.0),
    "linear.adult.public_over_45.epsilon1.balanced_percent": None,
    # A million rows of 100 columns.
    "linear.million_rows.seconds": ("<=", 20.0),
    "linear.million_rows.peak_bytes": ("<=", 2.0**31),
}
