"""Seeded twins for simulation. Serving code cannot import this package: an import contract forbids it.

Nothing here protects anybody: the noise is drawn in floating point from a generator that anyone can replay.
"""

from quorate.auditing.simulation.seeded import SeededNoise, simulate

__all__ = ["SeededNoise", "simulate"]
