"""`quorate audit`: attack the claims, replay the predictors, catch the planted bugs, and say what came closest."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Column, Table

from quorate.cli.output import check_report, steps
from quorate.core.checks import check_count
from quorate.core.errors import InvalidInput

__all__ = ["run_audit"]


def run_audit(
    names: Sequence[str] = (),
    *,
    plays: int = 1_000_000,
    confidence: float = 1 - 1e-9,
    planted: bool = False,
    report: Path | None = None,
    as_json: bool = False,
    repeat: int = 0,
) -> int:
    """Audit the targets of these names, or all, and return 1 where a claim is violated or a planted bug is missed."""
    from quorate.auditing import audit
    from quorate.auditing.targets import REPLAYS, TARGETS, make_target, run_replay

    plays = check_count("plays", plays, least=10)
    if not 0 < confidence < 1:
        raise InvalidInput(f"confidence must lie between 0 and 1, not {confidence!r}")
    check_report(report)
    games = [name for name in names or TARGETS if name in TARGETS or name not in REPLAYS]
    targets = {name: make_target(name) for name in games}  # a wrong name is said before anything is played
    replayed = [name for name in REPLAYS if not names or name in names]
    twins = _listed() if planted else ()
    verdicts, replays, bugs = {}, {}, []
    doing = [*(f"attacking {name}" for name in targets), *(f"replaying {name}" for name in replayed)]
    doing += [f"catching {bug.name}" for bug in twins]
    with steps([one.replace("_", " ") for one in doing], quiet=as_json) as step:
        for name, target in targets.items():
            step()
            verdicts[name] = audit(target, plays=plays, confidence=confidence, seed=repeat)
        for name in replayed:
            step()
            replays[name] = run_replay(name, seed=repeat)
        for bug in twins:
            step()
            bugs.append(_caught(bug, repeat))
    if as_json:
        print(json.dumps(_as_dict(verdicts, replays, bugs)))
    else:
        _show(Console(), verdicts, replays, bugs)
    if report is not None:
        _write(report, verdicts, replays, bugs)
    failed = [verdict.violated for verdict in verdicts.values()] + [not one.sound for one in replays.values()]
    return int(any(failed) or any(not bug["caught"] or not bug["twin_cleared"] for bug in bugs))


def _listed() -> Sequence[Any]:
    from quorate.auditing.planted import PLANTED

    return PLANTED


def _caught(bug: Any, repeat: int) -> dict[str, Any]:
    """Attack a planted bug and its sound twin, with a million plays: fewer do not show the small mistakes."""
    caught, twin = bug.catch(seed=repeat), bug.clear(seed=repeat)
    return {
        "name": bug.name,
        "what": bug.what,
        "by": bug.by,
        "attack": caught.attack,
        "evidence": caught.evidence,
        "caught": bool(caught.found),
        "twin_cleared": not twin.found,
    }


def _as_dict(verdicts: dict[str, Any], replays: dict[str, Any], bugs: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "verdicts": [
            {
                "name": name,
                "target": one.target,
                "claim": {"epsilon": one.claim[0], "delta": one.claim[1]},
                "lower_bound": one.lower_bound,
                "ratio": one.ratio,
                "exact": one.exact,
                "attack": one.attack,
                "plays": one.plays,
                "confidence": one.confidence,
                "not_tested": one.not_tested,
                "violated": one.violated,
            }
            for name, one in verdicts.items()
        ],
        "replays": [{"name": name, "sound": one.sound, **vars(one)} for name, one in replays.items()],
        "planted": bugs,
    }


def _show(console: Console, verdicts: dict[str, Any], replays: dict[str, Any], bugs: list[dict[str, Any]]) -> None:
    table = Table(
        Column("claim of", no_wrap=True),
        *(Column(head, justify="right", no_wrap=True) for head in ("epsilon", "at delta", "shown", "exact", "ratio")),
        title="Claims, and what attacks showed",
    )
    for name, one in verdicts.items():
        exact = "-" if one.exact is None else f"{one.exact:.3f}"
        ratio = f"[bold red]{one.ratio:.3f}[/bold red]" if one.violated else f"{one.ratio:.3f}"
        table.add_row(name, f"{one.claim[0]:.3f}", f"{one.claim[1]:.3g}", f"{one.lower_bound:.3f}", exact, ratio)
    if verdicts:
        console.print(table)
        console.print("The attacks that came closest (whole in --json and in the report):")
    for name, one in verdicts.items():
        console.print(f"  {name}: {one.attack}", no_wrap=True, overflow="ellipsis", markup=False, highlight=False)
    for name, one in replays.items():
        console.print(f"Replay of {name.replace('_', ' ')}: {'sound' if one.sound else 'NOT SOUND'}; {_replayed(one)}.")
    if not bugs:
        return
    table = Table("planted bug", "caught by", "caught", "sound twin", title="Planted bugs")
    for bug in bugs:
        caught = "yes" if bug["caught"] else "[bold red]no[/bold red]"
        twin = "cleared" if bug["twin_cleared"] else "[bold red]flagged[/bold red]"
        table.add_row(bug["name"], bug["attack"], caught, twin)
    console.print(table)


def _replayed(one: Any) -> str:
    if one.forbidden:
        return "; ".join(one.forbidden)
    teachers = "1 teacher" if one.teachers_changed == 1 else f"{one.teachers_changed} teachers"
    return f"{teachers} changed {one.ballots_changed} ballots, {one.answers_changed} answers differ"


def _write(report: Path, verdicts: dict[str, Any], replays: dict[str, Any], bugs: list[dict[str, Any]]) -> None:
    from quorate.report import software_versions
    from quorate.report.audit import AuditReport, write_audit_report

    keys = ("name", "what", "attack", "evidence", "caught", "twin_cleared")
    rows = [tuple(bug[key] for key in keys) for bug in bugs]
    data = AuditReport(
        verdicts=tuple(verdicts.values()),
        replays=[(name, _replayed(one), one.sound) for name, one in replays.items()],
        planted=rows,
        software=software_versions(),
    )
    write_audit_report(data, report)
