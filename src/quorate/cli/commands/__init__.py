"""The options of each command, their help, and where they lead."""

from quorate.cli.commands.ask import ask, predict, serve
from quorate.cli.commands.audit import audit
from quorate.cli.commands.demo import demo
from quorate.cli.commands.export import export
from quorate.cli.commands.first import datasets, doctor, start
from quorate.cli.commands.look import look
from quorate.cli.commands.plan import plan
from quorate.cli.commands.release import release

__all__ = [
    "ask",
    "audit",
    "datasets",
    "demo",
    "doctor",
    "export",
    "look",
    "plan",
    "predict",
    "release",
    "serve",
    "start",
]
