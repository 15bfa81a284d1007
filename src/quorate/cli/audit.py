"""`quorate audit`: attack the claims, replay the predictors, and report how close the attacks came."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console

from quorate.auditing import Comparison, Replay, runs, targets
from quorate.auditing import audit as attack
from quorate.cli.options import AsJson
from quorate.cli.output import check_report, show, show_rows, show_step
from quorate.core.checks import check_count
from quorate.core.errors import InvalidInput
from quorate.core.progress import hidden_progress, progress

_FIELDS = ("target", "lower_bound", "ratio", "exact", "attack", "plays", "confidence", "not_tested", "violated")
_TITLES = {"replays": "Replay of", "charges": "Charges of"}
_Findings = dict[str, dict[str, Any]]  # by kind ("verdicts", "replays" or "charges") and name


def audit(
    *names: str,
    plays: int = 1_000_000,
    confidence: float = 1 - 1e-9,
    report: Path | None = None,
    canaries: int | None = None,
    json: AsJson = False,
) -> int:
    """Attack the privacy claims of this package, and report how close the attacks came. Exit code 1 if one is broken.

    Example: `quorate audit quorum noisy_max --plays 100000 --report audit.html`

    Parameters
    ----------
    names
        The mechanisms, predictors and runs to attack, by name; by default all of them.
    plays
        How often each game is played in each of its two worlds.
    confidence
        The probability, for each target, that a sound claim is not reported as broken.
    report
        An HTML page to write: claim, lower bound, ratio, the attack that came closest, what was not tested.
    canaries
        Audit one fit instead, with this many pairs of records of which a coin chose one: what 95% of such fits show at
        least. The name is "release" (by default: a `QueryRelease` at epsilon 4) or "neighbours" (a
        `NeighbourClassifier` at epsilon 3). It takes a second.
    """
    if canaries is not None:
        return _audit_one_fit(names, canaries, json)
    plays = check_count("plays", plays, least=10)
    if not 0 < confidence < 1:
        raise InvalidInput(f"confidence must lie between 0 and 1, got {confidence!r}")
    check_report(report)
    games, replayed, played = targets.select_targets(names)  # a wrong name is refused before anything is played
    runs_by_kind: dict[str, dict[str, Callable[[], Any]]] = {
        "verdicts": {name: partial(attack, game, plays=plays, confidence=confidence) for name, game in games.items()},
        "replays": {name: partial(targets.run_replay, name) for name in replayed},
        "charges": {name: partial(runs.compare_run, name) for name in played},
    }
    findings = _attack_all(runs_by_kind)
    show(_as_dict(findings), lambda: _show(findings), as_json=json)
    replays = _sentences(findings)
    if report is not None:
        from quorate.report import write_report
        from quorate.report.trust import AuditReport

        write_report(AuditReport(verdicts=tuple(findings["verdicts"].values()), replays=replays), report)
    broken = any(verdict.violated for verdict in findings["verdicts"].values())
    return int(broken or not all(is_sound for _, _, is_sound in replays))


def _attack_all(runs_by_kind: Mapping[str, Mapping[str, Callable[[], Any]]]) -> _Findings:
    """Run every attack, replay and comparison, and show how far it is."""
    findings: _Findings = {kind: {} for kind in runs_by_kind}
    count = sum(map(len, runs_by_kind.values()))
    with progress("attacking the claims"):
        for kind, named_runs in runs_by_kind.items():
            for name, run in named_runs.items():
                number = 1 + sum(map(len, findings.values()))
                show_step(f"attacking {name.replace('_', ' ')}, {number} of {count}")
                with hidden_progress():
                    findings[kind][name] = run()
    return findings


def _audit_one_fit(names: Sequence[str], canaries: int, json: bool) -> int:
    """Audit one fit by canaries, and print what its guesses show."""
    name, *others = names or ("release",)
    if others or name not in targets.ONE_FIT:
        raise InvalidInput(f"canaries= audits one fit of {' or '.join(targets.ONE_FIT)}, got {', '.join(names)}")
    findings = targets.ONE_FIT[name](canaries=canaries)
    row = {
        "claim of": f"{name}, one fit",
        "epsilon": f"{findings.claim[0]:.3f}",
        "at delta": f"{findings.claim[1]:.3g}",
        "shown": f"{findings.lower_bound:.3f}{' BROKEN' if findings.violated else ''}",
        "right guesses": f"{findings.correct} of {findings.guesses}",
    }
    title = "A claim, and what one fit with canaries showed"
    figures = findings._asdict() | {"violated": findings.violated}
    show(figures, lambda: show_rows([row], is_result=True, title=title), as_json=json)
    return int(findings.violated)


def _as_dict(findings: _Findings) -> dict[str, object]:
    figures: dict[str, object] = {
        kind: [{"name": name, "sound": outcome.sound, **vars(outcome)} for name, outcome in findings[kind].items()]
        for kind in _TITLES
    }
    return figures | {
        "verdicts": [
            {"name": name, "claim": {"epsilon": verdict.claim[0], "delta": verdict.claim[1]}}
            | {field: getattr(verdict, field) for field in _FIELDS}
            for name, verdict in findings["verdicts"].items()
        ]
    }


def _show(findings: _Findings) -> None:
    verdicts = findings["verdicts"]
    claims = [
        {
            "claim of": name,
            "epsilon": f"{verdict.claim[0]:.3f}",
            "at delta": f"{verdict.claim[1]:.3g}",
            "shown": f"{verdict.lower_bound:.3f}",
            "exact": "-" if verdict.exact is None else f"{verdict.exact:.3f}",
            "ratio": f"{verdict.ratio:.3f}{' BROKEN' if verdict.violated else ''}",
        }
        for name, verdict in verdicts.items()
    ]
    if claims:
        show_rows(claims, is_result=True, title="Claims, and what attacks showed")
    console = Console()
    if verdicts:
        console.print("The attacks that came closest (in full with --json and in the report):")
    for name, verdict in verdicts.items():
        console.print(f"  {name}: {verdict.attack}", no_wrap=True, overflow="ellipsis", markup=False, highlight=False)
    for title, text, is_sound in _sentences(findings):
        console.print(f"{title}: {'sound' if is_sound else 'NOT SOUND'}; {text}.", soft_wrap=True, highlight=False)


def _sentences(findings: _Findings) -> list[tuple[str, str, bool]]:
    """Return for each replay and each run its name, what came of it, and whether it is sound."""
    describe: dict[str, Callable[[Any], str]] = {"replays": _describe_replay, "charges": _describe_charges}
    return [
        (f"{title} {name.replace('_', ' ')}", describe[kind](outcome), outcome.sound)
        for kind, title in _TITLES.items()
        for name, outcome in findings[kind].items()
    ]


def _describe_charges(comparison: Comparison) -> str:
    if comparison.forbidden:
        return "; ".join(comparison.forbidden[:3])
    releases = "1 release" if comparison.releases == 1 else f"{comparison.releases} releases"
    return f"{releases}, of which a unit moves {comparison.moved:.4g}, charged {comparison.charged:.4g}"


def _describe_replay(replay: Replay) -> str:
    if replay.forbidden:
        return "; ".join(replay.forbidden)
    teachers = "1 teacher" if replay.teachers_changed == 1 else f"{replay.teachers_changed} teachers"
    return f"{teachers} changed {replay.ballots_changed} ballots, {replay.answers_changed} answers differ"
