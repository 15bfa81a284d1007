"""Links of the site to other sites, as Sphinx has tried them: `make linkcheck`.

    python packaging/links.py build/links/output.json

A link that is dead (another site answers that there is no such page, or no such place on it) fails. One that nobody
answers for, as on a machine without a network, is named and does not fail.
"""

import json
import re
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

ANSWERED = re.compile(r"\b4\d\d Client Error|^Anchor")  # by the other site: not a name that is unknown, or silence
REFUSED = re.compile(r"\b(401|403|408|429) Client Error")  # a page for people: whether it is there, we are not told


def judge(lines: Iterable[dict[str, Any]]) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return the links that are dead, and those of which nothing was learned."""
    dead, unknown = [], []
    for line in lines:
        if line["status"] not in ("broken", "timeout"):
            continue
        gone = ANSWERED.search(line["info"]) and not REFUSED.search(line["info"])
        (dead if gone else unknown).append(line)
    return dead, unknown


def main() -> None:
    """Print both, and fail if a link is dead."""
    lines = [json.loads(line) for line in Path(sys.argv[1]).read_text(encoding="utf-8").splitlines()]
    if not lines:
        sys.exit("Sphinx has looked at no link")
    dead, unknown = judge(lines)
    for name, links in (("dead", dead), ("not reached from here", unknown)):
        for link in links:
            print(f"{name}: {link['filename']}:{link['lineno']}: {link['uri']}: {link['info'][:120]}")
    tried = sum(line["status"] in ("working", "redirected", "broken", "timeout") for line in lines)
    print(f"{tried} links to other sites: {len(dead)} dead, {len(unknown)} not reached from here.")
    sys.exit(1 if dead else 0)


if __name__ == "__main__":
    main()
