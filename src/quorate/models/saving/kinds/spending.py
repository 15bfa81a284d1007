"""What a model's account makes in all: the guarantee of everything that leaves the model, and what was spent of it.

An account is kept for what answers pay. That is not the whole where a part was spent by the fit, where the answers come
from a secret sample of the records, or where a hypothesis is published beside them. A page or a command that told the
account's own epsilon would promise more than the model does.
"""

from dataclasses import replace

from quorate.core.ledger import LedgerView
from quorate.models.predictors.relabelled_sample import RelabelledSample
from quorate.models.saving.folder import PrivateFolder

__all__ = ["view_in_all"]


def view_in_all(folder: PrivateFolder, view: LedgerView) -> LedgerView:
    """Return the view of a model's ledger with epsilon, delta and what was spent as the model's claim counts them."""
    manifest, kind = folder.manifest, folder.kind
    if kind == "stable":  # each prediction has a delta of its own, and nobody says how many there will be
        return replace(view, epsilon=0.0, delta=1.0, spent_epsilon=0.0)
    if kind not in ("classifier", "agnostic", "universal"):
        return view
    spent = view.spent_epsilon
    if kind == "classifier":
        estimate = manifest.get("estimate")  # models/predictors/PROOF.md, step 7
        spent += 0.0 if estimate is None else estimate["epsilon"]
    else:
        calibrated = manifest["calibrated"]
        spent = RelabelledSample(**calibrated["sample"]).spent(spent)  # models/predictors/PROOF_CONCEPTS.md, step 3
        if kind == "universal":  # step 9
            spent = min(spent, calibrated["ballots_epsilon"])
            spent += calibrated["hypothesis_epsilon"] if view.chosen else 0.0
    epsilon, delta = float(manifest["epsilon"]), float(manifest["delta"])
    return replace(view, epsilon=epsilon, delta=delta, spent_epsilon=min(epsilon, spent))
