"""The built site: its map, its links, and that it loads nothing from elsewhere. `make docs` builds it and runs this."""

import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urldefrag

import pytest
from test_accessibility import open_page, show, violations

from support.documents import DOCS, ROOT

pytest.importorskip("sphinx", reason="the packages of the docs extra are not installed")
pytestmark = [] if "QUORATE_SITE" in os.environ else [pytest.mark.long]

SITUATIONS = {  # who comes to the front page: the first click, the second, and a word that shows they have arrived
    "a data scientist who wants to hand out a model of a customer table": (
        "tutorials/bank.html",
        "howto/linear.html",
        "PrivateLogisticRegression",
    ),
    "a hospital that will answer 500 queries with its own scikit-learn learner": (
        "tutorials/hospital.html",
        "howto/classifier.html",
        "PrivateClassifier",
    ),
    "a statistics office that publishes tables": ("tutorials/census.html", "howto/release.html", "QueryRelease"),
    "a clinic with a line that never ends": (
        "tutorials/triage.html",
        "howto/everlasting.html",
        "EverlastingClassifier",
    ),
    "a reviewer who must know how good a model is before it is published": (
        "howto/conformal.html",
        "proofs/models-evaluation.html",
        "check_model",
    ),
    "several banks that may not put their records together": (
        "tutorials/federation.html",
        "howto/linear.html",
        "PrivateLogisticRegression",
    ),
    "an engineer who must serve it with keys and backups": (
        "tutorials/hospital.html",
        "howto/operations.html",
        "quorate serve",
    ),
}


class Page(HTMLParser):
    """One page: where its links lead, those of its article, what it loads, its anchors, and its words."""

    def __init__(self, path):
        super().__init__()
        self.links, self.article, self.loads, self.anchors, self.text = [], [], [], set(), ""
        self._within = 0
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag, attributes):
        given = dict(attributes)
        self.anchors |= {given[name] for name in ("id", "name") if given.get(name)}
        if tag == "article":
            self._within += 1
        if tag == "a" and given.get("href"):
            self.links.append(given["href"])
            if self._within:
                self.article.append(given["href"])
        if tag in ("script", "img", "source", "iframe") and given.get("src"):
            self.loads.append(given["src"])
        if tag == "link" and given.get("rel") in ("stylesheet", "icon", "preload"):
            self.loads.append(given["href"])

    def handle_endtag(self, tag):
        self._within -= tag == "article"

    def handle_data(self, data):
        self.text += data


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The folder of the built site: the one that was built before, or one that is built now, with no warning."""
    if "QUORATE_SITE" in os.environ:
        return (ROOT / os.environ["QUORATE_SITE"]).resolve()
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", "-b", "html", str(DOCS), str(folder)]
    built = subprocess.run(command, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr
    return folder


@pytest.fixture(scope="module")
def pages(site):
    made = {"genindex.html", "search.html", "py-modindex.html"}
    found = {path.relative_to(site).as_posix(): path for path in site.rglob("*.html")}
    return {name: Page(path) for name, path in found.items() if name not in made and not name.startswith("_static/")}


def target_of(name, link):
    """Return the page and the anchor that a link on a page leads to, or None for another site."""
    if "://" in link or link.startswith(("mailto:", "data:")):
        return None
    path, anchor = urldefrag(unquote(link))
    joined = Path(os.path.normpath(Path(name).parent / path)).as_posix() if path else name
    return joined, anchor


def test_every_link_and_anchor_leads_somewhere(site, pages):
    dead = []
    for name, page in pages.items():
        for link in page.links:
            if link == "#" or (target := target_of(name, link)) is None:
                continue
            file, anchor = target
            if not (site / file).exists():
                dead.append(f"{name}: {link}")
            elif anchor and file in pages and anchor not in pages[file].anchors:
                dead.append(f"{name}: {link}: no such anchor")
    assert not dead


def test_nothing_is_loaded_from_elsewhere(site, pages):
    for name, page in pages.items():
        for source in page.loads:
            file, _ = target_of(name, source) or (None, None)
            assert file is not None, f"{name} loads {source}"
            assert (site / file.partition("?")[0]).exists(), f"{name} loads {source}"
    for style in site.rglob("*.css"):
        assert "url(http" not in style.read_text(encoding="utf-8").replace('"', "").replace("'", "")


def test_there_is_search_and_a_switch_to_dark(site, pages):
    assert "quorum" in (site / "searchindex.js").read_text(encoding="utf-8")
    assert "theme-switch" in (site / "index.html").read_text(encoding="utf-8")


def test_no_page_is_an_orphan(pages):
    """From the front page, by links, every page is reached."""
    reached, waiting = {"index.html"}, ["index.html"]
    while waiting:
        name = waiting.pop()
        for link in pages[name].links:
            target = target_of(name, link)
            if target and target[0] in pages and target[0] not in reached:
                reached.add(target[0])
                waiting.append(target[0])
    assert reached == set(pages)


def test_pages_are_sound_for_keyboard_and_screen_reader(site, pages, browser, axe):
    """One page of each folder, and those beside the front page, narrow and dark; that one wide and light too."""
    shown = {name.rpartition("/")[0] or name: name for name in sorted(pages)}.values()
    wrong = {}
    for name, width, colours in [("index.html", 1280, "light"), *((name, 400, "dark") for name in shown)]:
        page = open_page(browser, site / name)
        show(page, width, colours)
        page.wait_for_timeout(600)  # the theme makes what scrolls reachable 300 ms after a change of the width
        found = violations(page, axe)
        if page.evaluate("document.documentElement.scrollWidth") > width:
            found.append(("it scrolls sideways", f"at {width} pixels"))
        page.context.close()
        if found:
            wrong[name] = found
    assert not wrong


@pytest.mark.parametrize("who", SITUATIONS)
def test_six_readers_find_their_tool_in_two_clicks(pages, who):
    first, second, word = SITUATIONS[who]
    assert first in {(target_of("index.html", link) or ("",))[0] for link in pages["index.html"].article}
    assert second in {(target_of(first, link) or ("",))[0] for link in pages[first].article}
    assert word in pages[first].text
    assert word in pages[second].text


def test_notebooks_of_the_tutorials_run(site, tmp_path, monkeypatch):
    """Each is downloaded from the site and run in a kernel of its own, command lines too."""
    nbformat, client = pytest.importorskip("nbformat"), pytest.importorskip("nbclient")
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("QUORATE_STATE", str(tmp_path / "state"))
    books = sorted((site / "_downloads").rglob("*.ipynb"))
    assert {book.stem for book in books} == {path.stem for path in (DOCS / "tutorials").glob("*.md")} - {"index"}
    for book in books:
        notebook = nbformat.read(book, as_version=4)
        nbformat.validate(notebook)
        folder = tmp_path / book.stem
        folder.mkdir()
        client.NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(folder)}}).execute()


def test_every_public_name_has_an_entry(pages):
    api = (ROOT / "docs" / "reference" / "api.md").read_text()

    anchors = {anchor for name, page in pages.items() if name.startswith("reference/api/") for anchor in page.anchors}
    assert set(re.findall(r"^- `(quorate[\w.]*)`: \S", api, re.MULTILINE)) <= anchors


def test_every_proof_has_a_page(pages):
    proofs = list((ROOT / "src" / "quorate").rglob("PROOF*.md"))
    assert sum(name.startswith("proofs/") for name in pages) == len(proofs) + 1
