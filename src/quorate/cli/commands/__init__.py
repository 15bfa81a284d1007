"""Commands whose modules are light enough to be imported for `quorate --help`."""

from quorate.cli.commands.audit import audit
from quorate.cli.commands.first import start
from quorate.cli.commands.look import look
from quorate.cli.commands.plan import plan

__all__ = ["audit", "look", "plan", "start"]
