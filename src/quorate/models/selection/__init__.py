"""Choosing among candidate models by private trials, with the cost of choosing counted. PROOF.md."""

from quorate.models.selection.search import PrivateSearchCV
from quorate.models.selection.trials import plan_search

__all__ = ["PrivateSearchCV", "plan_search"]
