"""The dashboard: the guarantee, the remaining budget, the queries, the keys, and the state of the ledger."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from quorate.core.ledger import share_figures
from quorate.service._errors import PROBLEMS
from quorate.service.pages._rendering import figure, format_remaining, render

if TYPE_CHECKING:
    from quorate.core.ledger import Activity, Key, LedgerView, Project, Refusal, Verification
_REFRESH_SECONDS = 30  # The reload interval of a live page.
_KEYS_SHOWN = 10  # the rest unfolds
_LOW_BUDGET = 0.1  # of the budget: from here on the page says so


@dataclass(frozen=True, slots=True)
class ModelView:
    """One model on the dashboard: its claim, and what its ledger says.

    `view` is None where the ledger cannot be read: the problems of `verification` then say why. `verification` is None
    until the whole ledger has been read; `requests_url` is where queries are sent. `progress` is the phase of an
    everlasting model, and `no_quorums` its count, for its owner alone: None for whoever may not see it.
    """

    name: str
    claim: str
    view: "LedgerView | None"
    activity: "list[Activity]"
    refusals: "list[Refusal]"
    verification: "Verification | None"
    requests_url: str
    progress: "dict[str, Any] | None" = None
    no_quorums: int | None = None


def dashboard_page(models: Sequence[ModelView], *, at: float, live: bool = False) -> str:
    """Return the dashboard of these models as one HTML document, as of `at` (seconds since 1970).

    It asks for itself again only where it is `live`: whoever has it read aloud would lose the place.
    """
    sections = [_section(model, at) for model in models]
    return render("dashboard.html", page="dashboard", models=sections, at=at, live=live, refresh=_REFRESH_SECONDS)


def _section(model: ModelView, at: float) -> dict[str, Any]:
    """Return everything the template needs to show one model: texts and shares, nothing to compute."""
    section = {
        "view": model,
        "guarantee": _guarantee(model),
        "phase": None if model.progress is None else _phase(model.progress, model.no_quorums),
        "problems": () if model.verification is None else model.verification.problems,
        "verified": model.verification,
        "readable": model.view is not None,
    }
    return section if model.view is None else section | _ledger_section(model, model.view, at)


def _guarantee(model: ModelView) -> str:
    if model.progress is not None:  # a claim of whole sentences
        return f"{model.claim[:1].upper()}{model.claim[1:]}"
    return f"All answers of this model, taken together, are {model.claim}."


def _phase(progress: Mapping[str, Any], no_quorums: int | None) -> dict[str, Any]:
    """Return the section of an everlasting model. Its public part does not depend on the number of no-quorums."""
    share = progress["seats_taken"] / progress["seats"]
    cards = {
        "phase": figure(progress["phase"]),
        "seats taken": f"{figure(progress['seats_taken'])} of {figure(progress['seats'])}",
    }
    if progress["probe"]:
        drift = progress["drift"]
        change = "nothing to compare" if drift is None else f"{100 * drift:.2f}%"
        cards[f"drift since phase 1, on {figure(progress['probe'])} probe points"] = change
    if no_quorums is not None:
        cards["no quorums in this phase, for you alone"] = figure(no_quorums)
    return {
        "share": share,
        "percent": f"{100 * share:.1f}",
        "closed": progress["closed"],
        "cards": [{"name": name, "shown": value} for name, value in cards.items()],
        "owner": no_quorums is not None,
    }


def _ledger_section(model: ModelView, ledger: "LedgerView", at: float) -> dict[str, Any]:
    in_use = [_key_row(key, ledger, at) for key in ledger.keys if not key.revoked]
    names = {key.id: key.name for key in ledger.keys}
    return {
        **_budget(ledger.left, sum(lease.share for lease in ledger.leases if not lease.gone)),
        "leases": ledger.leases,
        "cards": _cards(model.activity, at, sum(not lease.gone for lease in ledger.leases)),
        "charts": [
            chart_of(model.activity, at=at, title="Last 60 minutes", spans=60, minutes=1),
            chart_of(model.activity, at=at, title="Last 24 hours", spans=48, minutes=30),
        ],
        "first_keys": in_use[:_KEYS_SHOWN],
        "more_keys": in_use[_KEYS_SHOWN:],
        "projects": [_project_row(project, ledger) for project in ledger.projects],
        "revoked": [_key_row(key, ledger, at) for key in ledger.keys if key.revoked],
        "refusals": _refusal_rows(model.refusals, names),
    }


def _budget(remaining: float, leased: float) -> dict[str, Any]:
    percent = format_remaining(remaining)
    return {
        "left": min(max(remaining, 0.0), 1.0),
        "exact": repr(float(remaining)),
        "valuenow": percent,
        "percent": "less than 0.01%" if percent == "0.00" and remaining > 0 else f"{percent}%",
        "low": remaining < _LOW_BUDGET,
        "spent_up": remaining <= 0,
        "taken": f"{100 * leased:.2f}%" if leased else "",  # By open leases, whose use is unknown.
    }


def _cards(activity: "Sequence[Activity]", at: float, leases: int) -> list[dict[str, str]]:
    day = [minute for minute in activity if minute.minute > 60 * (at // 60) - 24 * 3600]
    counted = {
        "new queries answered, 24 hours": sum(minute.answered for minute in day),
        "no quorum, 24 hours": sum(minute.no_quorums for minute in day),
        "repeats, 24 hours, free": sum(minute.repeated for minute in day),
        "queries refused, 24 hours": sum(minute.refused for minute in day),
        "leases out": leases,
    }
    return [{"name": name, "shown": figure(count)} for name, count in counted.items()]


def _key_row(key: "Key", ledger: "LedgerView", at: float) -> dict[str, Any]:
    pace = "" if key.per_minute is None else f", {figure(key.per_minute)} a minute"
    limits = [(key.used, key.quota), (key.met, key.no_quorums), (key.spent, key.cost)]
    shares = [min(had / limit, 1.0) if limit else 1.0 for had, limit in limits if limit is not None]
    row = {"key": key, "share": max(shares, default=None)} | _share_row(key, ledger)
    return row | {"used": f"{row['used']}{pace}", "expired": key.expires is not None and key.expires <= at}


def _project_row(project: "Project", ledger: "LedgerView") -> dict[str, Any]:
    keys = sum(key.project == project.name for key in ledger.keys)
    return {"project": project, "keys": keys} | _share_row(project, ledger)


def _share_row(holder: "Key | Project", ledger: "LedgerView") -> dict[str, str]:
    figures = share_figures(holder, ledger)
    spent = f"{100 * (figures['budget_spent'] or 0):.2f}%"
    return {
        "used": f"{figure(holder.used)}{_of(holder.quota)}",
        "met": f"{figure(holder.met)}{_of(holder.no_quorums)}",
        "spent": spent if holder.cost is None else f"{spent} of {100 * (figures['budget'] or 0):.2f}%",
    }


def _of(limit: int | None) -> str:
    return "" if limit is None else f" of {figure(limit)}"


def _refusal_rows(refusals: "Sequence[Refusal]", names: Mapping[str, str]) -> list[dict[str, Any]]:
    """Return one row for each caller and code, the latest first, with how often it came."""
    rows: dict[tuple[str, str], dict[str, Any]] = {}
    for refusal in refusals:  # newest first
        row = rows.setdefault(
            (refusal.caller, refusal.code),
            {
                "at": refusal.at,
                "who": names.get(refusal.caller, refusal.caller) or "without a key",
                "code": refusal.code,
                "meaning": PROBLEMS[refusal.code].sentence if refusal.code in PROBLEMS else "",
                "times": 0,
            },
        )
        row["times"] += 1
    return list(rows.values())


_MIN_HEIGHT = 1.5  # of 100: what happened once is seen beside what happened a thousand times


@dataclass(frozen=True, slots=True)
class Bar:
    """A bar of the chart: its position, the heights of its two parts (of 100), and its label."""

    x: int
    answered: float
    no_quorums: float
    label: str


@dataclass(frozen=True, slots=True)
class Chart:
    """Bars from the oldest span to the newest; spans in which nothing happened have none."""

    title: str
    width: int
    bars: tuple[Bar, ...]
    top: int
    hours: tuple[str, ...]
    summary: str

    @property
    def half(self) -> int | None:
        """The line at half height, where it is a whole number."""
        return self.top // 2 if self.top % 2 == 0 else None


def chart_of(activity: "Sequence[Activity]", *, at: float, title: str, spans: int, minutes: int) -> Chart:
    """Return the chart of the last `spans` spans of this many minutes; the last span contains `at`."""
    length = 60 * minutes
    first = 60 * (int(at // 60) + 1) - spans * length  # the last span ends with this minute
    answered, no_quorums = [0] * spans, [0] * spans
    repeated = refused = 0
    for minute in activity:
        span = int((minute.minute - first) // length)
        if 0 <= span < spans:
            answered[span] += minute.answered
            no_quorums[span] += minute.no_quorums
            repeated, refused = repeated + minute.repeated, refused + minute.refused
    top = _round_number(max(map(sum, zip(answered, no_quorums, strict=True))))
    bars = tuple(
        Bar(
            x=10 * span,
            answered=_height(answered[span], top),
            no_quorums=_height(no_quorums[span], top),
            label=f"{_span(first + span * length, minutes)}: {figure(answered[span])} answered, "
            f"{figure(no_quorums[span])} without a quorum",
        )
        for span in range(spans)
        if answered[span] or no_quorums[span]
    )
    hours = tuple(_clock(first + quarter * spans * length // 4) for quarter in range(5))
    summary = (
        f"{figure(sum(answered) + sum(no_quorums))} new queries: {figure(sum(answered))} answered, "
        f"{figure(sum(no_quorums))} without a quorum. "
        f"{figure(repeated)} answered again at no cost, {figure(refused)} refused."
    )
    return Chart(title=title, width=10 * spans, bars=bars, top=top, hours=hours, summary=summary)


def _height(count: int, top: int) -> float:
    """The height of a part; a small one is drawn so that it can be seen, and never above the top."""
    return 0.0 if not count else min(max(100 * count / top, _MIN_HEIGHT), 100 - _MIN_HEIGHT if count < top else 100.0)


def _round_number(largest: int) -> int:
    """Return the least of 1, 2, 5, 10, 20, 50, ... that is not below."""
    if largest <= 1:
        return 1
    power: int = 10 ** (len(str(largest)) - 1)
    return next(step for step in (power, 2 * power, 5 * power, 10 * power) if step >= largest)


def _span(start: float, minutes: int) -> str:
    return _clock(start) if minutes == 1 else f"{_clock(start)} to {_clock(start + 60 * minutes)}"


def _clock(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%H:%M")
