"""Columns for linear models, made from public rows or declared bounds: a step a category, a ramp between two cuts."""

from quorate.features.additive import AdditiveColumns

__all__ = ["AdditiveColumns"]
