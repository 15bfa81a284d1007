"""Columns for linear models, from public rows or declared bounds: categories, curves of numbers, words."""

from quorate.tables.features.additive import AdditiveColumns
from quorate.tables.features.words import HashedColumns

__all__ = ["AdditiveColumns", "HashedColumns"]
