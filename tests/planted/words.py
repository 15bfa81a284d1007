"""A vocabulary with a mistake, caught by a replay on neighbours with one tape of noise.

Two data sets differ in one text, whose word nobody else uses. All noise is the same, so that the columns of the two
published models must be: words are chosen from public rows alone.
"""

from typing import Any

import numpy as np
from scipy import sparse

from planted.bug import Caught, kind_bug
from quorate.auditing.replay import entropy_tape
from quorate.models.linear import PrivateLogisticRegression
from quorate.tables.features import HashedColumns

_ROWS, _WIDTH, _SECRET = 200, 400, 399


class _WordsOfAll(PrivateLogisticRegression):
    """Chooses words from the private rows too, as a vectorizer before the model does."""

    def fit(self, X: Any, y: Any, groups: Any = None, public: Any = None, sample_weight: Any = None) -> Any:
        """Fit the vocabulary on all texts: that is the mistake, for it is published without noise."""
        return super().fit(X, y, groups=groups, public=sparse.vstack([public, X], format="csr"))


def _replayed(model_type: type[PrivateLogisticRegression], _plays: int, seed: int) -> Caught:
    """Fit on two data sets that differ in one text, with the same noise, and compare the published words."""
    generator = np.random.default_rng(seed)
    counts = generator.poisson(0.05, size=(2 * _ROWS, _WIDTH))
    counts[:, _SECRET] = 0
    public, private, y = counts[:_ROWS], counts[_ROWS:], np.arange(_ROWS) % 2
    public[0, _SECRET] = 1  # a word that one public text has, too few to be kept
    words = []
    for secret in (0, 1):
        private[0, _SECRET] = secret
        with entropy_tape(seed):
            model = model_type(epsilon=200.0, classes=[0, 1], columns=HashedColumns(number=4))
            model.fit(sparse.csr_array(private), y, public=sparse.csr_array(public))
        words.append(model.columns_.words_.places.tolist())
    found = words[0] != words[1]
    said = "which words are published tells" if found else "which words are published does not tell"
    return Caught("replay on neighbours", f"{said} whether one person used a rare one", found=found)


WORDS = (kind_bug("private_vocabulary", "replay", _WordsOfAll, PrivateLogisticRegression, _replayed),)
