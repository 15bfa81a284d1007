"""The requests of docs/howto/client.md in other languages, sent to a server by the programs that read them."""

import json
import os
import re
import shutil
import subprocess

import pytest

from support.documents import DOCS, blocks_of
from support.guide_tables import serve_visits

pytest.importorskip("uvicorn", reason="the server's packages are not installed")

PROGRAMS = {
    "sh": ["sh", "-euc"],
    "javascript": ["node", "--input-type=module", "--eval"],
    "r": ["Rscript", "-e"],
}
SNIPPETS = {block.language: block.body for block in blocks_of(DOCS / "howto" / "client.md")}


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    """The address of a server, and a key, as the environment has them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("served"))
        patch.setenv("QUORATE_STATE", str(tmp_path_factory.mktemp("state")))
        url, key, _ = serve_visits()
    return {"QUORATE_URL": url, "QUORATE_KEY": key}


def send(language, environment):
    program, *options = PROGRAMS[language]
    needed = [program, "curl"] if language == "sh" else [program]
    if missing := [name for name in needed if not shutil.which(name)]:
        pytest.skip(f"{missing[0]} is not installed: nobody has run this snippet here")
    packages = ["Rscript", "-e", "library(httr2); library(jsonlite)"]
    if language == "r" and subprocess.run(packages, capture_output=True, check=False).returncode:
        pytest.skip("httr2 and jsonlite are not installed: nobody has run this snippet here")
    return subprocess.run(
        [program, *options, SNIPPETS[language]],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.mark.parametrize("language", PROGRAMS)
def test_a_request_in_another_language_is_answered(served, language):
    done = send(language, served)
    assert done.returncode == 0, done.stderr
    if language == "sh":
        labels = json.loads(done.stdout)["outputs"][0]["data"]
    else:
        labels = re.findall(r"\b(ill|well)\b", done.stdout)
    assert labels == ["well", "ill"]


@pytest.mark.parametrize("language", PROGRAMS)
def test_a_refusal_ends_the_program_and_says_why(served, language):
    done = send(language, {**served, "QUORATE_KEY": "qk_00000000_nobody"})
    assert done.returncode != 0
    said = done.stdout + done.stderr
    assert "401" in said
    assert "qk_00000000_nobody" not in said
