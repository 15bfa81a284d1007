"""Who may ask a model that is served: `quorate keys`."""

import json as jsons
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import App, Parameter

if TYPE_CHECKING:
    from rich.table import Table

__all__ = ["keys"]

keys = App(name="keys", help="Make, list and revoke the keys of those who may ask a model.")


@keys.command(name="add")
def _add(
    model: Path,
    name: str,
    *,
    scope: Annotated[tuple[Literal["ask", "budget", "admin"], ...], Parameter(negative="")] = ("ask",),
    quota: int | None = None,
    per_minute: int | None = None,
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
    quota
        How many rows it may ask in all.
    per_minute
        How many rows it may ask in a minute.
    json
        Print one JSON object.
    """
    from quorate.cli.account import opened_ledger

    with opened_ledger(model) as ledger:
        token = ledger.add_key(name, scopes=tuple(dict.fromkeys(scope)), quota=quota, per_minute=per_minute)
    if json:
        print(jsons.dumps({"id": _id_of(token), "name": name, "scopes": list(scope), "key": token}))
        return 0
    print(token)
    print(
        f"quorate: this is the key of {name!r}; hand it over now, it is not shown again. "
        f"To take it back: quorate keys revoke {model} {_id_of(token)}",
        file=sys.stderr,
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
        known = [key_figures(key) for key in ledger.view().keys]
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
        (key,) = (key_figures(key) for key in ledger.view().keys if key.id == id)
    if json:
        print(jsons.dumps(key))
    else:
        print(f"quorate: the key {id} of {key['name']!r} is revoked", file=sys.stderr)
    return 0


def _id_of(token: str) -> str:
    return token.split("_")[1]


def _table(known: list[dict[str, Any]]) -> "Table":
    from rich.markup import escape
    from rich.table import Table

    table = Table("id", "name", "may", "rows asked", "a minute", "made", "state")
    for key in known:
        allowed = "" if key["quota"] is None else f" of {key['quota']:,}"
        table.add_row(
            key["id"],
            escape(key["name"]),
            ", ".join(key["scopes"]),
            f"{key['used']:,}{allowed}",
            "" if key["per_minute"] is None else f"{key['per_minute']:,}",
            datetime.fromtimestamp(key["created"], UTC).strftime("%Y-%m-%d %H:%M"),
            "revoked" if key["revoked"] else "in use",
        )
    return table
