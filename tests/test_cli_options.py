"""Options that do nothing beside others are refused."""

import inspect

import pytest

from quorate.cli import main
from quorate.cli.commands import plan, release
from quorate.cli.options import PLAN_OPTIONS, RELEASE_OPTIONS


@pytest.mark.parametrize(("command", "tables"), [(plan, PLAN_OPTIONS), (release, RELEASE_OPTIONS)])
def test_every_option_is_used_somewhere_and_every_name_is_an_option(command, tables):
    used = {name for names in tables.values() for name in names.split()}
    assert used == set(inspect.signature(command).parameters)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ("plan --records 1000 --features 3", "--features does nothing without --concept"),
        ("plan --records 1000 --concept stumps --teachers 3", "--teachers does nothing with --concept"),
        ("release x.csv --workload marginals:2 --online --report p.html", "--report does nothing with --online"),
        ("release x.csv --workload marginals:2 --out o --alpha 0.1", "--alpha does nothing without --plan or --online"),
        ("release x.csv --workload marginals:2 --plan --ledger o", "--ledger does nothing with --plan"),
        ("release . --epsilon 2 --ask age>3", "--epsilon does nothing when a release is asked"),
    ],
)
def test_an_option_that_would_be_passed_over_is_refused(arguments, told, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(arguments.split()) == 1
    assert told in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
