"""Choosing among candidate models by private trials, with the cost of choosing counted. PROOF.md."""

from quorate.models.selection._search import PrivateSearchCV
from quorate.models.selection._trials import plan_search

__all__ = ["PrivateSearchCV", "plan_search"]
