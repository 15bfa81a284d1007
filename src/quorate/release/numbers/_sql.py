"""A small SQL: numbers by group of one table, as settings of a `GroupRelease`. Everything else is refused."""

import re
from collections.abc import Iterator
from typing import Any, NoReturn

from quorate.core.errors import InvalidInput
from quorate.core.lazy import import_extra

_SHAPE = (
    "SELECT columns and count(*), count(DISTINCT person), sum, avg, median or approx_quantile(column, level) "
    "FROM one table [WHERE comparisons joined by AND] GROUP BY columns or date_trunc('month', column)"
)
_COMPARISONS = {"EQ": "=", "NEQ": "!=", "LT": "<", "LTE": "<=", "GT": ">", "GTE": ">="}
_TABLE = ("this", "db", "catalog")
_TURNED = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "=": "=", "!=": "!="}


def read_sql(text: str) -> dict[str, Any]:
    """Return by, totals, means, quantiles, where and groups (the column of people, or None) of a query.

    Parameters
    ----------
    text
        One SELECT of the shape that a refusal states.

    >>> settings = read_sql("SELECT region, sum(cost), median(stay) FROM visits WHERE age >= 18 GROUP BY region")
    >>> settings["by"], settings["totals"], settings["quantiles"], settings["where"]
    (['region'], ['cost'], {'stay': [0.5]}, [('age', '>=', 18.0)])
    """
    query = _parse_select(text)
    _check_source(query)
    settings: dict[str, Any] = {"by": _keys(query), "totals": [], "means": [], "quantiles": {}, "groups": None}
    for expression in query.expressions:
        _add_measure(expression, settings)
    where = query.args.get("where")
    return settings | {"where": [] if where is None else list(_conditions(where.this))}


def _parse_select(text: str) -> Any:
    """Return the tree of a SELECT that has no clauses but those of the shape."""
    sqlglot = import_extra("sqlglot", "sql", use="SQL")
    try:
        parsed = sqlglot.parse(text, read="duckdb")
    except sqlglot.errors.SqlglotError:
        _refuse("a text that is no SQL")
    if len(parsed) != 1 or type(parsed[0]).__name__ != "Select":
        _refuse("anything but one SELECT")
    for clause, value in parsed[0].args.items():
        if value and clause not in ("expressions", "from_", "where", "group", "kind"):
            _refuse(clause.strip("_").upper().replace("_", " "))
    return parsed[0]


def _check_source(query: Any) -> None:
    source = query.args.get("from_")
    table: Any = None if source is None else source.this
    if type(table).__name__ != "Table" or any(value for name, value in table.args.items() if name not in _TABLE):
        _refuse("a source that is not the name of one table")


def _keys(query: Any) -> list[str]:
    """Return the columns of GROUP BY, none without it."""
    group = query.args.get("group")
    if group is None:
        return []
    if any(value for name, value in group.args.items() if name != "expressions"):
        _refuse("GROUP BY of sets")
    return [_key(key) for key in group.expressions]


def _refuse(text: str) -> NoReturn:
    raise InvalidInput(f"SQL here must have the shape {_SHAPE}; got {text}")


def _name(column: Any, text: str) -> str:
    """Return the name of a plain column."""
    if type(column).__name__ != "Column" or column.table:
        _refuse(text)
    return str(column.name)


def _key(key: Any) -> str:
    """Return a column of GROUP BY as `by` names it."""
    if type(key).__name__ in ("TimestampTrunc", "DateTrunc"):
        return f"{_name(key.this, 'date_trunc of an expression')}:{key.unit.name.lower()}"
    return _name(key, f"GROUP BY {key.sql()}")


def _add_measure(expression: Any, settings: dict[str, Any]) -> None:
    """Add a selected expression to the settings."""
    kind, text = type(expression).__name__, expression.sql()
    if kind in ("Column", "TimestampTrunc", "DateTrunc"):
        if _key(expression) not in settings["by"]:
            _refuse(f"{text}, which GROUP BY does not name")
    elif kind == "Count":
        _add_count(expression.this, settings, text)
    elif kind in ("Sum", "Avg"):
        names = settings["totals" if kind == "Sum" else "means"]
        name = _name(expression.this, text)
        names += [name] * (name not in names)
    elif kind in ("Median", "ApproxQuantile", "PercentileCont", "Quantile"):
        level = expression.args.get("quantile") or expression.args.get("expression")
        number = 0.5 if kind == "Median" else _number(level, text)
        settings["quantiles"].setdefault(_name(expression.this, text), []).append(number)
    else:
        _refuse(text if kind != "Alias" else f"{text}; leave out AS and the name after it")


def _add_count(counted: Any, settings: dict[str, Any], text: str) -> None:
    """Add count(DISTINCT person); count(*) is part of every release."""
    kind = type(counted).__name__
    if kind == "Distinct" and len(counted.expressions) == 1:
        settings["groups"] = _name(counted.expressions[0], text)
    elif kind != "Star":
        _refuse(text)


def _number(literal: Any, text: str) -> float:
    negative = type(literal).__name__ == "Neg"
    literal = literal.this if negative else literal
    if type(literal).__name__ != "Literal" or literal.is_string:
        _refuse(text)
    return float(literal.this) * (-1 if negative else 1)


def _value(literal: Any, text: str) -> float | str:
    if type(literal).__name__ == "Literal" and literal.is_string:
        return str(literal.this)
    if type(literal).__name__ == "Cast" and re.fullmatch("DATE|TIMESTAMP", literal.to.sql()):
        return _value(literal.this, text)
    return _number(literal, text)


def _conditions(tree: Any) -> Iterator[tuple[Any, ...]]:
    """Yield the conditions of WHERE, which AND joins."""
    kind, text = type(tree).__name__, f"WHERE {tree.sql()}"
    if kind in _COMPARISONS:
        yield _comparison(tree, _COMPARISONS[kind], text)
    elif kind == "And":
        for side in (tree.this, tree.expression):
            yield from _conditions(side)
    elif kind == "Paren":
        yield from _conditions(tree.this)
    elif kind == "Between":
        for sign, end in ((">=", "low"), ("<=", "high")):
            yield _name(tree.this, text), sign, _value(tree.args[end], text)
    elif kind == "Not":
        yield _membership(tree.this, ("not in", "present"), text)
    else:
        yield _membership(tree, ("in", "missing"), text)


def _comparison(tree: Any, sign: str, text: str) -> tuple[Any, ...]:
    if type(tree.this).__name__ == "Column":
        return _name(tree.this, text), sign, _value(tree.expression, text)
    return _name(tree.expression, text), _TURNED[sign], _value(tree.this, text)


def _membership(tree: Any, signs: tuple[str, str], text: str) -> tuple[Any, ...]:
    """Return the condition of IN or of IS NULL, with its sign."""
    kind = type(tree).__name__
    if kind == "In" and tree.expressions:
        return _name(tree.this, text), signs[0], [_value(value, text) for value in tree.expressions]
    if kind == "Is" and type(tree.expression).__name__ == "Null":
        return _name(tree.this, text), signs[1]
    _refuse(text)
