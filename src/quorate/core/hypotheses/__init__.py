"""Hypotheses, classes of them, and their mistakes on labelled points: what mechanisms need to know of a class.

The classes themselves (boxes, halfspaces, thresholds and others) are in `quorate.models.concepts`.
"""

__all__: list[str] = []
