"""Choosing among candidate models by private trials, with the cost of choosing counted. PROOF.md."""

from quorate.models.selection.plan import SearchPlan, plan_search
from quorate.models.selection.search import PrivateSearchCV

__all__ = ["PrivateSearchCV", "SearchPlan", "plan_search"]
