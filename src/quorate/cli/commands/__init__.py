"""One module for each command: its options, their help, and where they lead."""

from quorate.cli.commands.audit import audit
from quorate.cli.commands.bench import bench
from quorate.cli.commands.demo import demo
from quorate.cli.commands.plan import plan
from quorate.cli.commands.predict import predict
from quorate.cli.commands.release import release
from quorate.cli.commands.serve import serve

__all__ = ["audit", "bench", "demo", "plan", "predict", "release", "serve"]
