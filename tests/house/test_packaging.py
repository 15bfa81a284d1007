"""What is packaged beside the code: versions that agree, the conda recipe, what extras promise, types of the API."""

import importlib.metadata
import json
import shutil
import sys
import tomllib
from importlib import import_module
from types import SimpleNamespace

import pytest
import yaml

from quorate.core.lazy import install_command
from support.documents import ROOT

PACKAGING = ROOT / "packaging"
if not PACKAGING.is_dir():
    pytest.skip("the packaging scripts are not beside these tests", allow_module_level=True)
sys.path.insert(0, str(PACKAGING))
links, release, smoke, types_of_api = map(import_module, ("links", "release", "smoke", "types_of_api"))

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def test_every_extra_has_a_promise_that_make_wheels_tries():
    assert set(smoke.PROMISES) == set(PROJECT["optional-dependencies"]) - {"test"}  # which `make test` installs


def test_the_conda_recipe_needs_what_the_package_needs():
    recipe = yaml.safe_load((PACKAGING / "conda" / "recipe.yaml").read_text())
    wanted = {line.replace(">", " >", 1) for line in PROJECT["dependencies"]}
    assert set(recipe["requirements"]["run"]) - {"python >=${{ python_min }}", "__unix"} == wanted
    assert PROJECT["requires-python"] == f">={recipe['context']['python_min']}"
    assert recipe["build"]["python"]["entry_points"] == [f"quorate = {PROJECT['scripts']['quorate']}"]


def test_a_release_refuses_versions_that_differ(tmp_path):
    for name in ["src/quorate/__init__.py", *release.PLACES]:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    head = f"# Changelog\n\n## {release.version_of(tmp_path)}, 2026-11-16\n"
    (tmp_path / "CHANGELOG.md").write_text(head)
    assert list(release.wrong_versions(tmp_path)) == []
    (tmp_path / "CHANGELOG.md").write_text(head.replace("## ", "## Unreleased\n\n## "))
    [problem] = release.wrong_versions(tmp_path)
    assert problem.startswith("CHANGELOG.md names Unreleased, and the package ")
    for name in ("CITATION.cff", "packaging/conda/recipe.yaml"):
        text = (ROOT / name).read_text()
        (tmp_path / name).write_text(text.replace(release.version_of(tmp_path), "9.9.9"))
    assert len(list(release.wrong_versions(tmp_path))) == 3


def test_a_missing_type_of_a_public_name_is_found():
    def symbol(name, message, category="method"):
        return {"name": name, "category": category, "diagnostics": [{"message": message}]}

    symbols = [
        symbol("quorate.a.Public.fit", 'Type annotation for parameter "X" is missing'),
        symbol("quorate.a.Public.score", "Return type is partially unknown"),
        symbol("quorate.a.Public.rows_", "Type is missing type annotation", "variable"),
        symbol("quorate.b.Inner.fit", "Return type annotation is missing"),
    ]
    found = list(types_of_api.missing({"typeCompleteness": {"symbols": symbols}}, {"quorate.a.Public"}))
    assert found == ['quorate.a.Public.fit: Type annotation for parameter "X" is missing']
    assert "quorate.core.privacy.budget.Budget" in types_of_api.homes()


def test_a_dead_link_fails_and_one_that_cannot_be_reached_does_not():
    def checked(status, info="", code=0):
        return {"filename": "a.md", "lineno": 1, "status": status, "uri": "https://x.test", "info": info, "code": code}

    away = [
        checked("broken", "(host='x.test', port=443): not resolved"),
        checked("timeout"),
        checked("redirected", code=301),
    ]
    assert links.judge([*away, checked("working")]) == ([], away[:2])
    away.append(checked("broken", "403 Client Error: Forbidden for url: https://x.test"))
    dead = [checked("broken", "404 Client Error: Not Found for url: https://x.test"), checked("broken", "Anchor 'a'")]
    assert links.judge([*away, *dead]) == (dead, [*away[:2], away[3]])


@pytest.mark.parametrize("kind", ["folder", "gone", "index"])
def test_hints_name_what_the_package_was_installed_from(kind, tmp_path, monkeypatch):
    folder = tmp_path / "a checkout"
    if kind == "folder":
        folder.mkdir()
    origin = None if kind == "index" else json.dumps({"url": folder.as_uri(), "dir_info": {}})
    monkeypatch.setattr(importlib.metadata, "distribution", lambda name: SimpleNamespace(read_text=lambda file: origin))
    expected = f"{folder if kind == 'folder' else 'quorate'}[report]"
    assert install_command("report") == f"pip install '{expected}'"
