"""The command line, end to end through the installed command."""

import errno
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import tempfile
import warnings
from contextlib import contextmanager
from pathlib import Path
from typing import get_args

import numpy as np
import pytest

import quorate as qr
from quorate import __version__
from quorate.cli import main
from quorate.cli.app import app
from quorate.cli.keys import make_keys
from quorate.cli.options import AggregatorName, options_of
from quorate.cli.release import _SETTINGS, USED_OPTIONS, release
from quorate.planner._teachers import AGGREGATORS
from quorate.release.engines import ENGINES
from support.forked import Forked, run_forked

MAIN = "import sys; from quorate.cli.app import main; sys.exit(main())"


def forked(*arguments, **environment):
    """Run a command in a process that is forked from one which has imported the package: seconds sooner."""
    return subprocess.CompletedProcess(arguments, *run_forked(MAIN, *arguments, **environment))


def test_version_and_help():
    for command in ([Path(sys.executable).parent / "quorate"], [sys.executable, "-m", "quorate"]):
        shown = subprocess.run([*command, "--version"], capture_output=True, text=True, check=True)
        assert shown.stdout.strip() == __version__
    for arguments in (["--help"], ["demo", "--help"]):
        shown = forked(*arguments)
        assert shown.returncode == 0
        assert "Usage" in shown.stdout


SMALL = ("--records", "20000", "--queries", "300", "--epsilon", "2")


def test_demo_does_the_whole_job_and_names_its_report(tmp_path):
    shown = forked("demo", *SMALL, "--out", str(tmp_path / "page.html"), COLUMNS="200")
    assert shown.returncode == 0, shown.stderr
    for text in ("teachers of", "epsilon spent", "no quorum", "non-private model", "student", "nothing was paid"):
        assert text in shown.stdout, text
    assert shown.stdout.strip().splitlines()[-1] == f"The report: {tmp_path / 'page.html'}"
    assert (tmp_path / "page.html").read_text(encoding="utf-8").count("<svg") == 4


def test_demo_runs_without_the_packages_of_a_report(tmp_path, monkeypatch):
    code = "import sys; sys.modules['jinja2'] = None; from quorate.cli.app import main; sys.exit(main())"
    monkeypatch.chdir(tmp_path)
    status, output, errors = run_forked(code, "demo", *SMALL, COLUMNS="400")
    assert status == 0, errors
    assert re.search(r"No report was written: .* needs jinja2; install it: pip install '.*\[report\]'$", output.strip())
    assert list(tmp_path.iterdir()) == []
    status, _, errors = run_forked(code, "demo", *SMALL, "--out", "page.html")
    assert (status, "needs jinja2" in errors) == (1, True)


def test_demo_as_json(tmp_path):
    """About 290 of 300 queries are answered and 94% of them rightly: both bars are ten standard deviations away."""
    done = json.loads(forked("demo", *SMALL, "--json", "--out", str(tmp_path / "page.html")).stdout)
    assert done["report"] == str(tmp_path / "page.html")
    results = done["results"]
    assert results["answered"] + results["no quorum"] + results["refused, budget spent"] == 300
    assert 0 < results["epsilon spent, ex post"] <= results["epsilon allowed"] == 2.0
    assert [point[1] for point in done["spending"]] == sorted(point[1] for point in done["spending"])
    assert done["spending"][-1][1] == results["epsilon spent, ex post"]
    assert sum(done["label_counts"].values()) == results["answered"] > 150
    assert float(results["answers that are right"].rstrip("%")) > 80
    assert results["asked again, model loaded from disk"] == "100 of 100 answers the same, nothing was paid"
    assert done["claim"]["unit"] == "person"


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        (["demo", "--records", "2000"], 1, "It would do to"),
        (["demo", "--epsilon", "-1"], 1, "epsilon must be a positive finite number"),
        (["demo", "--out", "no such folder/page.html"], 1, "no such folder"),
        (["unknown"], 2, "unknown"),
        (["predict"], 2, "quorate predict needs FOLDER. See quorate predict --help"),
        (["fit", "linear", "a.csv"], 2, "quorate fit linear needs --out."),
        (["fit", "linear", "a.csv", "--uot", "m"], 2, "quorate fit linear does not take --uot. Did you mean --out?"),
        (["fit", "linear", "a.csv", "--label"], 2, "--label takes a value, and none is given."),
        (["plan", "--epsilon", "1", "--epsilon", "2"], 2, "quorate plan takes --epsilon once."),
    ],
)
def test_refusals_and_usage(arguments, code, text, monkeypatch, tmp_path, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(arguments) == code
    shown = capsys.readouterr().err
    assert text in shown
    assert "Traceback" not in shown


@contextmanager
def command_with_a_reader(*arguments):
    """Run a command whose output goes into a pipe; yield the process and the end that reads."""
    reading, writing = os.pipe()
    with open(reading, encoding="utf-8") as reader, tempfile.TemporaryFile("w+") as errors:
        process = Forked(MAIN, *arguments, stdout=writing, stderr=errors.fileno())
        os.close(writing)
        yield process, reader, errors


def test_a_reader_that_closes_its_end_is_no_refusal():
    """As `head` does: Rich ends the program with exit code 1, which says here that something was refused."""
    with command_with_a_reader("plan", "--records", "9000") as (process, reader, _):
        reader.close()
        assert process.wait(600) == 0


def test_an_interrupt_says_what_it_means(tmp_path):
    """Found by a newcomer: the command line's own handling swallowed it. The signal is sent once the job has begun."""
    for _ in range(6):  # Python itself swallows an interrupt that falls into a finaliser
        with command_with_a_reader("demo", "--out", str(tmp_path / "x.html")) as (process, reader, errors):
            assert "clinic" in reader.readline()
            process.send_signal(signal.SIGINT)
            status = process.wait(600)
            errors.seek(0)
            said = errors.read()
        if status == 130:
            break
    assert status == 130, said
    assert "Interrupted" in said
    assert "Traceback" not in said


def test_an_interrupt_of_an_import_is_no_traceback(monkeypatch, capsys):
    """A compiled package turns the interrupt into an ImportError of its own, and cyclopts that into another."""
    from quorate.cli import app

    def interrupted(*_, **__):
        try:
            try:
                raise KeyboardInterrupt
            except KeyboardInterrupt as error:
                raise ImportError("initialization failed") from error
        except ImportError as error:
            raise ImportError("Cannot import module") from error

    monkeypatch.setattr(app, "app", interrupted)
    assert main(["doctor"]) == 130
    assert capsys.readouterr().err.startswith("quorate: Interrupted")

    def broken(*_, **__):
        raise ImportError("no such module")

    monkeypatch.setattr(app, "app", broken)
    with pytest.raises(ImportError, match="no such module"):  # an error of its own stays one
        main(["doctor"])


def test_an_unforeseen_error_is_one_sentence_and_its_details_are_in_a_file_of_the_user(tmp_path, monkeypatch, capsys):
    from quorate.cli import app

    def broken(*_, **__):
        raise ZeroDivisionError("a value of a record")

    monkeypatch.setattr(app, "app", broken)
    monkeypatch.setenv("QUORATE_STATE", str(tmp_path / "state"))
    assert app.main_or_report() == 1
    errors = capsys.readouterr().err
    assert "unexpected ZeroDivisionError" in errors
    assert "a value of a record" not in errors
    (log,) = (tmp_path / "state").iterdir()
    assert str(log) in errors
    assert log.stat().st_mode & 0o077 == 0
    assert "a value of a record" in log.read_text()


def test_an_interrupt_before_a_command_has_begun_says_nothing():
    """The module that begins takes the default of the system while it imports, and Python's own afterwards."""
    begin = (
        "import os, signal, sys, types\n"
        "class Stop:\n"
        "    def find_spec(self, name, *_):\n"
        "        if name == 'quorate.cli.app': os.kill(os.getpid(), signal.SIGINT)\n"
        "sys.meta_path.insert(0, Stop())\n"
        "import quorate.__main__\n"
    )
    ended = subprocess.run([sys.executable, "-c", begin], capture_output=True, text=True, timeout=600, check=False)
    assert (ended.returncode, ended.stderr) == (-signal.SIGINT, "")
    whole = "import signal, quorate.__main__\nassert signal.getsignal(signal.SIGINT) is signal.default_int_handler"
    assert subprocess.run([sys.executable, "-c", whole], timeout=600, check=False).returncode == 0


@pytest.mark.parametrize(
    ("notes", "said"),
    [
        ([], "quorate ledger show FOLDER shows what is spent"),
        (["Interrupted: what was charged stays charged."], "what was charged stays charged"),
    ],
)
def test_an_interrupt_says_what_the_running_call_noted(notes, said, monkeypatch, capsys):
    """Only the call that was interrupted knows what it has spent: the command line guesses nothing from its words."""
    from quorate.cli import app

    def interrupted(*_, **__):
        error = KeyboardInterrupt()
        for note in notes:
            error.add_note(note)
        raise error

    monkeypatch.setattr(app, "app", interrupted)
    assert app.main(["predict", "model", "new.csv"]) == 130
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("predict model asked.csv", "what was charged stays charged"),
        ("fit subsample visits.csv --label y --classes 0,1 --out other", "so nothing is spent"),
        (
            "fit subsample visits.csv --label y --classes 0,1 --account account --out other",
            "the account was charged before anything was drawn",
        ),
        ("release visits.csv --workload marginals:1 --columns columns.json --out published", "so nothing is spent"),
    ],
)
def test_an_interrupt_tells_what_is_spent(command, said, monkeypatch, tmp_path, capsys):
    """The interrupt comes where ballots are drawn, where teachers are fitted, and where a release is counted."""
    monkeypatch.chdir(tmp_path)
    Path("visits.csv").write_text("x,y\n" + "0,0\n1,1\n" * 2000)
    Path("asked.csv").write_text("x\n0\n")
    Path("columns.json").write_text('{"x": ["0", "1"], "y": ["0", "1"]}')
    X = [[0.0], [1.0]] * 2000
    model = qr.PrivateClassifier(epsilon=4.0, teachers=100, aggregator="noisy_max", queries=9, classes=[0, 1])
    qr.save(model.fit(X, [0, 1] * 2000), "model")
    model.session_.close()
    assert main(["ledger", "account", "account", "--epsilon", "3"]) == 0

    def interrupted(*_, **__):
        raise KeyboardInterrupt

    drawn, fitted = "core.answerers.release_votes", "compute.learners._batched.BatchedLogistic.fit"
    for place in (drawn, fitted, "release._release.release_counts"):
        monkeypatch.setattr(f"quorate.{place}", interrupted)
    assert main(command.split()) == 130
    assert said in capsys.readouterr().err


def test_a_disk_that_is_full_is_an_exit_code_and_no_traceback(monkeypatch, capsys):
    from quorate.cli import app

    def fails(*_, **__):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "model.onnx")

    monkeypatch.setattr(app, "app", fails)
    assert app.main(["export", "rule", "--onnx", "model.onnx"]) == 1
    assert capsys.readouterr().err == "quorate: model.onnx: No space left on device\n"


def test_a_file_that_cannot_be_written_leaves_nothing_behind(monkeypatch, tmp_path):
    from quorate.cli.output import write_file

    def half(path, content):
        with path.open("wb") as file:
            file.write(content[:3])
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    write_file(tmp_path / "answers.csv", "earlier")
    monkeypatch.setattr(Path, "write_bytes", half)
    with pytest.raises(qr.InvalidInput, match=r"answers\.csv could not be written: No space left on device; ask again"):
        write_file(tmp_path / "answers.csv", "row,answer")
    monkeypatch.undo()
    assert [path.name for path in tmp_path.iterdir()] == ["answers.csv"]
    assert (tmp_path / "answers.csv").read_text() == "earlier"


def test_a_command_warns_in_its_own_words(monkeypatch, capsys):
    from quorate.cli import app

    monkeypatch.setattr(app, "app", lambda *_, **__: warnings.warn("mind the gap", UserWarning, stacklevel=1))
    assert app.main(["release"]) == 0
    assert capsys.readouterr().err == "quorate: mind the gap\n"


def test_a_plan_for_a_billion_queries_comes_back():
    shown = forked("plan", "--records", "100000", "--queries", "1000000000", "--json")
    assert json.loads(shown.stdout)["feasible"] is False


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
    assert "--json" in shown or " ".join(path) in ("serve", "studio", "site serve", "ledger export", "keys log"), (
        "these print lines of JSON"
    )
    for example in re.findall(r"Example: quorate (.+?)\n\s*\n", shown, re.DOTALL):  # lines are wrapped
        app.parse_args(shlex.split(example), exit_on_error=False, print_error=False)


def test_a_table_that_ships_is_told_as_json(capsys, tmp_path):
    assert main(["datasets", "bank", "--out", str(tmp_path / "bank"), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["classes"] == ["no", "yes"]
    assert len(told["written"]) == 3


def test_keys_for_new_callers_are_made_once_and_printed_once(tmp_path, capsys, monkeypatch):
    """`quorate serve --new-keys`: a second start makes none, and a published model has none."""
    monkeypatch.setenv("QUORATE_STATE", str(tmp_path / "state"))
    X = np.linspace(0, 1, 2000)[:, None]
    y = (X[:, 0] > 0.5).astype(int)
    teachers = qr.PrivateClassifier(epsilon=2.0, teachers=200, queries=40, aggregator="noisy_max", classes=[0, 1])
    model = qr.save(teachers.fit(X, y), tmp_path / "wards")
    teachers.session_.close()
    make_keys(model, ["ward 3", "ward 4", "ward 3"])
    printed = re.findall(r"^(.*): (qk_\S+)$", capsys.readouterr().out, re.MULTILINE)
    assert [name for name, _ in printed] == ["ward 3", "ward 4"]
    make_keys(model, ["ward 3"])
    shown = capsys.readouterr()
    assert shown.out == ""
    assert "'ward 3' has a key already" in shown.err
    assert main(["keys", "list", str(model), "--json"]) == 0
    assert [key["budget"] for key in json.loads(capsys.readouterr().out)] == pytest.approx([0.1, 0.1])
    assert main(["serve", str(model), "--no-keys", "--new-keys", "ward 5"]) == 1
    assert "--new-keys needs a model with a ledger" in capsys.readouterr().err
