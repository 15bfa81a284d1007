"""A published model with a card in the format of the Hugging Face Hub, which states its guarantee.

README.md       the card: YAML for the hub, then the guarantee, who may see the model, and how to use it
published.skops the fitted model without pickle; for a student, only the scikit-learn estimator
...             the files of the model's folder: `quorate.load` reads the new folder like the old one
"""

import json
import shutil
from pathlib import Path
from typing import Any

from sklearn.base import is_regressor

import quorate
from quorate.core.errors import InvalidInput
from quorate.models.saving import PublishedFolder, class_of, load, open_folder
from quorate.models.saving.codecs import skops_types, to_skops
from quorate.models.saving.folder import GUARANTEE_FILE, Trusted, check_folder

_CARD, _MODEL = "README.md", "published.skops"


def open_published(folder: str | Path) -> PublishedFolder:
    """Return the folder of a published model; refuse one that is private, or a release."""
    opened = open_folder(folder)
    if not isinstance(opened, PublishedFolder):
        raise InvalidInput(
            f"{folder} is private: it holds teachers or records, and a budget. It is not exported; what may be "
            "published is a linear model, a student or a hypothesis (PrivateLogisticRegression, StudentClassifier, "
            "SemiPrivateClassifier)"
        )
    if class_of(opened).inputs != "rows":
        raise InvalidInput(
            f"{folder} holds a {opened.kind}, which is a table of answers and no model: publish its folder"
        )
    return opened


def write_card(folder: str | Path, out: str | Path, *, license: str = "other", trusted: Trusted = None) -> Path:
    """Write a published model to a new folder, with a model card and a skops file; return its path.

    `license` is the hub's name of the license under which you publish the model. The card has no quality figures: one
    that was measured on private records would have to be paid for.

    >>> import tempfile, numpy as np, quorate as qr
    >>> X = np.random.default_rng(0).normal(size=(4000, 2))
    >>> y = np.where(X[:, 0] > 0, "yes", "no")
    >>> rule = qr.SemiPrivateClassifier(epsilon=1.0, classes=["no", "yes"]).fit(X, y, public=X[:100])
    >>> folder = qr.save(rule, Path(tempfile.mkdtemp()) / "rule")
    >>> card = write_card(folder, folder.with_name("hub"), license="cc-by-4.0") / "README.md"
    >>> print(card.read_text()[:62])
    ---
    license: "cc-by-4.0"
    library_name: "quorate"
    pipeline_tag:
    >>> qr.load(card.parent).rule_ == rule.rule_
    True
    """
    opened, target = open_published(folder), Path(out)
    model = load(opened, trusted=trusted)  # a changed file is refused here
    check_folder(target)
    content = to_skops(model.published_estimator())
    card = _head(model, license) + _body(opened, model, skops_types(content))
    try:
        target.mkdir(parents=True, exist_ok=True)
        for name in ("manifest.json", *opened.contents):
            shutil.copyfile(opened.path / name, target / name)
        (target / _MODEL).write_bytes(content)
        (target / _CARD).write_text(card, encoding="utf-8")
    except OSError as error:
        raise InvalidInput(f"{target} cannot be written: {error.strerror}") from None
    return target


def _head(model: Any, license: str) -> str:
    """Return what the hub reads. JSON is YAML, so that no text can be read as anything else."""
    task = "tabular-regression" if is_regressor(model) else "tabular-classification"
    head = {
        "license": license,
        "library_name": "quorate",
        "pipeline_tag": task,
        "tags": ["quorate", "sklearn", "skops", "differential-privacy", task],
        "metrics": [],
    }
    return "---\n" + "".join(f"{name}: {json.dumps(value)}\n" for name, value in head.items()) + "---\n\n"


def _body(folder: PublishedFolder, model: Any, types: list[str]) -> str:
    page = folder.contents.get(GUARANTEE_FILE, b"").decode()
    guarantee = page.partition("\n\n")[2] or f"{model.claim_[0].upper()}{model.claim_[1:]}.\n"
    trusted = f", trusted={types!r}" if types else ""
    content = "the model" if model.published_estimator() is model else "the student, an estimator of scikit-learn"
    return f"""# {type(model).__name__}, differentially private

{guarantee.rstrip()}

## How to ask it

Nothing is charged, however often it is asked. With Quorate {quorate.__version__} (`pip install quorate`):

```python
import quorate as qr

model = qr.load(".")  # this folder
labels = model.predict(X)
```

`{_MODEL}` holds {content}, without pickle:

```python
import skops.io

model = skops.io.load("{_MODEL}"{trusted})
```

## What is not on this card

No accuracy and no other figure of quality. One that is measured on private records tells of them and is paid for
(`quorate check`); one that is measured on public records is yours to add.
"""
