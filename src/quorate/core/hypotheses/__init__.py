"""Hypotheses, classes of them, and their mistakes on labelled points."""
