"""`python -m planted`, run from `tests/`: attack every planted bug and its twin; exit code 1 if the audit fails."""

import argparse
import sys
from collections.abc import Iterable
from fnmatch import fnmatchcase
from typing import TextIO

from planted import PLANTED, PlantedBug


def catch_all(bugs: Iterable[PlantedBug], *, plays: int = 1_000_000, seed: int = 0, out: TextIO = sys.stdout) -> int:
    """Attack both twins of each bug, print what came of it, and return 1 if one is missed or a twin is flagged."""
    bugs, caught, cleared = list(bugs), 0, 0
    for bug in bugs:
        broken, sound = bug.catch(plays, seed=seed), bug.clear(plays, seed=seed)
        caught, cleared = caught + bool(broken.found), cleared + (not sound.found)
        verdict = f"{'caught' if broken.found else 'MISSED'} by {broken.attack}; twin {_judge_twin(sound.found)}"
        out.write(f"{bug.name}: {verdict}\n")
        for attack in [broken] * (not broken.found) + [sound] * bool(sound.found):
            out.write(f"  {attack.evidence}\n")
        out.flush()
    out.write(f"{caught} of {len(bugs)} planted bugs caught, {cleared} of {len(bugs)} sound twins cleared\n")
    return int(not caught == cleared == len(bugs))


def _judge_twin(flagged: bool) -> str:
    return "FLAGGED" if flagged else "cleared"


def main() -> int:
    """Read the options and attack the bugs that match the pattern."""
    parser = argparse.ArgumentParser(prog="python -m planted", description=__doc__)
    parser.add_argument("pattern", nargs="?", default="*", help="names of the bugs to attack, such as 'threshold_*'")
    parser.add_argument("--plays", type=int, default=1_000_000, help="plays of each world, where an attack is a game")
    options = parser.parse_args()
    bugs = [bug for bug in PLANTED if fnmatchcase(bug.name, options.pattern)]
    if not bugs:
        parser.error(f"no planted bug matches {options.pattern!r}")
    return catch_all(bugs, plays=options.plays)


if __name__ == "__main__":
    sys.exit(main())
