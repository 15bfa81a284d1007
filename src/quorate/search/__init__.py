"""Choosing among candidate models by private trials, with the cost of choosing counted. PROOF.md."""

from quorate.search.plan import SearchPlan, plan_search
from quorate.search.search import PrivateSearchCV

__all__ = ["PrivateSearchCV", "SearchPlan", "plan_search"]
