"""Exact integer noise from OpenDP's samplers, whose generator is seeded by the operating system.

Nothing here takes a seed, and nothing returns a float. Only `quorate.core.mechanisms` may import this package. A forked
child never repeats a draw of its parent: buffers are dropped at the fork, the generator seeds itself anew where the
process number changed, and where it did not, drawing is refused.
"""

from quorate.core.noise.source import NoiseSource, SystemNoise, system_noise

__all__ = ["NoiseSource", "SystemNoise", "system_noise"]
