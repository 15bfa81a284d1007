"""Prediction sets and intervals around a published model."""
