"""Boolean expressions over columns, parsed by a small parser and never run as code.

    expression   = term { "or" term }
    term         = factor { "and" factor }
    factor       = "not" factor | "(" expression ")" | comparison
    comparison   = column ( "<" | "<=" | ">" | ">=" | "=" | "==" | "!=" | "<>" ) constant
                 | constant ( "<" | ... ) column
                 | column [ "not" ] "in" "(" constant { "," constant } ")"
                 | column [ "not" ] "between" constant "and" constant
    column       = a word, or any name in "double quotes" or `backticks`
    constant     = a number, a text in 'single quotes', true or false

A comparison with a missing value, or with a text where a number is expected, is false; `not` of it is true.

A constraint may also compare columns of numbers with each other, and may have a condition:

    constraint   = [ "if" expression "then" ] ( expression | sum ( "<" | "<=" | ">" | ">=" | "=" | "==" ) sum )
    sum          = ( column | number ) { ( "+" | "-" ) ( column | number ) }
"""

import math
import re
from collections.abc import Callable, Iterator, Sequence, Set
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quorate.core.errors import InvalidInput
from quorate.tables.values import canonical_text

LONGEST = 10_000  # characters
_DEEPEST = 50
_MOST_COMPARISONS = 1_000

Constant = float | str
Degrees = NDArray[np.int8]  # of truth: 1, -1, and 0 for unknown
_TOKEN = re.compile(
    r"""(?P<space>\s+)|(?P<number>[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?(?![\w.]))|(?P<text>'(?:[^']|'')*')
    |(?P<quoted>"[^"]+"|`[^`]+`)|(?P<word>[^\W\d]\w*)|(?P<sign><=|>=|==|!=|<>|[<>=(),+-])""",
    re.VERBOSE,
)
_TURNED = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "=": "=", "!=": "!="}
_SAME = {"==": "=", "<>": "!="}
_WORDS = frozenset({"and", "or", "not", "in", "between", "true", "false"})


@dataclass(frozen=True)
class Comparison:
    """A column against a constant: `sign` is <, <=, >, >= or =."""

    column: str
    sign: str
    constant: Constant


@dataclass(frozen=True)
class Negation:
    """The negation of an expression."""

    part: "Expression"


@dataclass(frozen=True)
class Junction:
    """The conjunction or disjunction of its parts."""

    word: str
    parts: tuple["Expression", ...]


Expression = Comparison | Negation | Junction


@dataclass(frozen=True)
class Balance:
    """Columns of numbers against each other: the sum of columns, each with its factor, against a `limit`.

    `sign` is <, <= or =.
    """

    factors: tuple[tuple[str, int], ...]
    sign: str
    limit: float


@dataclass(frozen=True)
class _Token:
    kind: str  # "number", "text", "name", "word", "sign", "end"
    value: Any
    position: int


def parse_expression(text: str) -> Expression:
    """Parse an expression; an error names the position of the unreadable character."""
    return _Parser(text).whole()


def parse_constraint(text: str) -> tuple[Expression | None, Expression | Balance]:
    """Parse a constraint to its condition, or None, and its consequence."""
    return _Parser(text, _WORDS | {"if", "then"}).constraint()


def comparisons(part: Expression) -> Iterator[Comparison]:
    """Yield the comparisons of an expression."""
    if isinstance(part, Comparison):
        yield part
    else:
        for inner in part.parts if isinstance(part, Junction) else (part.part,):
            yield from comparisons(inner)


def evaluate_expression(part: Expression, compare: Callable[[Comparison], Degrees]) -> Degrees:
    """Return the degrees of truth of an expression, from those of its comparisons."""
    if isinstance(part, Comparison):
        return compare(part)
    if isinstance(part, Negation):
        return -evaluate_expression(part.part, compare)
    join = np.minimum if part.word == "and" else np.maximum
    return np.asarray(join.reduce([evaluate_expression(inner, compare) for inner in part.parts]))


class _Parser:
    def __init__(self, text: str, words: Set[str] = _WORDS) -> None:
        if not isinstance(text, str):
            raise InvalidInput(f"an expression must be a text, not {type(text).__name__}")
        if len(text) > LONGEST:
            raise InvalidInput(f"an expression may have {LONGEST} characters, not {len(text)}")
        self._tokens = _tokens(text, words)
        self._next = 0
        self._depth = 0
        self._comparisons = 0

    def whole(self) -> Expression:
        expression = self._expression()
        if self._peek().kind != "end":
            raise _refusal(self._peek(), "and, or, or the end is expected")
        return expression

    def constraint(self) -> tuple[Expression | None, Expression | Balance]:
        condition = None
        if self._accept("word", "if"):
            condition = self._expression()
            self._expect("word", "then", "and, or, or then is expected")
        return condition, self._balance() if self._compares_columns() else self.whole()

    def _compares_columns(self) -> bool:
        """Return whether the rest consists of columns and numbers alone, with at least two columns."""
        kinds = [token.kind for token in self._tokens[self._next : -1]]
        return kinds.count("name") > 1 and not {"text", "word"} & set(kinds)

    def _balance(self) -> Balance:
        smaller, sign, larger = self._sum(), self._sign(), self._sum()
        if sign == "!=":
            raise InvalidInput("columns of numbers are compared by <, <=, >, >= and =, not by !=")
        if self._peek().kind != "end":
            raise _refusal(self._peek(), "+, - or the end is expected")
        if sign in (">", ">="):
            smaller, larger, sign = larger, smaller, _TURNED[sign]
        factors: dict[str, int] = {}
        limit = 0.0
        for side, terms in ((1, smaller), (-1, larger)):
            for factor, token in terms:
                if token.kind == "number":
                    limit -= side * factor * token.value
                else:
                    factors[token.value] = factors.get(token.value, 0) + side * factor
        nonzero = tuple((name, factor) for name, factor in factors.items() if factor)
        if len(nonzero) < 2:
            raise InvalidInput("a constraint compares at least two columns of numbers, or a column with a constant")
        return Balance(nonzero, sign, limit)

    def _sum(self) -> list[tuple[int, _Token]]:
        expected = "a column or a number is expected"
        terms = [(1, self._take_kind(expected, "name", "number"))]
        while self._is("sign", "+", "-"):
            factor = 1 if self._take().value == "+" else -1
            terms.append((factor, self._take_kind(expected, "name", "number")))
        return terms

    def _peek(self) -> _Token:
        return self._tokens[self._next]

    def _take(self) -> _Token:
        token = self._tokens[self._next]
        self._next += token.kind != "end"
        return token

    def _take_kind(self, expected: str, *kinds: str) -> _Token:
        token = self._take()
        if token.kind not in kinds:
            raise _refusal(token, expected)
        return token

    def _is(self, kind: str, *values: str) -> bool:
        return self._peek().kind == kind and self._peek().value in values

    def _accept(self, kind: str, value: str) -> bool:
        """Consume the next token if it equals this text, and return whether it did."""
        is_next = self._is(kind, value)
        self._next += is_next
        return is_next

    def _expression(self) -> Expression:
        return self._parse_junction("or", lambda: self._parse_junction("and", self._factor))

    def _parse_junction(self, word: str, read: Any) -> Expression:
        parts = [read()]
        while self._accept("word", word):
            parts.append(read())
        return _join_parts(word, parts)

    def _factor(self) -> Expression:
        self._depth += 1
        if self._depth > _DEEPEST:
            raise _refusal(
                self._peek(), f"at most {_DEEPEST} brackets and nots may stand within each other", with_token=False
            )
        if self._accept("word", "not"):
            expression: Expression = Negation(self._factor())
        elif self._accept("sign", "("):
            expression = self._expression()
            self._expect("sign", ")", "a closing bracket is expected")
        else:
            expression = self._comparison()
        self._depth -= 1
        return expression

    def _comparison(self) -> Expression:
        self._comparisons += 1
        first = self._take()
        if self._comparisons > _MOST_COMPARISONS:
            raise _refusal(
                first, f"at most {_MOST_COMPARISONS} comparisons may stand in an expression", with_token=False
            )
        if first.kind in ("number", "text"):
            sign = self._sign()
            return _make_comparison(self._take_kind("a column is expected", "name"), _TURNED[sign], first.value)
        if first.kind != "name":
            raise _refusal(first, "a column, a bracket or not is expected")
        negated = self._accept("word", "not")
        if self._accept("word", "in"):
            comparison = _join_parts("or", [Comparison(first.value, "=", value) for value in self._parse_list()])
        elif self._accept("word", "between"):
            low = self._constant(number=True)
            self._expect("word", "and", "and is expected between the two ends")
            ends = Comparison(first.value, ">=", low), Comparison(first.value, "<=", self._constant(number=True))
            comparison = Junction("and", ends)
        elif negated:
            raise _refusal(self._peek(), "in or between is expected after not")
        else:
            sign = self._sign()
            return _make_comparison(first, sign, self._constant())
        return Negation(comparison) if negated else comparison

    def _sign(self) -> str:
        token = self._take()
        if token.kind != "sign" or token.value in "(),+-":
            raise _refusal(token, "a comparison such as <, = or in is expected")
        return _SAME.get(token.value, str(token.value))

    def _constant(self, *, number: bool = False) -> Constant:
        token = self._take()
        if token.kind == "word" and token.value in ("true", "false") and not number:
            return str(token.value)
        if token.kind != "number" and (token.kind != "text" or number):
            noun = "a number" if number else "a number or a text in single quotes"
            raise _refusal(token, f"{noun} is expected")
        constant: Constant = token.value
        return constant

    def _parse_list(self) -> list[Constant]:
        self._expect("sign", "(", "an opening bracket is expected after in")
        constants = [self._constant()]
        while self._accept("sign", ","):
            constants.append(self._constant())
        self._expect("sign", ")", "a comma or a closing bracket is expected")
        return constants

    def _expect(self, kind: str, value: str, expected: str) -> None:
        if not self._accept(kind, value):
            raise _refusal(self._peek(), expected)


def _join_parts(word: str, parts: Sequence[Expression]) -> Expression:
    return parts[0] if len(parts) == 1 else Junction(word, tuple(parts))


def _make_comparison(column: _Token, sign: str, constant: Constant) -> Expression:
    if sign == "!=":
        return Negation(Comparison(column.value, "=", constant))
    if sign != "=" and not isinstance(constant, float):
        raise InvalidInput(f"at character {column.position + 1}: texts are compared by =, != and in, not by {sign}")
    return Comparison(column.value, sign, constant)


def _tokens(text: str, words: Set[str]) -> list[_Token]:
    tokens, position = [], 0
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            raise InvalidInput(f"at character {position + 1}: {text[position]!r} cannot be read here")
        if match.lastgroup != "space":
            tokens.append(_token(str(match.lastgroup), match.group(), position, words))
        position = match.end()
    return [*tokens, _Token("end", "", len(text))]


def _token(kind: str, text: str, position: int, words: Set[str]) -> _Token:
    if kind == "number":
        if not math.isfinite(float(text)):
            raise InvalidInput(f"at character {position + 1}: a number must be finite")
        return _Token("number", float(text), position)
    if kind == "text":
        return _Token("text", canonical_text(text[1:-1].replace("''", "'")), position)
    if kind == "quoted":
        return _Token("name", text[1:-1], position)
    if kind == "word" and text.lower() in words:
        return _Token("word", text.lower(), position)
    return _Token("name" if kind == "word" else "sign", text, position)


def _refusal(token: _Token, expected: str, *, with_token: bool = True) -> InvalidInput:
    token_text = (
        "" if not with_token else ", not the end of the expression" if token.kind == "end" else f", not {token.value!r}"
    )
    return InvalidInput(f"at character {token.position + 1}: {expected}{token_text}")
