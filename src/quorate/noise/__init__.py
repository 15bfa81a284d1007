"""Exact integer noise from OpenDP's samplers over the operating system's randomness.

Nothing here takes a seed, and nothing returns a float. Only `quorate.mechanisms` may import this package. A forked
child never repeats a draw of its parent.
"""

from quorate.noise.process import process_identity
from quorate.noise.source import NoiseSource, SystemNoise, system_noise

__all__ = ["NoiseSource", "SystemNoise", "process_identity", "system_noise"]
