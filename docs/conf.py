"""How the site is built: `make docs`. Sphinx, because MkDocs has had no release since 2024 and its themes are frozen.

Pages that live elsewhere in the repository (proofs, CONTRIBUTING.md) and those made from docstrings are written anew
into folders that git ignores before Sphinx reads its sources.
"""

import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sphinx.application import Sphinx

sys.path.insert(0, str(Path(__file__).parents[1] / "src"))

import quorate

DOCS = Path(__file__).parent
ROOT = DOCS.parent
PACKAGE = ROOT / "src" / "quorate"

project = "Quorate"
author = "The Quorate authors"
version = release = quorate.__version__
extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx_copybutton",
]
exclude_patterns = ["_build"]
default_role = "code"  # docstrings write `name` as Markdown does
myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 3
toc_object_entries_show_parents = "hide"
autodoc_typehints = "none"
autodoc_default_options = {"members": True, "inherited-members": False, "member-order": "bysource"}
napoleon_numpy_docstring = True
napoleon_google_docstring = False
copybutton_prompt_text = r"\$ |>>> |\.\.\. "
copybutton_prompt_is_regexp = True

html_theme = "pydata_sphinx_theme"  # the theme of NumPy, pandas and scikit-learn; fonts and scripts are in the site
html_title = f"Quorate {version}"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_show_sourcelink = False
html_copy_source = False
html_theme_options = {
    "logo": {"text": f"Quorate {version}"},
    "header_links_before_dropdown": 7,
    "navbar_persistent": ["search-button"],
    "navbar_end": ["theme-switcher"],
    "show_prev_next": True,
    "show_toc_level": 2,
    "footer_start": ["copyright"],
    "footer_end": [],
    "navigation_with_keys": False,
    "secondary_sidebar_items": ["page-toc"],
    "pygments_light_style": "a11y-high-contrast-light",
    "pygments_dark_style": "a11y-high-contrast-dark",
}
html_sidebars = {"index": []}
linkcheck_ignore = [r"https?://([\w.]+\.)?example\.org", r"http://(127\.0\.0\.1|localhost)"]
linkcheck_timeout = 15  # seconds, of `make linkcheck`
linkcheck_retries = 2
linkcheck_allowed_redirects = {r".*": r".*"}  # a link that leads on still leads somewhere
copyright = "The Quorate authors. Apache-2.0"

COPIED = {  # pages that readers of the repository find elsewhere
    "project/contributing": ROOT / "CONTRIBUTING.md",
    "project/security": ROOT / "SECURITY.md",
    "project/release-notes": ROOT / "CHANGELOG.md",
    "reference/hypotheses": PACKAGE / "models" / "concepts" / "README.md",
    "reference/core": PACKAGE / "core" / "README.md",
}


def proofs() -> dict[str, Path]:
    """Return the page of every proof, and where it is kept: beside the code that it is about."""
    return {
        "proofs/" + "-".join([*path.relative_to(PACKAGE).parent.parts, *path.stem.lower().split("_")[1:]]): path
        for path in sorted(PACKAGE.rglob("PROOF*.md"))
    }


PAGES = COPIED | proofs()  # every file that is copied into the site
PAGE_OF = {path.relative_to(ROOT).as_posix(): page for page, path in PAGES.items()}


def as_page(text: str, origin: Path) -> str:
    """Return Markdown with links that lead to pages of the site where the repository has files."""

    def link(match: re.Match[str]) -> str:
        file, anchor = match[2], match[3] or ""
        target = (origin.parent / file).resolve()
        if not target.is_relative_to(ROOT):
            return match[0]
        name = target.relative_to(ROOT).as_posix()
        page = f"/{PAGE_OF[name]}.md" if name in PAGE_OF else "/" + name.removeprefix("docs/")
        return f"{match[1]}({page}{anchor})"

    def proof(match: re.Match[str]) -> str:
        page = PAGE_OF.get(f"src/quorate/{match[1].removeprefix('src/quorate/')}")
        return f"[{match[0]}](/{page}.md)" if page else match[0]

    text = re.sub(r"(?<!!)(\[[^\]\n]*(?:\n[^\]\n]*)?\])\(([^):#\s]+)(#[^)\s]*)?\)", link, text)
    return re.sub(r"(?<!\[)`([\w/]+/PROOF\w*\.md)`", proof, text)


def api_sections() -> dict[str, list[str]]:
    """Return the names of docs/reference/api.md under their headings."""
    parts = re.split(r"^## (.+)$", (DOCS / "reference" / "api.md").read_text(), flags=re.MULTILINE)[1:]
    return {
        title: re.findall(r"^- `(quorate[\w.]*)`:", body, flags=re.MULTILINE)
        for title, body in zip(parts[::2], parts[1::2], strict=True)
    }


def api_page(title: str, names: list[str]) -> str:
    """Return the page of one section: each name with its docstring."""
    from importlib import import_module

    lines = [f"# {title}", ""]
    for name in names:
        module, _, short = name.rpartition(".")
        value = getattr(import_module(module), short)
        kind = "exception" if _is_error(value) else "class" if isinstance(value, type) else "function"
        lines += [f"## {short}", "```{eval-rst}", f".. auto{kind}:: {name}", "```", ""]
    return "\n".join(lines)


def _is_error(value: object) -> bool:
    return isinstance(value, type) and issubclass(value, Exception)


def command_line_page() -> str:
    """Return every command with its options, from the help that the command line shows."""
    from quorate.cli.app import app

    head = """# The command line

Exit code 0 means done, 1 refused (the message says why), and 2 a command line that cannot be read.
Each command has `--help`, and most have `--json`.

"""
    made = app.generate_docs(output_format="markdown", heading_level=1, usage_name="quorate")
    return head + made[made.index("## quorate ") :]


def proof_index() -> str:
    """Return the page that lists the proofs by the name of the folder that each is about."""
    lines = [
        "# Proofs",
        "",
        "Each guarantee is proved in numbered steps, for the integers and tables that the code uses. A line",
        "of code that a step relies on names it: `# proof: step 4`. The files lie beside the code.",
        "[How the proofs are attacked](/howto/audit.md) is a page of its own.",
        "",
        "```{toctree}",
        ":maxdepth: 1",
        "",
    ]
    first = ["core-privacy", "core-ledger", "compute-ensemble", "compute-learners", "models-predictors"]
    others = [page.removeprefix("proofs/") for page in proofs()]
    return "\n".join([*lines, *first, *(page for page in others if page not in first), "```", ""])


TUTORIALS = sorted(path for path in (DOCS / "tutorials").glob("*.md") if path.stem != "index")
RUNS_ON = ("quorate serve",)  # a command that runs until it is stopped, which a cell of a notebook must not


def as_notebook(page: str) -> str:
    """Return a page as a notebook: a cell for each block and for the text between two, with what the blocks print.

    Links of the page lead nowhere from a downloaded file, so that only their words stay.
    """
    from nbformat import v4

    page = re.sub(r"(?<!!)\[([^\]]+)\]\((?!https?:)[^)]+\)", r"\1", page)
    page = re.sub(r"^<!-- (?!output).*? -->\n", "", page, flags=re.MULTILINE | re.DOTALL)
    parts = re.split(r"^```(\w+)\n(.*?)^```\n(?:\n<!-- output -->\n```text\n(.*?)^```\n)?", page, flags=re.M | re.S)
    cells = [v4.new_markdown_cell(parts[0].strip())]
    for language, body, printed, text in zip(parts[1::4], parts[2::4], parts[3::4], parts[4::4], strict=True):
        if language == "python" or (language == "console" and not any(name in body for name in RUNS_ON)):
            commands = "%%bash -e\n" + re.sub(r"^\$ ", "", body, flags=re.MULTILINE)
            source = (body if language == "python" else commands).strip()
            outputs = [v4.new_output("stream", name="stdout", text=printed)] if printed else []
            cells.append(v4.new_code_cell(source, outputs=outputs))
        else:
            cells.append(v4.new_markdown_cell(f"```{language}\n{body}```"))
        if text.strip():
            cells.append(v4.new_markdown_cell(text.strip()))
    for number, cell in enumerate(cells):
        cell["id"] = f"cell-{number}"  # the same in each build
    language = {"name": "python"}
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    notebook = v4.new_notebook(cells=cells, metadata={"kernelspec": kernel, "language_info": language})
    return v4.writes(notebook) + "\n"


def write_pages(_app: object) -> None:
    """Write the pages that are copied or made. A page that is as it was is not touched, so that builds stay short."""
    written = {f"{page}.md": as_page(path.read_text(encoding="utf-8"), path) for page, path in PAGES.items()}
    notes = "project/release-notes.md"
    written[notes] = written[notes].replace("# Changelog", "# Release notes", 1)
    written |= {"proofs/index.md": proof_index(), "reference/command-line.md": command_line_page()}
    for title, names in api_sections().items():
        written[f"reference/api/{title.lower().replace(' ', '-')}.md"] = api_page(title, names)
    written |= {f"tutorials/{path.stem}.ipynb": as_notebook(path.read_text(encoding="utf-8")) for path in TUTORIALS}
    for name, text in written.items():
        path = DOCS / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")


def read_page(_app: object, name: str, source: list[str]) -> None:
    """Turn links of the repository into links of the site, and names of the API into links to their entries."""
    if name not in PAGES:
        source[0] = as_page(source[0], DOCS / f"{name}.md")
    if DOCS / f"{name}.md" in TUTORIALS:
        file = name.rpartition("/")[2]
        title, _, rest = source[0].partition("\n")
        source[0] = f"{title}\n\n{{download}}`This page as a notebook <{file}.ipynb>`\n{rest}"
    if name == "reference/api":
        source[0] = re.sub(r"^- `(quorate[\w.]*)`:", r"- {py:obj}`\1`:", source[0], flags=re.MULTILINE)


def end_sections(_app: object, _what: str, _name: str, _object: object, _options: object, lines: list[str]) -> None:
    """End a list of parameters at its first empty line, as we write them; napoleon asks for two."""
    for place in range(len(lines) - 1, -1, -1):
        if not lines[place].strip() and any(line.startswith("------") for line in _section(lines[:place])):
            lines.insert(place, "")


def _section(lines: list[str]) -> list[str]:
    """Return the last lines up to an empty one."""
    last = max((place for place, line in enumerate(lines) if not line.strip()), default=-1)
    return lines[last + 1 :]


def skip_member(_app: object, _what: str, name: str, _object: object, skip: bool, _options: object) -> bool:
    """Leave out what scikit-learn adds to every estimator."""
    return skip or bool(re.fullmatch(r"set_\w+_request", name))


def write_versions(app: "Sphinx", error: Exception | None) -> None:
    """Write a page beside a site that is built into a folder of its version: the newest first, with all others."""
    folder = Path(app.outdir)
    if error is not None or folder.name != version:
        return
    others = sorted((path.parent.name for path in folder.parent.glob("*/index.html")), reverse=True)
    links = "".join(f'<li><a href="{name}/index.html">{name}</a></li>' for name in others)
    head = '<!doctype html><html lang="en"><meta charset="utf-8"><title>Quorate</title>\n<meta http-equiv="refresh" '
    head += f'content="0; url={version}/index.html">'
    (folder.parent / "index.html").write_text(f"{head}<ul>{links}</ul></html>\n", encoding="utf-8")


def setup(app: "Sphinx") -> None:
    """Make the pages before the first one is read."""
    app.connect("builder-inited", write_pages)
    app.connect("source-read", read_page)
    app.connect("autodoc-process-docstring", end_sections, priority=100)
    app.connect("autodoc-skip-member", skip_member)
    app.connect("build-finished", write_versions)
