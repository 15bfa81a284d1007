"""Relabel: every row gets the label of one privately chosen hypothesis."""

from quorate.core.mechanisms.relabel.mechanism import Relabel, Relabelled

__all__ = ["Relabel", "Relabelled"]
