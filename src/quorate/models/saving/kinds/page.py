"""Publishing: a folder with a page, for whoever finds it, that says what is claimed and what may be shown to whom."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from quorate.models.saving.codecs import check_loads
from quorate.models.saving.folder import GUARANTEE_FILE, Extra, PublishedFolder

__all__ = ["publish_folder"]

_WHAT = {
    "student": "A classifier trained on public points that private teachers have labelled.",
    "published hypothesis": "A hypothesis that was chosen privately.",
    "linear model": "A linear model, fitted by noisy sums of private records.",
    "conformal": "Sets or intervals around the answers of a published model, as wide as private records ask for.",
    "query release": "Answers to counting queries, released privately.",
}


def publish_folder(
    folder: str | Path,
    kind: str,
    manifest: dict[str, Any],
    contents: dict[str, bytes],
    *,
    extra: Extra,
    trusted: Sequence[str] | None = None,
    facts: Sequence[str] = (),
) -> Path:
    """Write a model that may be published into a new folder, with its page; `facts` are told there, one a line.

    `trusted` names types of estimators that `load` will be told to trust.
    """
    check_loads(contents, trusted)
    names = [*contents, *(extra or {}), "manifest.json"]
    page = _page(_WHAT[kind], manifest["claim"], facts, names)
    created = PublishedFolder.create(folder, kind, manifest, contents | {GUARANTEE_FILE: page.encode()}, extra=extra)
    return created.seal()


def _page(what: str, claim: str, facts: Sequence[str], names: Sequence[str]) -> str:
    return f"""# What this folder may be used for

{what}

## What is claimed

{claim[0].upper()}{claim[1:]}.

## Who may see it

Anybody. Everything here ({", ".join(sorted(names))}) that depends on private records is covered by the
claim. There is no exact count, no teacher, no secret noise and no ledger. Reading the folder, sharing it, asking the
model and computing with its answers, however often, costs no further privacy.

What the claim says is not protected may show here. The records and the folders of other models, from which this one was
made, stay with their owner.

## What is known of it

{"".join(f"- {fact}{chr(10)}" for fact in facts) or "- Nothing more."}"""
