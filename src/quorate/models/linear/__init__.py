"""Private generalised linear models: geometry from public rows, a few noisy sums of private ones. See PROOF.md."""

from quorate.models.linear._classifier import PrivateLogisticRegression
from quorate.models.linear._regressors import PrivateLinearRegression, PrivatePoissonRegression
from quorate.models.linear.model import make_private_pipeline

__all__ = [
    "PrivateLinearRegression",
    "PrivateLogisticRegression",
    "PrivatePoissonRegression",
    "make_private_pipeline",
]
