"""Who may ask a model that is served: `quorate keys`."""

import json as jsons
import sys
import time
from collections.abc import Collection
from dataclasses import asdict, dataclass, fields
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import App, Parameter

from quorate.errors import InvalidInput

if TYPE_CHECKING:
    from rich.table import Table

__all__ = ["Limits", "keys"]

keys = App(name="keys", help="Make, list, change and revoke the keys of those who may ask a model.")

_DAY = 24 * 3600.0


@Parameter(name="*")
@dataclass
class Limits:
    """What a key, or a project of several keys, may have."""

    quota: int | None = None
    "How many rows it may ask in all."
    per_minute: int | None = None
    "How many rows it may ask in a minute."
    per_phase: int | None = None
    "How many rows it may ask in a phase of an everlasting model: it cannot close the phase for others then."
    no_quorums: int | None = None
    "How many no-quorums it may meet."
    budget: float | None = None
    "What part of the whole budget it may spend, from 0 to 1. Parts may add up to more than 1."

    def given(self, lift: Collection[str] = ()) -> dict[str, Any]:
        """Return the limits that were given, and None for those to lift."""
        unknown = set(lift) - {field.name for field in fields(self)}
        if unknown:
            raise InvalidInput(f"there is no limit {sorted(unknown)[0]!r} to lift")
        return {name: value for name, value in asdict(self).items() if value is not None} | dict.fromkeys(lift)


@keys.command(name="add")
def _add(
    model: Path,
    name: str,
    *,
    scope: Annotated[tuple[Literal["ask", "budget", "admin"], ...], Parameter(negative="")] = ("ask",),
    limits: Limits | None = None,
    project: str = "",
    expires: float | None = None,
    json: bool = False,
) -> int:
    """Make a key and print it, once: only a hash of it is kept. A running server knows it within a second or so.

    Parameters
    ----------
    model
        The model, as `quorate fit` wrote it.
    name
        Who the key is for. Two keys may have one name, as when one replaces the other.
    scope
        What the key may do: ask queries, read the budget, or everything. May be given more than once.
    limits
        What it may have.
    project
        The project whose share it uses too; `quorate keys project` makes one.
    expires
        After how many days it opens nothing more.
    json
        Print one JSON object.
    """
    from quorate.cli.account import opened_ledger

    with opened_ledger(model) as ledger:
        token = ledger.add_key(
            name,
            scopes=tuple(dict.fromkeys(scope)),
            project=project,
            expires=_end(expires),
            **(limits or Limits()).given(),
        )
    if json:
        print(jsons.dumps({"id": _id_of(token), "name": name, "scopes": list(scope), "key": token}))
        return 0
    _hand_over(token, name, model)
    return 0


def _hand_over(token: str, name: str, model: Path) -> None:
    print(token)
    print(
        f"quorate: this is the key of {name!r}; hand it over now, it is not shown again. "
        f"To take it back: quorate keys revoke {model} {_id_of(token)}",
        file=sys.stderr,
    )


def _end(days: float | None) -> float | None:
    if days is not None and not 0 < days < 36525:
        raise InvalidInput(f"a key expires after more than 0 days, not after {days!r}")
    return None if days is None else time.time() + days * _DAY


@keys.command(name="change")
def _change(
    model: Path,
    id: str,
    *,
    limits: Limits | None = None,
    lift: Annotated[tuple[str, ...], Parameter(negative="")] = (),
    project: str | None = None,
    expires: float | None = None,
    json: bool = False,
) -> int:
    """Change what a key may have. What it has used stays counted, and its answers stay its own.

    Parameters
    ----------
    model
        The model, as `quorate fit` wrote it.
    id
        The key's id, as `quorate keys list` shows it.
    limits
        New limits; those that are not given stay.
    lift
        A limit to remove: quota, per_minute, per_phase, no_quorums or budget. May be given more than once.
    project
        The project that it belongs to from now on; an empty text for none.
    expires
        After how many days, from now, it opens nothing more.
    json
        Print the key, as the list shows it, as one JSON object.
    """
    from quorate.cli.account import key_figures, opened_ledger

    values = (limits or Limits()).given(lift)
    values |= {} if project is None else {"project": project}
    values |= {} if expires is None else {"expires": _end(expires)}
    with opened_ledger(model) as ledger:
        ledger.change_key(id, **values)
        view = ledger.view()
        (key,) = (key_figures(key, view) for key in view.keys if key.id == id)
    if json:
        print(jsons.dumps(key))
    else:
        print(f"quorate: the key {id} of {key['name']!r} is changed", file=sys.stderr)
    return 0


@keys.command(name="rotate")
def _rotate(model: Path, id: str, *, grace: float = 0.0, json: bool = False) -> int:
    """Exchange the secret of a key. It stays the same caller: its share, its answers and its id stay.

    Parameters
    ----------
    model
        The model, as `quorate fit` wrote it.
    id
        The key's id, as `quorate keys list` shows it.
    grace
        For how many hours the old secret still opens it.
    json
        Print one JSON object.
    """
    from quorate.cli.account import opened_ledger

    if not 0 <= grace < 24 * 366:
        raise InvalidInput(f"grace is a number of hours from 0 up, not {grace!r}")
    with opened_ledger(model) as ledger:
        token = ledger.rotate_key(id, grace=3600 * grace)
        name = next(key.name for key in ledger.view().keys if key.id == id)
    if json:
        print(jsons.dumps({"id": id, "name": name, "key": token}))
    else:
        _hand_over(token, name, model)
    return 0


@keys.command(name="project")
def _project(
    model: Path,
    name: str,
    *,
    limits: Limits | None = None,
    lift: Annotated[tuple[str, ...], Parameter(negative="")] = (),
    json: bool = False,
) -> int:
    """Make a project, or change what its keys may have together.

    Parameters
    ----------
    model
        The model, as `quorate fit` wrote it.
    name
        The project.
    limits
        Its limits; those that are not given stay.
    lift
        A limit to remove. May be given more than once.
    json
        Print the project as one JSON object.
    """
    from quorate.cli.account import opened_ledger
    from quorate.ledger import share_figures

    with opened_ledger(model) as ledger:
        ledger.set_project(name, **(limits or Limits()).given(lift))
        view = ledger.view()
        (shown,) = (share_figures(one, view) for one in view.projects if one.name == name)
    if json:
        print(jsons.dumps({"name": name} | shown))
    else:
        print(
            f"quorate: keys of {name!r} share its limits: quorate keys add {model} NAME --project ...", file=sys.stderr
        )
    return 0


@keys.command(name="list")
def _list(model: Path, *, json: bool = False) -> int:
    """List the keys: who has them, what they may do, what they have asked.

    Parameters
    ----------
    model
        The model, as `quorate fit` wrote it.
    json
        Print one JSON list instead of a table.
    """
    from quorate.cli.account import key_figures, opened_ledger

    with opened_ledger(model) as ledger:
        view = ledger.view()
        known = [key_figures(key, view) for key in view.keys]
    if json:
        print(jsons.dumps(known))
    elif not known:
        print(f"quorate: there are no keys; quorate keys add {model} NAME makes one", file=sys.stderr)
    else:
        from rich.console import Console

        Console().print(_table(known))
    return 0


@keys.command(name="revoke")
def _revoke(model: Path, id: str, *, json: bool = False) -> int:
    """Take a key back. A running server refuses it within a second or so; what it was answered stays answered.

    Parameters
    ----------
    model
        The model, as `quorate fit` wrote it.
    id
        The key's id, as `quorate keys list` shows it.
    json
        Print the key, as the list shows it, as one JSON object.
    """
    from quorate.cli.account import key_figures, opened_ledger

    with opened_ledger(model) as ledger:
        ledger.revoke_key(id)
        view = ledger.view()
        (key,) = (key_figures(key, view) for key in view.keys if key.id == id)
    if json:
        print(jsons.dumps(key))
    else:
        print(f"quorate: the key {id} of {key['name']!r} is revoked", file=sys.stderr)
    return 0


def _id_of(token: str) -> str:
    return token.split("_")[1]


def _table(known: list[dict[str, Any]]) -> "Table":
    from rich.markup import escape
    from rich.table import Column, Table

    table = Table("id", Column("name", min_width=10), "may", "rows", "no-quorums", "budget", "last use", "state")
    for key in known:
        table.add_row(
            key["id"],
            escape(key["name"] + (f" ({key['project']})" if key["project"] else "")),
            ", ".join(key["scopes"]),
            f"{key['used']:,}{_of(key['quota'])}"
            + ("" if key["per_minute"] is None else f", {key['per_minute']:,} a minute"),
            f"{key['no_quorums_met']:,}{_of(key['no_quorums'])}",
            f"{key['budget_spent']:.2%}" + ("" if key["budget"] is None else f" of {key['budget']:.2%}"),
            "never" if key["last_use"] is None else _moment(key["last_use"]),
            _state(key),
        )
    return table


def _of(limit: int | None) -> str:
    return "" if limit is None else f" of {limit:,}"


def _moment(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M")


def _state(key: dict[str, Any]) -> str:
    if key["revoked"]:
        return "revoked"
    if key["expires"] is None:
        return "in use"
    return f"{'expired' if key['expires'] <= time.time() else 'until'} {_moment(key['expires'])}"
