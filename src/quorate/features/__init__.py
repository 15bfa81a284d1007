"""Columns for linear models, from public rows or declared bounds: categories, curves of numbers, words."""

from quorate.features.additive import AdditiveColumns
from quorate.features.hashed import HashedColumns

__all__ = ["AdditiveColumns", "HashedColumns"]
