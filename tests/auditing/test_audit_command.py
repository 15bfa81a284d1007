"""`quorate audit` and its page."""

import json
from dataclasses import replace

import pytest

from quorate.auditing import Replay
from quorate.auditing import _verdict as verdicts
from quorate.auditing._sums import NoisyCount
from quorate.auditing.targets import TARGETS
from quorate.cli.audit import audit
from quorate.core.errors import InvalidInput
from quorate.report.trust import AuditReport


def test_a_target_by_name_as_json(capsys):
    assert audit("soft_majority", plays=2000, json=True) == 0
    found = json.loads(capsys.readouterr().out)
    (one,) = found["verdicts"]
    assert one["name"] == "soft_majority"
    assert one["claim"] == {"epsilon": 1.0, "delta": 0.0}
    assert 0 < one["ratio"] < 1
    assert not one["violated"]
    assert found["replays"] == []


def test_a_table_for_people(capsys):
    assert audit("noisy_count", "classifier_noisy_max", plays=2000) == 0
    shown = capsys.readouterr().out
    assert "noisy_count" in shown
    assert "Replay of classifier noisy max: sound" in shown


def test_a_wrong_name_is_said_before_anything_is_played():
    with pytest.raises(InvalidInput, match="no target is called 'everything'"):
        audit("everything")


def test_a_violated_claim_is_exit_code_1(monkeypatch, capsys):
    class Loud(NoisyCount):
        def draw_counts(self, count, *, plays, noise):
            return count + noise.laplace(1 / (2 * self.epsilon), plays)

    monkeypatch.setitem(TARGETS, "noisy_count", lambda: Loud(epsilon=1.0))
    assert audit("noisy_count", plays=20_000, json=True) == 1
    assert json.loads(capsys.readouterr().out)["verdicts"][0]["violated"]


@pytest.mark.parametrize(("forbidden", "code"), [((), 0), (("the ballots of 2 teachers differ",), 1)])
def test_a_replay_that_is_not_sound_is_exit_code_1(forbidden, code, monkeypatch, capsys):
    monkeypatch.setattr("quorate.auditing.targets.run_replay", lambda name: Replay(1, 1, 0, forbidden))
    assert audit("classifier_noisy_max", plays=2000) == code
    shown = capsys.readouterr().out
    assert ("NOT SOUND" in shown) == bool(code)


@pytest.mark.parametrize("asked", [{"plays": 9}, {"plays": -3}, {"confidence": 0.0}, {"confidence": 1.0}])
def test_figures_are_checked_before_anything_is_played(asked):
    with pytest.raises(InvalidInput, match=next(iter(asked))):
        audit("noisy_max", **asked)


def test_the_page_stands_alone(tmp_path):
    page = tmp_path / "audit.html"
    assert audit("noisy_count", "classifier_noisy_max", plays=2000, report=page, json=True) == 0
    text = page.read_text()
    for words in ("NoisyCount", "Not tested", "Replays on neighbours", "No attack came past a claim"):
        assert words in text
    for loads in ("<script", "src=", "@import", "url(", "<link"):
        assert loads not in text


def test_a_false_claim_stands_out_and_texts_are_escaped():
    made = verdicts.Verdict(
        target="<b>loud</b>",
        claim=(1.0, 0.0),
        lower_bound=2.0,
        attack="listening",
        plays=10,
        confidence=0.9,
        not_tested="the rest",
        exact=2.5,
    )
    text = AuditReport(verdicts=(made, replace(made, lower_bound=0.5, exact=None))).render()
    assert "1 of 2 claims are false" in text
    assert "&lt;b&gt;loud" in text


def test_a_report_needs_its_folder(tmp_path):
    with pytest.raises(InvalidInput, match="there is no folder"):
        audit("noisy_count", plays=2000, report=tmp_path / "none" / "audit.html")
    with pytest.raises(InvalidInput, match="is a folder"):
        audit("noisy_count", plays=2000, report=tmp_path)


def test_a_report_that_cannot_be_written_is_told_before_anything_is_played(tmp_path, monkeypatch):
    monkeypatch.setattr("quorate.auditing.targets.make_target", lambda name: pytest.fail("played"))
    with pytest.raises(OSError, match="too long"):
        audit("noisy_count", plays=2000, report=tmp_path / ("a" * 300 + ".html"))
    assert list(tmp_path.iterdir()) == []
