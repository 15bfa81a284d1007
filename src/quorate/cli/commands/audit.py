"""`quorate audit`: attack the claims, replay the predictors, and report how close the attacks came."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from quorate.auditing import Replay, Verdict


def audit(
    *names: str,
    plays: int = 1_000_000,
    confidence: float = 1 - 1e-9,
    report: Path | None = None,
    json: bool = False,
) -> int:
    """Attack the privacy claims of this package, and report how close the attacks came. Exit code 1 if one is broken.

    Example: `quorate audit quorum noisy_max --plays 100000 --report audit.html`

    Parameters
    ----------
    names
        The mechanisms and predictors to attack, by name; by default all of them.
    plays
        How often each game is played in each of its two worlds.
    confidence
        The probability, for each target, that a sound claim is not reported as broken.
    report
        An HTML page to write: claim, lower bound, ratio, the attack that came closest, what was not tested.
    json
        Print one JSON object instead of tables.
    """
    from quorate.cli.output import check_report
    from quorate.core.checks import check_count
    from quorate.core.errors import InvalidInput

    plays = check_count("plays", plays, least=10)
    if not 0 < confidence < 1:
        raise InvalidInput(f"confidence must lie between 0 and 1, got {confidence!r}")
    check_report(report)
    verdicts, replays = _attack(names, plays=plays, confidence=confidence, quiet=json)
    if json:
        _print_json(verdicts, replays)
    else:
        _print_tables(verdicts, replays)
    if report is not None:
        _write_report(report, verdicts, replays)
    broken = any(verdict.violated for verdict in verdicts.values())
    return int(broken or not all(replay.sound for replay in replays.values()))


def _attack(
    names: tuple[str, ...], *, plays: int, confidence: float, quiet: bool
) -> "tuple[dict[str, Verdict], dict[str, Replay]]":
    """Play the games and the replays of these names, or all; a wrong name is refused before anything is played."""
    from quorate.auditing import audit, targets
    from quorate.cli.output import steps

    attacked, replayed = targets.select_targets(names)
    labels = [*(f"attacking {name}" for name in attacked), *(f"replaying {name}" for name in replayed)]
    verdicts: dict[str, Verdict] = {}
    replays: dict[str, Replay] = {}
    with steps([label.replace("_", " ") for label in labels], quiet=quiet) as step:
        for name, target in attacked.items():
            step()
            verdicts[name] = audit(target, plays=plays, confidence=confidence)
        for name in replayed:
            step()
            replays[name] = targets.run_replay(name)
    return verdicts, replays


def _print_json(verdicts: "dict[str, Verdict]", replays: "dict[str, Replay]") -> None:
    import json

    fields = ("target", "lower_bound", "ratio", "exact", "attack", "plays", "confidence", "not_tested", "violated")
    listed: list[dict[str, Any]] = [
        {"name": name, "claim": {"epsilon": verdict.claim[0], "delta": verdict.claim[1]}}
        | {field: getattr(verdict, field) for field in fields}
        for name, verdict in verdicts.items()
    ]
    compared = [{"name": name, "sound": replay.sound, **vars(replay)} for name, replay in replays.items()]
    print(json.dumps({"verdicts": listed, "replays": compared}))


def _print_tables(verdicts: "dict[str, Verdict]", replays: "dict[str, Replay]") -> None:
    from rich.console import Console
    from rich.table import Column, Table

    console = Console()
    table = Table(
        Column("claim of", no_wrap=True),
        *(Column(head, justify="right", no_wrap=True) for head in ("epsilon", "at delta", "shown", "exact", "ratio")),
        title="Claims, and what attacks showed",
    )
    for name, verdict in verdicts.items():
        (epsilon, delta), bound = verdict.claim, verdict.lower_bound
        exact = "-" if verdict.exact is None else f"{verdict.exact:.3f}"
        ratio = f"[bold red]{verdict.ratio:.3f}[/bold red]" if verdict.violated else f"{verdict.ratio:.3f}"
        table.add_row(name, f"{epsilon:.3f}", f"{delta:.3g}", f"{bound:.3f}", exact, ratio)
    if verdicts:
        console.print(table)
        console.print("The attacks that came closest (whole in --json and in the report):")
    for name, verdict in verdicts.items():
        console.print(f"  {name}: {verdict.attack}", no_wrap=True, overflow="ellipsis", markup=False, highlight=False)
    for name, replay in replays.items():
        outcome = "sound" if replay.sound else "NOT SOUND"
        console.print(f"Replay of {name.replace('_', ' ')}: {outcome}; {_describe_replay(replay)}.")


def _describe_replay(replay: "Replay") -> str:
    if replay.forbidden:
        return "; ".join(replay.forbidden)
    teachers = "1 teacher" if replay.teachers_changed == 1 else f"{replay.teachers_changed} teachers"
    return f"{teachers} changed {replay.ballots_changed} ballots, {replay.answers_changed} answers differ"


def _write_report(report: Path, verdicts: "dict[str, Verdict]", replays: "dict[str, Replay]") -> None:
    from quorate.report import software_versions
    from quorate.report.audit import AuditReport, write_audit_report

    data = AuditReport(
        verdicts=tuple(verdicts.values()),
        replays=[(name, _describe_replay(replay), replay.sound) for name, replay in replays.items()],
        software=software_versions(),
    )
    write_audit_report(data, report)
