"""Prediction sets and intervals around a published model."""

__all__: list[str] = []
