"""A growing release in a folder, without pickle: its owner's alone, since it holds the exact counts of every update.

    manifest.json     what it is about, the guarantee, how many updates, what is measured with which noise
    public.npz        the matrix of the running sums; public points, or public rows by their codes
    update-....npz    of each update: its name, what was measured with noise, the exact counts, who was counted
    the ledger's files, as in every private model (`quorate.models.saving.kinds.private`)

The whole account is charged. The ledger has the hash of each update's file under the update's number, once: a file is
on the disk before the ledger speaks of it, and the ledger before answers leave. So an update is drawn once, whatever
crashes, and an old copy of the folder is refused.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quorate.core.errors import InvalidInput, LedgerRefused
from quorate.core.ledger import LOST, Ledger
from quorate.core.mechanisms.noisy_vector import NoisyVector
from quorate.core.privacy.claims import Total
from quorate.core.requests import OWN_CALLER
from quorate.models.saving.codecs import arrays_from, arrays_of
from quorate.models.saving.folder import Extra, PrivateFolder, Trusted, check_folder, sync_names, write_new
from quorate.models.saving.kinds.release import domain_files, domain_from
from quorate.release.domain import SealedCounts
from quorate.release.growing import GrowingRelease, KeptUpdate, Plan, RunningSums

__all__ = ["FOLDER", "KIND", "restore", "save"]

KIND, FOLDER = "growing release", PrivateFolder
_SETTINGS = ("epsilon", "delta", "updates", "engine", "records_per_person", "error", "target")
_HASHES = 2**63  # a ledger keeps numbers below this


def save(release: GrowingRelease, folder: str | Path, *, extra: Extra = None) -> Path:
    """Write a growing release with at least one update into a new folder, and let it go on from there."""
    check_folder(Path(folder))
    for name in extra or {}:
        if name.startswith("update-"):
            raise InvalidInput(f"extra must not be named like an update, as {name!r} is")
    with release.held():  # an update that is made meanwhile would not be in the folder, and be drawn again from there
        return _write(release, folder, extra)


def _write(release: GrowingRelease, folder: str | Path, extra: Extra) -> Path:
    plan = release.plan_
    if plan is None:
        raise InvalidInput("a growing release is saved after its first update, which says what is measured")
    if release.is_kept:
        raise InvalidInput("this release has a folder already, and goes on there; load it from there")
    arrays, about = domain_files(release.domain_)
    weights = release.error_weights
    manifest = {
        "claim": release.claim_,
        "settings": {name: getattr(release, name) for name in _SETTINGS},
        "error_weights": None if weights is None else list(weights.items()),
        "unit": release.unit_,
        "total": release.total_ and asdict(release.total_),
        "plan": {"engine": plan.engine, "planned": plan.planned, "noise": plan.noise},
        "mechanism": asdict(plan.mechanism),
        "about": about,
    }
    public = arrays_of(**arrays, running_sums=plan.sums.coefficients)
    created = FOLDER.create(folder, KIND, manifest, {"public.npz": public}, extra=extra)
    ledger = Ledger.create(created.path / "ledger.sqlite", release.budget_, fingerprint=created.fingerprint)
    store = _UpdateFiles(created.path, ledger)
    for number, update in enumerate(release.kept, start=1):
        store.keep(number, update)
    release.budget_ = ledger.budget()
    release.go_on(plan, release.kept, store)
    return created.seal()


def restore(folder: PrivateFolder, *, trusted: Trusted = None, lease: int = 0) -> GrowingRelease:
    """Return the release of a folder, with all updates that were made. There is nothing to lease: all is paid for."""
    ledger, manifest = folder.ledger(), folder.manifest
    arrays = arrays_from(folder.contents["public.npz"])
    sums = RunningSums(arrays.pop("running_sums"))
    subject, domain = domain_from(arrays, manifest["about"])
    release = GrowingRelease(subject, **manifest["settings"], error_weights=_weights(manifest), domain=domain)
    release.total_ = manifest["total"] and Total(**manifest["total"])
    described = manifest["plan"]
    planned = described["planned"] and (tuple(map(tuple, described["planned"][0])), tuple(described["planned"][1]))
    mechanism = NoisyVector(**{name: tuple(values) for name, values in manifest["mechanism"].items()})
    plan = Plan(described["engine"], planned, described["noise"], sums, mechanism)
    store = _UpdateFiles(folder.path, ledger)
    try:
        release.budget_ = ledger.budget()
        release.go_on(plan, store.read(), store)
    except BaseException:
        ledger.close_store()
        raise
    return release


def _weights(manifest: Mapping[str, Any]) -> dict[Any, float] | None:
    given = manifest["error_weights"]
    return given and {tuple(key) if isinstance(key, list) else key: weight for key, weight in given}


class _UpdateFiles:
    """The files of the updates, each known to the ledger by its hash."""

    def __init__(self, path: Path, ledger: Ledger) -> None:
        self._path, self._ledger = path, ledger

    def keep(self, number: int, update: KeptUpdate) -> None:
        """Write an update, then tell the ledger, which refuses where another update has this number."""
        self._check_current()
        content = _content(update)
        path = self._file(number, _hash(content))
        write_new(path, content, synced=True)
        sync_names(self._path)
        self._ledger.keep_own({_key(number): _hash(content)})
        for other in self._path.glob(f"update-{number:04}-*"):
            if other != path:  # of a run that ended before the ledger knew of it: from here on none can tell it
                other.unlink(missing_ok=True)

    def read(self) -> list[KeptUpdate]:
        """Return the updates that the ledger knows; a file that it does not know was never answered from."""
        self._check_current()
        updates: list[KeptUpdate] = []
        while (known := self._known(len(updates) + 1)) is not None:
            path = self._file(len(updates) + 1, known)
            try:
                content = path.read_bytes()
            except OSError:
                raise LedgerRefused(f"{path} is missing: without its updates a release does not go on") from None
            if _hash(content) != known:
                raise LedgerRefused(f"{path} was changed by something else; the release does not go on")
            updates.append(_update(arrays_from(content)))
        return updates

    def close(self) -> None:
        """Let go of the ledger."""
        self._ledger.close()

    def _file(self, number: int, known: int) -> Path:
        return self._path / f"update-{number:04}-{known:016x}.npz"

    def _known(self, number: int) -> int | None:
        return self._ledger.recall(OWN_CALLER, [_key(number)]).get((OWN_CALLER, _key(number)))

    def _check_current(self) -> None:
        if self._ledger.choice() == LOST:
            raise LedgerRefused(
                "this ledger was restored from an old copy and does not know which updates were made since: none "
                "is made from it. Begin another release: its epsilon and the old one's add up"
            )


def _key(number: int) -> bytes:
    return b"update %d" % number


def _hash(content: bytes) -> int:
    return int.from_bytes(hashlib.sha256(content).digest()[:8]) % _HASHES


def _content(update: KeptUpdate) -> bytes:
    """Return the file of an update: the owner's own. Nothing is released here."""
    vectors: list[NDArray[Any]] = update.vectors.put_to(list)
    people: NDArray[Any] | None = update.people.put_to(lambda digests: digests)
    arrays: dict[str, Any] = {f"noisy{place}": part for place, part in enumerate(update.noisy)}
    arrays |= {f"exact{place}": part for place, part in enumerate(vectors)}
    arrays |= {"name": np.frombuffer(update.name.encode(), dtype=np.uint8), "records": np.array([update.records])}
    return arrays_of(True, **arrays, **({} if people is None else {"people": people}))


def _update(arrays: dict[str, NDArray[Any]]) -> KeptUpdate:
    parts = range(sum(name.startswith("noisy") for name in arrays))
    return KeptUpdate(
        arrays["name"].tobytes().decode(),
        int(arrays["records"][0]),
        [arrays[f"noisy{place}"] for place in parts],
        SealedCounts([arrays[f"exact{place}"] for place in parts]),
        SealedCounts(arrays.get("people")),
    )
