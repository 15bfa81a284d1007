"""The deployment card: every field of the registry, every question answered, and nothing that an owner can break."""

import json
import re

import numpy as np
import pytest
import yaml

from quorate import PureClassifier, QueryRelease, save
from quorate.cli import main
from quorate.models.concepts import Thresholds
from quorate.report.card import NOT_COVERED, QUESTIONS, Card

X = np.random.default_rng(0).normal(size=(6000, 1))
OWNER = {name: f"the answer to {name}" for name in QUESTIONS}
ODD = 'A: <script>alert(1)</script>\n# {{ title }} "quoted" é'
FIELDS = {  # of the registry of deployments (its schema of July 2026), as we read them; it has no others
    "basic": "name data_curators intended_use data_product_type data_product_region description publication_date "
    "data_product_sector",
    "dp_variant": "variant_name data_domain unprotected_quantities",
    "privacy_loss": "privacy_unit privacy_unit_details privacy_parameters privacy_parameters_details",
    "deployment_model": "model_name model_name_details actors release_type release_type_details data_source_type "
    "data_source_type_details access_type access_type_details",
    "accounting": "post_processing composition",
    "implementation": "preprocessing_and_hyperparameter_tuning mechanisms justification",
    "administrative": "notes registry_authors",
}
REQUIRED = {"name", "data_curators", "description", "intended_use", "data_product_type", "data_product_region"}
ALLOWED = {  # by the registry, where it lists values
    "data_product_type": ["Summary statistics", "Machine learning model", "Dataset", "Synthetic data"],
    "data_product_sector": ["Technology", "Healthcare", "Education", "Government", "Energy", "Finance"],
    "variant_name": ["Pure DP", "Approximate DP", "Zero-concentrated DP", "Renyi DP", "Custom"],
    "model_name": ["Local", "Central", "Shuffle", "Federated"],
    "release_type": ["One release", "Many releases"],
    "data_source_type": ["Static", "Dynamic"],
    "access_type": ["Interactive", "Non-interactive"],
}


def check_registry(text):
    """Refuse an entry that the registry would refuse: another field, value, type or form of a date."""
    entry = yaml.safe_load(text)
    assert [*entry] == ["url_slug", "status", "tier", "deployment"]
    assert (entry["status"], entry["tier"] in (1, 2, 3)) == ("Draft", True)
    assert re.fullmatch(r"\w+(-\w+)*", entry["url_slug"])
    assert {*entry["deployment"]["basic"]} >= {*REQUIRED, "publication_date"}
    for part, fields in entry["deployment"].items():
        for name, value in fields.items():
            assert name in FIELDS[part].split()
            if name in ("data_curators", "registry_authors"):
                assert value
                assert all(isinstance(one, str) for one in value)
            elif name == "privacy_parameters":
                assert {*value} <= {"epsilon", "delta", "rho"}
                assert all(isinstance(number, int | float) for number in value.values())
            else:
                assert isinstance(value, str)
                assert value in ALLOWED.get(name, [value])
    assert re.fullmatch(r"\d{4}-\d\d-\d\d", entry["deployment"]["basic"]["publication_date"])
    return entry["deployment"]


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    home = tmp_path_factory.mktemp("cards")
    release = QueryRelease(Thresholds(), epsilon=4.0, records_per_person=2)
    save(release.fit(X, X[:200], groups=np.arange(6000) // 2), home / "published")
    classes = np.where(X[:, 0] > 0, "yes", "no")
    made = PureClassifier(Thresholds(), classes=["no", "yes"], epsilon=400.0, queries=5).fit(X, classes)
    save(made, home / "private")
    made.session_.close()
    return home


@pytest.mark.parametrize("access", ["published", "private"])
def test_the_entry_has_every_field_of_the_registry(access, folders):
    card = Card.read(folders / access, OWNER | {"sector": "healthcare"}, verdict="verified")
    entry = check_registry(card.to_yaml())
    assert {part: " ".join(fields) for part, fields in entry.items()} == FIELDS
    assert entry == card.registry_entry()["deployment"]
    loss, unit = entry["privacy_loss"]["privacy_parameters"], entry["privacy_loss"]["privacy_unit"]
    found = loss["epsilon"], loss["delta"], unit, entry["dp_variant"]["variant_name"]
    expected = {
        "published": (4.0, 1e-6, "User-level", "Approximate DP"),
        "private": (400.0, 0, "Tuple-level", "Pure DP"),
    }
    assert found == expected[access]


def test_no_answer_of_the_owner_changes_the_form_of_a_file(folders):
    owner = dict.fromkeys(QUESTIONS, ODD)
    card = Card.read(folders / "published", owner, verdict="verified")
    entry = check_registry(card.to_yaml())
    assert entry["basic"]["name"] == ODD
    assert "data_product_sector" not in entry["basic"]  # which the registry does not know
    assert json.loads(card.to_json())["owner"] == owner
    assert "<script>" not in card.to_html() + card.to_markdown()
    assert card.to_markdown().count("\n#") == len(card.sections())


def test_what_nobody_knows_is_said_to_be_unknown(folders):
    sections = Card.read(folders / "private", OWNER, verdict="verified").sections()
    answers = [answer for part in sections.values() for answer in part.values()]
    assert all(answers)
    assert answers.count(NOT_COVERED) == 5


def test_the_command_writes_four_files_and_refuses_an_open_question(folders, tmp_path, capsys):
    options = [part for name, text in OWNER.items() for part in (f"--{name}", text)]
    command = ["card", str(folders / "published"), "--out", str(tmp_path / "card")]
    assert main([*command, *options[:-2]]) == 1
    assert "['why']" in capsys.readouterr().err
    assert main([*command, *options, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["verdict"] == "verified"
    names = {path.name for path in (tmp_path / "card").iterdir()}
    assert names == {"card.md", "card.html", "card.json", "registry.yaml"}
    assert main([*command, *options]) == 1  # never overwritten
