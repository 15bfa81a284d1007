"""Private generalised linear models: geometry from public rows, a few noisy sums of private ones. See PROOF.md."""

from quorate.models.linear.classifier import PrivateLogisticRegression
from quorate.models.linear.model import make_private_pipeline
from quorate.models.linear.regressors import PrivateLinearRegression, PrivatePoissonRegression

__all__ = [
    "PrivateLinearRegression",
    "PrivateLogisticRegression",
    "PrivatePoissonRegression",
    "make_private_pipeline",
]
