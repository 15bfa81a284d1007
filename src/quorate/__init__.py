"""Answers from sensitive data by secret ballot, with a guarantee that is true.

The way in is one folder per step of the data's path; `quorate.mechanisms` counts ballots under noise,
`quorate.privacy` keeps the budget.

>>> from quorate.mechanisms import Quorum
>>> quorum = Quorum.calibrate(epsilon=2.0, delta=1e-5, teachers=400, no_quorums=5)
>>> quorum.answer([400, 0])
0
"""

from quorate.errors import BudgetSpent, Infeasible, InvalidInput, QuorateError, RunEnded, WrongProcess
from quorate.privacy import Budget, Cost

__all__ = ["Budget", "BudgetSpent", "Cost", "Infeasible", "InvalidInput", "QuorateError", "RunEnded", "WrongProcess"]
__version__ = "0.1.0"
