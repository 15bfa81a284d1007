"""An online release in a folder, without pickle.

    manifest.json     what it is about, the guarantee, alpha, and the calibrated mechanism
    public.npz        public points, or public rows by their codes: the start of the model
    counts.npz        the private records by their cells: the owner's alone, as the teachers of a classifier are
    the ledger's files, as in every private model (`quorate.models.saving.kinds.private`)

The ledger has the budget, the secret noise of the run, and what was measured, in order: a restart learns it again.
"""

from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quorate.core.mechanisms.above_threshold import AboveThreshold
from quorate.core.session import Session
from quorate.models.saving.codecs import arrays_from, arrays_of
from quorate.models.saving.folder import Extra, PrivateFolder, Trusted
from quorate.models.saving.kinds.private import check_movable, move_into
from quorate.models.saving.kinds.release import domain_files, domain_from
from quorate.release.domain import SealedCounts
from quorate.release.online import OnlineRelease
from quorate.release.queries import Rows

__all__ = ["FOLDER", "KIND", "restore", "save"]

KIND, FOLDER = "online release", PrivateFolder


def save(release: OnlineRelease, folder: str | Path, *, extra: Extra = None) -> Path:
    """Write a fitted release into a new folder, and let it spend from the ledger there from now on."""
    check_movable(release, folder)
    arrays, about = domain_files(release.domain_)
    answers, budget = release.session_.answerer, release.budget_
    manifest = {
        "claim": release.claim_,
        "epsilon": budget.epsilon,  # of the fit: parameters may have been changed since
        "delta": budget.delta,
        "alpha": release.alpha_,
        "unit": release.unit_,
        "records": release.records_,
        "mechanism": asdict(answers.mechanism),
        "about": about,
    }
    counts = answers.counts.put_to(_counted)  # into the owner's own file: nothing is released here
    contents = {"public.npz": arrays_of(**arrays), "counts.npz": arrays_of(**counts)}
    return move_into(folder, KIND, release, manifest, contents, extra=extra)


def restore(folder: PrivateFolder, *, trusted: Trusted = None, lease: int = 0) -> OnlineRelease:
    """Return the release of a folder. It spends from the folder's ledger, which proves the manifest."""
    ledger, manifest, contents = folder.ledger(), folder.manifest, folder.contents
    subject, domain = domain_from(arrays_from(contents["public.npz"]), manifest["about"])
    settings = {name: manifest[name] for name in ("epsilon", "delta", "alpha")}
    release = OnlineRelease(subject, **settings)
    described = manifest["mechanism"]
    mechanism = AboveThreshold(**(described | {"table": tuple(described["table"])}))
    counts = _sealed(arrays_from(contents["counts.npz"]))
    answers = release.prepare(domain, counts, int(manifest["records"]), mechanism, unit=manifest["unit"])
    release.session_ = Session(answers, ledger.budget(lease=lease), ledger=ledger)
    return release


def _counted(counts: Any) -> dict[str, NDArray[Any]]:
    """Return sealed counts as arrays, for the owner's file and for nothing else."""
    if isinstance(counts, Rows):
        return {"codes": counts.codes, "sizes": np.array(counts.sizes, dtype=np.int64), "weights": counts.weights}
    return {"counts": counts}


def _sealed(arrays: dict[str, NDArray[Any]]) -> SealedCounts:
    if "counts" in arrays:
        return SealedCounts(arrays["counts"])
    return SealedCounts(Rows(arrays["codes"], arrays["sizes"].tolist(), arrays["weights"]))
