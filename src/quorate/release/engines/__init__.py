"""Engines: ways to answer every query of a list from counts, behind one interface. PROOF.md has their claims."""

from quorate.release.engines.adaptive import AdaptiveEngine
from quorate.release.engines.choice import ENGINES, choose_engine, expected_errors
from quorate.release.engines.levels import LevelsEngine
from quorate.release.engines.mixture import Mixture
from quorate.release.engines.plain import PlainEngine
from quorate.release.engines.prefix import PrefixEngine
from quorate.release.engines.released import Engine, Released, around, half_interval
from quorate.release.engines.residual import ResidualEngine
from quorate.release.engines.reweighting import ReweightingEngine
from quorate.release.engines.weights import WeightsEngine

__all__ = [
    "ENGINES",
    "AdaptiveEngine",
    "Engine",
    "LevelsEngine",
    "Mixture",
    "PlainEngine",
    "PrefixEngine",
    "Released",
    "ResidualEngine",
    "ReweightingEngine",
    "WeightsEngine",
    "around",
    "choose_engine",
    "expected_errors",
    "half_interval",
]
