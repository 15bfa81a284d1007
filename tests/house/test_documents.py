"""README, guides and tutorials: every block of code and every command runs, every link leads somewhere."""

import re

import pytest

from support.documents import DOCS, LANGUAGES, ROOT, blocks_of, links_of, pages, resembles, run_page

NOT_RUN = {  # programs of other people, what needs a database or a second host, and what installs
    "pip": "installs",
    "make": "sets up an environment of its own",
    "git": "another commit",
    "curl": "asks a server that is not started here; tests/service/test_service.py asks one",
    "createdb": "PostgreSQL",
    "scp": "a second host",
    "mv": "moves a model into a folder that a server follows; tests/service/test_shelf.py has some",
    "cp": "copies files of a kind that this model does not have",
    "sqlite3": "may not be installed",
    "docker": "builds and starts images; tests/house/test_deploy.py takes their steps",
    "kubectl": "a cluster",
    "systemctl": "starts a service of this machine",
    "useradd": "adds a user to this machine",
    "python": "makes an environment",
    "echo": "writes passwords",
    "chown": "gives files away",
    "quorate write": "needs a language model",
    "quorate ledger move": "PostgreSQL; tests/core/test_ledger_commands.py moves one",
    "quorate site serve": "runs until it is stopped; tests/service/test_federation.py starts three",
    "quorate site join": "joins sites that are not started here; tests/service/test_federation.py joins three",
    "quorate fit subsample": "a cluster; tests/compute/test_clusters.py starts some",
    "quorate predict": "asks sites that are not started here; tests/service/test_federation.py asks three",
}
NEEDS = {
    "docs/howto/export.md": "onnxruntime",
    "docs/howto/federation.md": "cryptography",
}  # pages whose code needs an extra
LONG = {"docs/howto/everlasting.md"}  # plays phases of 100,000 queries
NAMES = [page.relative_to(ROOT).as_posix() for page in pages()]


def with_blocks():
    """Yield the pages that have blocks; those that take long run with the long suites."""
    for name in NAMES:
        if blocks_of(ROOT / name):
            yield pytest.param(name, marks=[pytest.mark.long] if name in LONG else [])


@pytest.mark.parametrize("name", list(with_blocks()))
def test_every_block_of_a_page_runs(name, tmp_path, monkeypatch):
    if name in NEEDS:
        pytest.importorskip(NEEDS[name], reason=f"{NEEDS[name]} is not installed")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("QUORATE_STATE", str(tmp_path / "state"))
    monkeypatch.setenv("COLUMNS", "80")
    different = []
    run_page(ROOT / name, lambda block, text: resembles(block.output, text) or different.append((block.body, text)))
    assert not different, "write what these blocks print: PYTHONPATH=tests python -m support.documents PAGE"


def test_blocks_say_what_they_are_and_nothing_goes_unrun_by_accident():
    unrun = set()
    for page in pages():
        for block in blocks_of(page):
            assert block.language in LANGUAGES, f"{page.name}: a block of {block.language or 'no'} language"
            assert block.language != "console" or block.commands(), f"{page.name}: no line begins with a prompt"
            unrun |= block.not_run
    assert unrun <= set(NOT_RUN)


@pytest.mark.parametrize("name", [*NAMES, "CONTRIBUTING.md", "SECURITY.md"])
def test_links_lead_somewhere(name):
    page = ROOT / name
    for target in links_of(page):
        assert (page.parent / target).exists(), target


def test_the_glossary_has_our_words():
    defined = re.findall(r"^(\w[^\n]*)\n    \w", (DOCS / "glossary.md").read_text(), flags=re.MULTILINE)
    ours = "teacher, quorum, no-quorum, Renyi order, slack, quanta, cover, phase, seat, unit, neighbours, wear, claim"
    assert set(ours.split(", ")) <= set(defined)
    assert len(defined) == len(set(defined))


def test_every_page_is_in_a_table_of_contents():
    """No orphan: each page of the site is named by the index of its folder, or by the front page."""
    for page in pages()[1:]:
        if page == DOCS / "index.md":
            continue
        index = DOCS / "index.md" if page.name == "index.md" or page.parent == DOCS else page.parent / "index.md"
        entry = page.relative_to(index.parent).with_suffix("").as_posix()
        assert f"\n{entry}\n" in index.read_text(), f"{index} does not list {entry}"
