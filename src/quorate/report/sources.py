"""Where a report's claims can be checked: the proofs in the installed package, and the software that was used."""

import platform
from collections.abc import Sequence
from importlib import metadata, resources

__all__ = ["proofs_for", "software_versions"]

_PROOFS = {
    "privacy": ("privacy/PROOF.md", "costs add up over adaptively chosen queries, and convert to (epsilon, delta)"),
    "predictors": ("predictors/PROOF.md", "one unit is dealt to one teacher, and moves at most one ballot a query"),
    "quorum": ("mechanisms/quorum/PROOF.md", "answers are free; each no-quorum costs a fixed price"),
    "noisy_max": ("mechanisms/noisy_max/PROOF.md", "what the name of the noisy winner costs, and no more"),
    "confident_max": ("mechanisms/confident_max/PROOF.md", "each query costs its test, each answer its winner"),
    "sharp_majority": ("mechanisms/sharp_majority/PROOF.md", "what an answer costs, and that none is better at it"),
    "soft_majority": ("mechanisms/soft_majority/PROOF.md", "each query is epsilon-DP, with no delta"),
    "stability": ("mechanisms/stability/PROOF.md", "an epoch up to a no-quorum has one cost, however many answers"),
    "between_thresholds": ("mechanisms/between_thresholds/PROOF.md", "each no-quorum costs a fixed price; two classes"),
}


def proofs_for(aggregator: str | None = None) -> dict[str, str]:
    """Return the proofs that an answer of this aggregator rests on: file in the installed package, what it proves."""
    found = {}
    for key in ("privacy", "predictors", aggregator):
        if key not in _PROOFS:
            continue
        name, line = _PROOFS[key]
        if resources.files("quorate").joinpath(name).is_file():
            found[f"quorate/{name}"] = line
    return found


def software_versions(packages: Sequence[str] = ("quorate", "opendp", "numpy", "scikit-learn")) -> dict[str, str]:
    """Return the versions of Python and of these packages, as far as they are installed."""
    versions = {"Python": platform.python_version()}
    for package in packages:
        try:
            versions[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return versions
