"""Options that do nothing beside others are refused."""

import json
import re
import shlex
from typing import get_args

import pytest

from quorate.cli import main
from quorate.cli.app import app
from quorate.cli.options import AggregatorName, options_of
from quorate.cli.release import _SETTINGS, USED_OPTIONS, release
from quorate.planner._teachers import AGGREGATORS
from quorate.release.engines import ENGINES


def test_every_option_of_a_release_is_used_somewhere_and_every_name_is_an_option():
    used = {name for names in USED_OPTIONS.values() for name in names.split()}
    assert used == {name for _, name, _ in options_of(release)}


def test_aggregators_and_engines_that_can_be_chosen_are_those_that_there_are():
    assert {*get_args(AggregatorName), "stability", "noisy_shares"} == set(AGGREGATORS)
    assert set(get_args(_SETTINGS.types["engine"])) == {"auto", *ENGINES}


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ("plan --records 1000 --alpha 0.2", "--alpha does nothing without --concept"),
        ("plan --records 1000 --concept stumps --teachers 3", "--teachers does nothing with --concept"),
        ("release x.csv --workload marginals:2 --online --report p.html", "--report does nothing with --online"),
        ("release x.csv --workload marginals:2 --out o --alpha 0.1", "--alpha does nothing without --plan, --online"),
        ("release x.csv --workload marginals:2 --plan --account o", "--account does nothing with --plan"),
        ("release . --epsilon 2 --ask age>3", "--epsilon does nothing when a release is asked"),
    ],
)
def test_an_option_that_would_be_passed_over_is_refused(arguments, told, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(arguments.split()) == 1
    assert told in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_a_plan_of_a_class_names_the_best_method(capsys):
    options = ["--concept", "thresholds", "--records", "1000000", "--public", "5000"]
    assert main(["plan", *options, "--json"]) == 0
    plan = json.loads(capsys.readouterr().out)
    assert (plan["records"], plan["best"], plan["feasible"]) == (1_000_000, "semi-private", True)
    assert main(["plan", *options]) == 0
    shown = capsys.readouterr().out
    assert "semi-private" in shown
    assert "Assumed: " in shown
    assert main(["plan", "--concept", "thresholds"]) == 1
    assert "needs the number of records: --records" in capsys.readouterr().err


def test_a_class_on_a_line_reads_one_column(capsys):
    assert main(["plan", "--concept", "intervals", "--features", "2", "--records", "1000"]) == 1
    assert "intervals are on a line, and the table has 2 columns" in capsys.readouterr().err


def commands_below(command, path=()):
    """Yield the words of every command that does something."""
    inner = [name for name in command if not name.startswith("-")]
    if not inner:
        yield path
    for name in inner:
        yield from commands_below(command[name], (*path, name))


@pytest.mark.parametrize("path", list(commands_below(app)), ids=" ".join)
def test_every_command_has_json_and_its_example_can_be_read(path, capsys):
    assert main([*path, "--help"]) == 0
    shown = capsys.readouterr().out
    assert "--empty-" not in shown
    assert "--json" in shown or " ".join(path) in ("serve", "site serve", "ledger export"), "these print lines of JSON"
    for example in re.findall(r"Example: quorate (.+?)\n\s*\n", shown, re.DOTALL):  # lines are wrapped
        app.parse_args(shlex.split(example), exit_on_error=False, print_error=False)


def test_a_table_that_ships_is_told_as_json(capsys, tmp_path):
    assert main(["datasets", "bank", "--out", str(tmp_path / "bank"), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["classes"] == ["no", "yes"]
    assert len(told["written"]) == 3
