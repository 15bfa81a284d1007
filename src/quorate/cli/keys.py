"""Make, list, change and revoke the keys of a model's callers, and say who did."""

import json as jsons
import sys
import time
from collections.abc import Collection, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import App, Parameter

from quorate.cli.ledger import open_ledger
from quorate.cli.options import AsJson, ModelPath, option, with_options
from quorate.cli.output import check_new_file, show, show_line, show_rows
from quorate.core.errors import InvalidInput
from quorate.core.ledger import Ledger, audit_lines, check_audit, key_figures, refusal_lines, share_figures
from quorate.models.saving.folder import open_private
from quorate.models.saving.saving import default_share

keys = App(name="keys", help_format="markdown")

_DAY = 24 * 3600.0
_SHARES = ("budget", "no_quorums", "per_phase")  # The limits that leave something to other keys.

KeyId = Annotated[str, Parameter(help="The key's id, as `quorate keys list` shows it.")]
Also = Annotated[
    tuple[Path, ...],
    Parameter(
        negative="", help="Another model that the key opens by `quorate keys extend`. May be given more than once."
    ),
]
Scopes = Annotated[
    tuple[Literal["ask", "budget", "admin", "keys"], ...],
    Parameter(
        negative="",
        help="What the key may do: ask queries, read the budget, both and whatever else an owner may (admin), or "
        "change keys of others over HTTP (keys). May be given more than once.",
    ),
]
Lifted = Annotated[
    tuple[Literal["quota", "per_minute", "per_phase", "no_quorums", "budget"], ...],
    Parameter(negative="", help="A limit to remove. May be given more than once."),
]


_LIMITS = {  # of a key, or of a project of several keys
    "quota": (int, "How many rows it may ask in total."),
    "per_minute": (int, "How many rows it may ask in a minute."),
    "per_phase": (
        int,
        "How many rows it may ask in a phase of an everlasting model, so that it cannot close the phase for others.",
    ),
    "no_quorums": (int, "How many no-quorums it may meet."),
    "budget": (
        float,
        "The share of the whole budget that it may spend, from 0 to 1. Shares may add up to more than 1.",
    ),
}
_KEY_LIMITS = _LIMITS | {
    "project": (str, "The project whose share it also uses, made by `quorate keys project`; an empty text for none."),
    "expires": (float, "The number of days, from now, after which it expires."),
}


def _limit_options(limits: Mapping[str, tuple[Any, str]]) -> list[Any]:
    return [option(name, kind | None, None, text) for name, (kind, text) in limits.items()]


def _changes(limits: Mapping[str, Any], lift: Collection[str] = ()) -> dict[str, Any]:
    """Return the limits that options give, with None for limits to lift."""
    changes = {name: value for name, value in limits.items() if value is not None} | dict.fromkeys(lift)
    if (days := changes.get("expires")) is not None:
        if not 0 < days < 36525:
            raise InvalidInput(f"--expires must be a number of days above 0, got {days!r}")
        changes["expires"] = time.time() + days * _DAY
    return changes


@keys.command(name="add")
@with_options(_limit_options(_KEY_LIMITS))
def _add(
    model: ModelPath,
    name: Annotated[
        str, Parameter(help="Who the key is for. Two keys may have the same name, such as when one replaces the other.")
    ],
    *,
    scope: Scopes = ("ask",),
    unlimited: Annotated[
        bool, Parameter(negative="", help="Let the key spend the whole budget, or take every seat of a phase.")
    ] = False,
    json: AsJson = False,
    **limits: Any,
) -> int:
    """Make a key and print it once: only a hash is kept. A running server accepts it within a second or so.

    A key that may ask has a share: a tenth of the budget, or of the rows that can close a phase of an everlasting
    model, unless --budget, --no-quorums, --per-phase or a project limits it, or --unlimited lifts that.
    """
    values = _changes(limits)
    is_limited = not values.keys().isdisjoint(_SHARES)
    if unlimited and is_limited:
        raise InvalidInput("--unlimited must stand without --budget, --no-quorums and --per-phase; leave one out")
    with open_ledger(model) as ledger:
        if not unlimited and not is_limited and _may_ask(scope):
            values |= default_share(open_private(model), ledger, values.get("project", ""))
        token = ledger.add_key(name, scopes=scope, **values)
    _warn_of_share(values, scope)
    return _show_token(token, name, model, {"scopes": list(scope)}, as_json=json)


def _may_ask(scopes: Collection[str]) -> bool:
    return not {"ask", "admin"}.isdisjoint(scopes)


def make_keys(model: Path, names: Collection[str]) -> None:
    """Make a key with the default share for each caller who has none, and print it once."""
    with open_ledger(model) as ledger:
        known = {key.name for key in ledger.view().keys if not key.revoked}
        for name in dict.fromkeys(names):
            if name in known:
                print(f"quorate: {name!r} has a key already", file=sys.stderr)
                continue
            values = default_share(open_private(model), ledger, "")
            print(f"{name}: {ledger.add_key(name, scopes=('ask',), **values)}", flush=True)
            _warn_of_share(values, ("ask",))


def _warn_of_share(values: Mapping[str, Any], scopes: Collection[str]) -> None:
    """Say what a key that may ask can spend."""
    if not _may_ask(scopes):
        return
    share = "the share of its project" if values.get("project") else "the whole budget"
    if "budget" in values:
        share = f"{values['budget']:.4g} of the budget (--budget)"
    elif "no_quorums" in values:
        share = f"{values['no_quorums']:,} no-quorums (--no-quorums)"
    elif "per_phase" in values:
        share = f"{values['per_phase']:,} seats of each phase (--per-phase)"
    print(f"quorate: this key may use {share}", file=sys.stderr)


@keys.command(name="extend")
@with_options(_limit_options(_LIMITS))
def _extend(
    model: ModelPath,
    id: KeyId,
    *others: Annotated[Path, Parameter(help="The other models that the key is to open.")],
    unlimited: Annotated[bool, Parameter(negative="", help="As for `quorate keys add`.")] = False,
    json: AsJson = False,
    **limits: Any,
) -> int:
    """Let a key open other models too, such as a key of an organisation: same id, same secret, a share in each.

    Where a model knows the key already, its secret and its revocation are copied there, and its share stays.
    """
    values = _changes(limits)
    if not others:
        raise InvalidInput("name the other models that the key is to open")
    for other in others:
        share = dict(values)
        with open_ledger(other) as ledger:
            if not unlimited and values.keys().isdisjoint(_SHARES):
                share |= default_share(open_private(other), ledger)
            ledger.copy_key(_key_of(model, id), **share)
    figures = {"id": id, "models": [str(path) for path in (model, *others)]}
    return show_line(f"the key {id} opens {', '.join(figures['models'])}", figures, as_json=json)


def _key_of(model: Path, id: str) -> Any:
    """Return a key of a model with its hash."""
    with open_ledger(model) as ledger:
        key = ledger.state().keys.get(id)
    if key is None or key.issuer:
        raise InvalidInput(f"{model} must have a key {id!r} with a secret; `quorate keys list` lists the keys")
    return key


def _copy_to(also: Collection[Path], model: Path, id: str) -> None:
    """Copy the secret and the revocation of a key to other models that know it."""
    for other in also:
        key = _key_of(model, id)
        with open_ledger(other) as ledger:
            if id not in ledger.state().keys:
                raise InvalidInput(f"{other} has no key {id!r}; `quorate keys extend` lets it open that model")
            ledger.copy_key(key)


@keys.command(name="rotate")
def _rotate(
    model: ModelPath,
    id: KeyId,
    *,
    also: Also = (),
    grace: Annotated[float, Parameter(help="For how many hours the old secret stays valid.")] = 0.0,
    json: AsJson = False,
) -> int:
    """Replace the secret of a key. The caller stays the same: its share, its answers and its id are kept."""
    if not 0 <= grace < 24 * 366:
        raise InvalidInput(f"--grace must be a number of hours from 0 up, got {grace!r}")
    with open_ledger(model) as ledger:
        token = ledger.rotate_key(id, grace=3600 * grace)
        name = next(key.name for key in ledger.view().keys if key.id == id)
    _copy_to(also, model, id)
    return _show_token(token, name, model, {}, as_json=json)


def _show_token(token: str, name: str, model: Path, figures: dict[str, Any], *, as_json: bool) -> int:
    id = token.split("_")[1]
    if not as_json:
        text = f"this is the key of {name!r}; hand it over now, it is not shown again"
        print(f"quorate: {text}. To take it back: quorate keys revoke {model} {id}", file=sys.stderr)
    return show({"id": id, "name": name, **figures, "key": token}, token, as_json=as_json)


@keys.command(name="change")
@with_options(_limit_options(_KEY_LIMITS))
def _change(model: ModelPath, id: KeyId, *, lift: Lifted = (), json: AsJson = False, **limits: Any) -> int:
    """Change the limits of a key; those that are not given stay. Its use stays counted, and its answers are kept."""
    with open_ledger(model) as ledger:
        ledger.change_key(id, **_changes(limits, lift))
        return _show_key(ledger, id, "changed", as_json=json)


@keys.command(name="revoke")
def _revoke(model: ModelPath, id: KeyId, *, also: Also = (), json: AsJson = False) -> int:
    """Revoke a key. A running server refuses it within a second or so. Answers already given are not undone."""
    with open_ledger(model) as ledger:
        ledger.revoke_key(id)
    _copy_to(also, model, id)
    with open_ledger(model) as ledger:
        return _show_key(ledger, id, "revoked", as_json=json)


def _show_key(ledger: Ledger, id: str, change: str, *, as_json: bool) -> int:
    view = ledger.view()
    (figures,) = (key_figures(key, view) for key in view.keys if key.id == id)
    return show_line(f"the key {id} of {figures['name']!r} is {change}", figures, as_json=as_json)


@keys.command(name="project")
@with_options(_limit_options(_LIMITS))
def _project(
    model: ModelPath,
    name: Annotated[str, Parameter(help="The project.")],
    *,
    lift: Lifted = (),
    json: AsJson = False,
    **limits: Any,
) -> int:
    """Make a project, or change the limits that its keys share; those that are not given stay."""
    with open_ledger(model) as ledger:
        ledger.set_project(name, **_changes(limits, lift))
        view = ledger.view()
        (figures,) = (share_figures(project, view) for project in view.projects if project.name == name)
    text = f"keys of {name!r} share its limits: quorate keys add {model} NAME --project ..."
    return show_line(text, {"name": name} | figures, as_json=json)


@keys.command(name="log")
def _log(
    model: ModelPath,
    *,
    after: Annotated[int, Parameter(help="Leave out the entries up to this one: the `seq` of the last line sent.")] = 0,
    refusals: Annotated[bool, Parameter(negative="", help="Add the last 1,000 refusals of callers with keys.")] = False,
    out: Annotated[Path | None, Parameter(help="A new file for the lines. Without it they are printed.")] = None,
    check: Annotated[
        Path | None, Parameter(help="Check a file of earlier lines instead: none was changed, removed or added.")
    ] = None,
) -> int:
    """Write who changed keys, shares and the ledger as lines of JSON, oldest first, for an audit system.

    The lines are entries of the ledger, which hang together by keyed hashes. Each has a seal under the ledger's key, so
    that an edited line shows. Compaction removes entries: send the lines elsewhere before.
    """
    if out is not None:
        check_new_file(out)
    with open_ledger(model) as ledger:
        if check is not None:
            with check.open(encoding="utf-8", errors="replace") as lines:
                count = check_audit(ledger, lines)
            print(f"quorate: {count:,} lines are as the ledger has them", file=sys.stderr)
            return 0
        found = [*audit_lines(ledger, after=after), *(refusal_lines(ledger) if refusals else ())]
    text = "".join(jsons.dumps(line) + "\n" for line in found)
    if out is None:
        print(text, end="")
    else:
        with out.open("x", encoding="utf-8") as file:  # Lines that were kept are never overwritten.
            file.write(text)
        print(f"quorate: {len(found):,} lines written to {out}", file=sys.stderr)
    return 0


@keys.command(name="list")
def _list(model: ModelPath, *, json: AsJson = False) -> int:
    """List the keys: their names, scopes and use."""
    with open_ledger(model) as ledger:
        view = ledger.view()
        figures = [key_figures(key, view) for key in view.keys]
    if not figures and not json:
        print(f"quorate: there are no keys; quorate keys add {model} NAME makes one", file=sys.stderr)
    return show(figures, lambda: show_rows([*map(_describe_key, figures)], is_result=True), as_json=json)


def _describe_key(key: dict[str, Any]) -> dict[str, str]:
    """Return what a table of 80 columns shows of a key."""
    limits = {name: "" if key[name] is None else f" of {key[name]:,}" for name in ("quota", "no_quorums")}
    pace = "" if key["per_minute"] is None else f"\n{key['per_minute']:,} a minute"
    share = "" if key["budget"] is None else f" of {key['budget']:.2%}"
    return {
        "id": key["id"],
        "name": key["name"] + (f" ({key['project']})" if key["project"] else ""),
        "may": ", ".join(key["scopes"]),
        "rows": f"{key['used']:,}{limits['quota']}{pace}",
        "budget": f"{key['budget_spent']:.2%}{share}\n{key['no_quorums_met']:,}{limits['no_quorums']} no-quorums",
        "state": f"{_state(key)}\n" + ("unused" if key["last_use"] is None else f"used {_moment(key['last_use'])}"),
    }


def _moment(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M")


def _state(key: dict[str, Any]) -> str:
    if key["revoked"]:
        return "revoked"
    if key["expires"] is None:
        return "valid"
    return f"{'expired' if key['expires'] <= time.time() else 'until'} {_moment(key['expires'])}"
