"""`quorate audit` and its page."""

import json
from dataclasses import replace

import pytest

from quorate.audit import verdict as verdicts
from quorate.audit.counts import NoisyCount
from quorate.audit.targets import TARGETS
from quorate.cli.audit import run_audit
from quorate.errors import InvalidInput
from quorate.report.audit import AuditReport, render_audit


def test_a_target_by_name_as_json(capsys):
    assert run_audit(["soft_majority"], plays=2000, as_json=True) == 0
    found = json.loads(capsys.readouterr().out)
    (one,) = found["verdicts"]
    assert one["name"] == "soft_majority"
    assert one["claim"] == {"epsilon": 1.0, "delta": 0.0}
    assert 0 < one["ratio"] < 1
    assert not one["violated"]
    assert found["replays"] == found["planted"] == []


def test_a_table_for_people(capsys):
    assert run_audit(["noisy_count", "classifier_noisy_max"], plays=2000) == 0
    shown = capsys.readouterr().out
    assert "noisy_count" in shown
    assert "Replay of classifier noisy max: sound" in shown


def test_a_wrong_name_is_said_before_anything_is_played():
    with pytest.raises(InvalidInput, match="no target is called 'everything'"):
        run_audit(["everything"])


def test_a_violated_claim_is_exit_code_1(monkeypatch, capsys):
    class Loud(NoisyCount):
        def played(self, count, *, plays, noise):
            return count + noise.laplace(1 / (2 * self.epsilon), plays)

    monkeypatch.setitem(TARGETS, "noisy_count", lambda: Loud(epsilon=1.0))
    assert run_audit(["noisy_count"], plays=20_000, as_json=True) == 1
    assert json.loads(capsys.readouterr().out)["verdicts"][0]["violated"]


def test_the_page_stands_alone(tmp_path):
    page = tmp_path / "audit.html"
    assert run_audit(["noisy_count", "classifier_noisy_max"], plays=2000, report=page, as_json=True) == 0
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
    text = render_audit(AuditReport(verdicts=(made, replace(made, lower_bound=0.5, exact=None))))
    assert "1 of 2 claims are false" in text
    assert "&lt;b&gt;loud" in text


def test_a_report_needs_its_folder(tmp_path):
    with pytest.raises(InvalidInput, match="does not exist"):
        run_audit(["noisy_count"], plays=2000, report=tmp_path / "none" / "audit.html")
