"""The bar each promised figure is held against: one table for each bench. A figure without a bar is reported only."""

from quorate.bench.bars.audit import AUDIT
from quorate.bench.bars.classifier import CLASSIFIER
from quorate.bench.bars.concepts import CONCEPTS
from quorate.bench.bars.everlasting import EVERLASTING
from quorate.bench.bars.mechanisms import MECHANISMS
from quorate.bench.bars.models import MODELS
from quorate.bench.bars.release import RELEASE
from quorate.bench.bars.service import SERVICE
from quorate.bench.figures import Bar

__all__ = ["BARS"]

BARS: dict[str, dict[str, Bar | None]] = {
    "audit": AUDIT,
    "classifier": CLASSIFIER,
    "concepts": CONCEPTS,
    "everlasting": EVERLASTING,
    "mechanisms": MECHANISMS,
    "models": MODELS,
    "release": RELEASE,
    "service": SERVICE,
}
