"""Documents and what is in them: pages, links, blocks of code and commands, and how a block is run.

A block is run in the folder and with the names that the blocks before it on the page have left. A comment above it,
which no reader sees, may prepare tables (`<!-- prepare: ... -->`) or name programs of other people, or our own
long-running commands, that are not run there (`<!-- not run: curl -->`).

What a block prints stands below it, after `<!-- output -->`; `PYTHONPATH=tests python -m support.documents PAGE...`
writes it.
"""

import io
import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
import textwrap
import warnings
from contextlib import chdir, redirect_stdout
from dataclasses import dataclass
from functools import partial
from importlib.metadata import distribution
from pathlib import Path
from urllib.parse import urlsplit

from benchmarks.__main__ import BENCHES
from quorate.cli import main
from quorate.cli.app import app

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
IGNORED = [line.strip() for line in (ROOT / ".gitignore").read_text().splitlines() if line.startswith("docs/")]
LANGUAGES = {"python", "console", "nginx", "json", "text", "toml", "sh", "r", "javascript"}
_LONG = ("serve", "studio", "ask", "demo", "audit")  # run for long, or until stopped
READ_ONLY = {("quorate", name) for name in _LONG}
EXAMPLE_KEY = "1f2e3d4c"
SHELL = {"cp", "mkdir", "rm", "umask"}

MOST_LINES, MOST_WIDTH = 24, 88  # of an output that is shown
SECRET = re.compile(r"qk_\w{8}_|BEGIN [A-Z ]*KEY")  # nobody copies a key from a page

_BLOCK = re.compile(
    r"(?P<comments>(?:^<!--(?:(?!-->).)*-->\n)*)^```(?P<language>[^\n]*)\n(?P<body>.*?)^```$"
    r"(?P<printed>\n\n<!-- output -->\n```text\n(?P<output>.*?)^```$)?",
    re.MULTILINE | re.DOTALL,
)
_WORD = re.compile(r"(?<!\w)[^\W\d_]{2,}(?!\w)")  # not the letters of an id


@dataclass(frozen=True)
class Block:
    """One fenced block, with the comments above it."""

    language: str
    body: str
    prepare: str
    not_run: frozenset[str]
    output: str

    def commands(self):
        """Return the commands of a console block, without what they print."""
        joined = self.body.replace("\\\n", " ")
        return [line[2:] for line in joined.splitlines() if line.startswith("$ ")]


def pages():
    """Return README and every page of the site that is written by hand."""
    written = [path for path in sorted(DOCS.rglob("*.md")) if not is_made(path)]
    return [ROOT / "README.md", *written]


def is_made(path):
    """Return whether a page is made when the site is built."""
    name = path.relative_to(ROOT).as_posix()
    return any(name == entry or (entry.endswith("/") and name.startswith(entry)) for entry in IGNORED)


def blocks_of(page):
    """Return the fenced blocks of a page, directives apart."""
    found = []
    for match in _BLOCK.finditer(page.read_text(encoding="utf-8")):
        if match["language"].startswith("{"):
            continue
        comments = dict(re.findall(r"<!-- ([a-z ]+):\s(.*?)\s?-->", match["comments"], flags=re.DOTALL))
        not_run = frozenset(re.split(r", *", comments["not run"].strip())) if "not run" in comments else frozenset()
        prepare, output = comments.get("prepare", ""), match["output"] or ""
        found.append(Block(match["language"], match["body"], prepare, not_run, output))
    return found


def run_page(page, show=lambda block, printed: None):
    """Run the blocks of a page one after the other, and return the names that they have left.

    `show` is called with each block and what it printed.
    """
    names = {"__name__": "__main__"}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # what a fit tells its owner: tables of guides are easy ones
        for block in blocks_of(page):
            exec(compile(block.prepare, f"{page.name}, prepared", "exec"), names)
            with redirect_stdout(io.StringIO()) as printed:
                if block.language == "python":
                    exec(compile(block.body, page.name, "exec"), names)
                elif block.language == "console":
                    for command in block.commands():
                        run_command(command, block.not_run)
            show(block, shorten(printed.getvalue()))
    return names


def shorten(printed):
    """Return the first lines of an output, as a page shows them; nothing of one that has a key."""
    if SECRET.search(printed):
        return ""
    for place in (Path.cwd(), ROOT, _installed_from()):  # a page is the same wherever it was written
        printed = re.sub(rf"{re.escape(str(place))}(/?)([^\s'│\[]*)", partial(_without_place, str(place)), printed)
    wrapped = [textwrap.wrap(line, MOST_WIDTH, replace_whitespace=False) for line in printed.strip("\n").splitlines()]
    lines = [part for parts in wrapped for part in parts or [""]]
    if len(lines) > MOST_LINES:
        lines[MOST_LINES - 1 :] = ["..."]
    return "".join(f"{line}\n" for line in lines)


def _without_place(place, match):
    """Return the end of a path, or the name of the package for none, as wide as the path was."""
    return (match[2] or "quorate") + (
        "" if match.string[match.end() : match.end() + 1] == "[" else " " * len(place + match[1])
    )


def _installed_from():
    """Return the folder that the package was installed from."""
    described = distribution("quorate").read_text("direct_url.json")
    return Path(urlsplit(json.loads(described)["url"]).path) if described else ROOT


def resembles(shown, printed):
    """Return whether an output that a page shows has the words of what was printed; numbers differ from run to run."""
    words, others = (set(_WORD.findall(text)) for text in (shown, printed))
    return bool(shown) == bool(printed) and len(words & others) >= len(words | others) / 2


def write_outputs(page):
    """Write below each block of a page what it prints."""
    printed = []
    run_page(page, lambda block, text: printed.append(text))
    texts = iter(printed)

    def replace(match):
        if match["language"].startswith("{"):
            return match[0]
        block, text = match[0].removesuffix(match["printed"] or ""), next(texts)
        return f"{block}\n\n<!-- output -->\n```text\n{text}```" if text else block

    page.write_text(_BLOCK.sub(replace, page.read_text(encoding="utf-8")), encoding="utf-8")


def run_command(command, not_run):
    """Run a command of ours in this process, and one of the shell's in a shell; read those that run for long."""
    expected = int((re.findall(r"# exit code (\d)", command) or ["0"])[0])
    if any(command.split()[: len(name.split())] == name.split() for name in not_run):
        return
    words = shlex.split(command, comments=True)
    if EXAMPLE_KEY in words:
        words[words.index(EXAMPLE_KEY)] = key = new_key(words[3])
        for other in [words[place + 1] for place, word in enumerate(words) if word == "--also"]:
            assert main(["keys", "extend", words[3], key, other]) == 0, command
    if words[0] in SHELL:
        subprocess.run(command, shell=True, check=True)  # our own guide
    elif words[:3] == ["python", "-m", "benchmarks"]:
        assert set(words[3:]) <= set(BENCHES), command
    elif tuple(words[:2]) in READ_ONLY:
        app.parse_args(words[1:], exit_on_error=False, print_error=False)
    else:
        assert words[0] == "quorate", f"who runs {command!r}?"
        assert main(words[1:]) == expected, command


def new_key(folder):
    """Return the id of a key that is added to a model, in place of the one that a guide shows."""
    shown = io.StringIO()
    with redirect_stdout(shown):
        assert main(["keys", "add", folder, "somebody"]) == 0
    return re.findall(r"qk_(\w{8})_", shown.getvalue())[0]


def links_of(page):
    """Return the links of a page to files, without those to other sites."""
    text = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    targets = re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", text) + re.findall(r'(?:src|href)="([^"#]+)"', text)
    return [target for target in targets if "://" not in target]


if __name__ == "__main__":
    os.environ["COLUMNS"] = "80"
    for argument in map(Path, sys.argv[1:]):
        path = argument.resolve()
        with tempfile.TemporaryDirectory() as folder, chdir(folder):
            os.environ["QUORATE_STATE"] = f"{folder}/state"
            write_outputs(path)
