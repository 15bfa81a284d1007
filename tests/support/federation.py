"""Small sites for tests: three owners whose teachers differ, in folders with ledgers of their own."""

import hashlib

import numpy as np

import quorate as qr
from quorate.core.mechanisms import DistributedMax, NoisyMax
from quorate.models.saving import load
from quorate.models.saving.codecs import to_plain
from quorate.service.sites._messages import Declaration, Masks
from quorate.service.sites._site import Site

NAMES = ["east", "north", "south"]
TEACHERS = {"east": 30, "north": 40, "south": 50}
TOTAL = 120
QUERIES = np.array([[2.0, 0.0], [-2.0, 0.5], [0.1, 0.0], [1.0, -1.0]])


def made_folder(home, name, *, queries=100, epsilon=4.0):
    """Fit the model of a site, and return its folder."""
    rng = np.random.default_rng(NAMES.index(name))
    X = rng.normal(size=(TEACHERS[name] * 12, 2))
    y = np.where(X[:, 0] + 0.3 * NAMES.index(name) > rng.normal(0, 0.3, len(X)), "yes", "no")
    settings = {"epsilon": epsilon, "delta": 1e-6, "queries": queries, "classes": ["no", "yes"]}
    classifier = qr.PrivateClassifier(teachers=TEACHERS[name], aggregator="noisy_max", **settings).fit(X, y)
    return qr.save(classifier, home / name)


def words(secret, context, size):
    """A stream of masks for tests that need no cryptography."""
    return hashlib.shake_256(secret + context).digest(size)


def masks_for(name, stream=words):
    """The masks of one of the three sites."""
    secrets = {other: "-".join(sorted([name, other])).encode() for other in NAMES if other != name}
    return Masks(name, secrets, stream=stream)


def declared(mode="counts", **changed):
    """A declaration that all three sites agree to."""
    if mode == "noise":
        mechanism = DistributedMax.calibrate(
            **{"epsilon": 4.0, "delta": 1e-6, "teachers": TOTAL, "classes": 2, "queries": 100}
            | {"sites": 3, "corrupt": 1}
            | changed
        )
    else:
        known = {"epsilon": 4.0, "delta": 1e-6, "teachers": TOTAL, "classes": 2, "queries": 100}
        mechanism = NoisyMax.calibrate(**known | changed)
    return Declaration(to_plain(mechanism), NAMES, mode)


def opened_site(folder, mode="counts", **settings):
    """The site of a folder."""
    masks = None if mode == "counts" else masks_for(folder.name)
    return Site(load(folder), name=folder.name, mode=mode, masks=masks, **settings)
