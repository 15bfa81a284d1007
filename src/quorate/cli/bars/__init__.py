"""The bar each promised figure is held against: one table for each bench. A figure without a bar is reported only."""

from quorate.cli.bars.audit import AUDIT
from quorate.cli.bars.bar import Bar
from quorate.cli.bars.classifier import CLASSIFIER
from quorate.cli.bars.concepts import CONCEPTS
from quorate.cli.bars.everlasting import EVERLASTING
from quorate.cli.bars.mechanisms import MECHANISMS
from quorate.cli.bars.release import RELEASE
from quorate.cli.bars.service import SERVICE

__all__ = ["BARS", "Bar"]

BARS: dict[str, dict[str, Bar | None]] = {
    "audit": AUDIT,
    "classifier": CLASSIFIER,
    "concepts": CONCEPTS,
    "everlasting": EVERLASTING,
    "mechanisms": MECHANISMS,
    "release": RELEASE,
    "service": SERVICE,
}
