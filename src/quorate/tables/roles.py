"""Whose rows a table holds, and how much an error may say about them."""

from typing import Literal, get_args

from quorate.errors import InvalidInput

__all__ = ["Role", "check_role", "refusal", "subject"]

Role = Literal["private", "public", "query"]

_SUBJECTS = {"private": "the private records", "public": "the public table", "query": "the queries"}


def check_role(role: object) -> Role:
    """Return `role` if it is one."""
    for known in get_args(Role):
        if role == known:
            return known  # type: ignore[no-any-return]
    raise InvalidInput(f"role must be 'private', 'public' or 'query', not {role!r}")


def subject(role: Role) -> str:
    """Return how an error calls these rows."""
    return _SUBJECTS[role]


def refusal(role: Role, column: str, problem: str, *, row: int) -> InvalidInput:
    """Return the error for a value of a column. A private row is never named: neither its number nor its value."""
    place = "" if role == "private" else f", row {row + 1} (the first such row, counted from 1)"
    return InvalidInput(f"{subject(role)}, column {column!r}{place}: {problem}")
