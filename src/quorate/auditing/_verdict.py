"""The verdict of an audit on one claim, how a game judges its plays, and `audit`, which chooses a target's game."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import singledispatch, wraps
from typing import Any, Literal, TypeVar

import numpy as np

from quorate.auditing._bounds import Bound, epsilon_lower_bound, expected_lower_bound
from quorate.auditing._enumeration import Outcomes
from quorate.core.checks import check_count
from quorate.core.errors import InvalidInput
from quorate.core.progress import progress

CONFIDENCE = 1 - 1e-9
DELTAS = (1e-1, 1e-2, 1e-3)  # at which claims with a delta are attacked; a million plays see too little below
_INTERRUPTED = "Interrupted: plays are simulated, and nothing is spent."

Attacks = Sequence[str] | Literal["auto"]
Pair = TypeVar("Pair", bound=tuple[Any, Any])


def _is_violated(claim: tuple[float, float], lower_bound: float, exact: float | None) -> bool:
    """Return whether plays, or enumeration where it is known, show that the claimed epsilon is too small."""
    return max(lower_bound, 0.0 if exact is None else exact * (1 - 1e-9)) > claim[0]


@dataclass(frozen=True)
class Attempt:
    """One attack on one claim, and its lower bound on epsilon; `exact` is from enumeration, if known."""

    attack: str
    lower_bound: float
    event: str = ""
    claim: tuple[float, float] = (0.0, 0.0)
    exact: float | None = None

    @property
    def violated(self) -> bool:
        """Whether the claim is false, by the plays or by enumeration."""
        return _is_violated(self.claim, self.lower_bound, self.exact)


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """A claim (epsilon, delta), the largest lower bound on epsilon that an attack showed, and the attack.

    `exact` is the epsilon, at the same delta, of the worst attack of its kind by enumeration, if known: the gap from
    `lower_bound` to it is due to the number of plays; the gap from it to the claim is not.

    >>> verdict = Verdict(
    ...     target="SoftMajority", claim=(1.0, 0.0), lower_bound=0.9, attack="one ballot moved", plays=10**6,
    ...     confidence=0.95, not_tested="more than one query",
    ... )
    >>> verdict.ratio, verdict.violated
    (0.9, False)
    """

    target: str
    claim: tuple[float, float]
    lower_bound: float
    attack: str
    plays: int
    confidence: float
    not_tested: str
    exact: float | None = None
    attempts: tuple[Attempt, ...] = field(default=(), repr=False)

    @property
    def ratio(self) -> float:
        """The lower bound as a share of the claim: near 1 if the claim is tight, above 1 if it is false."""
        epsilon = self.claim[0]
        return self.lower_bound / epsilon if epsilon > 0 else float("inf") if self.lower_bound > 0 else 0.0

    @property
    def violated(self) -> bool:
        """Whether the claim is false, with the stated confidence (or with certainty, if enumeration shows it)."""
        return _is_violated(self.claim, self.lower_bound, self.exact)


@dataclass(frozen=True, kw_only=True)
class Effort:
    """How hard a game is played: plays in each world, the verdict's confidence, attacks by name, the noise's seed."""

    plays: int = 1_000_000
    confidence: float = CONFIDENCE
    attacks: Attacks = "auto"
    seed: int = 0

    def wants(self, attack: str) -> bool:
        """Return whether an attack of this name is to be played."""
        names = [self.attacks] if isinstance(self.attacks, str) else self.attacks  # a text is one name, not its letters
        return self.attacks == "auto" or any(attack.startswith(name) for name in names)

    def limit_plays(self, plays: int) -> "Effort":
        """Return the same effort with at most this many plays, for games whose plays are slow."""
        return replace(self, plays=min(self.plays, plays))

    def judge(self, target: str, attempts: Sequence[Attempt], *, not_tested: str) -> Verdict:
        """Return the verdict of several attempts: about a claim that is false, or else the one that came closest."""
        if not attempts:
            raise InvalidInput(f'no attack on {target} was played; name one that is known for it, or take "auto"')
        closest = max(attempts, key=lambda attempt: (attempt.violated, attempt.lower_bound / attempt.claim[0]))
        return Verdict(
            target=target,
            claim=closest.claim,
            lower_bound=closest.lower_bound,
            attack=f"{closest.attack}; {closest.event}" if closest.event else closest.attack,
            plays=self.plays,
            confidence=self.confidence,
            not_tested=not_tested,
            exact=closest.exact,
            attempts=tuple(attempts),
        )

    def judge_plays(
        self,
        target: str,
        claims: Sequence[tuple[float, float]],
        first: Any,
        second: Any,
        *,
        attack: str,
        not_tested: str,
        exact: Outcomes | float | None = None,
        bound: Callable[..., Bound] = epsilon_lower_bound,
    ) -> Verdict:
        """Return the verdict on the claims of a finite epsilon above 0, from the same plays, which share the error.

        `exact` is the pair of exact laws of what was seen, or the epsilon that the attack needs, where it is known.
        """
        bounded = [(epsilon, delta) for epsilon, delta in claims if 0 < epsilon < np.inf]
        error = (1 - self.confidence) / max(1, len(bounded))
        attempts = []
        for claim in bounded:
            lower_bound = bound(first, second, delta=claim[1], confidence=1 - error)
            needed = exact.two_sided_epsilon(claim[1]) if isinstance(exact, Outcomes) else exact
            attempts.append(Attempt(attack, lower_bound.epsilon, lower_bound.event, claim=claim, exact=needed))
        return self.judge(target, attempts, not_tested=not_tested)

    def find_best_pair(self, pairs: Iterable[Pair], law: Callable[..., Any], *, delta: float) -> Pair:
        """Return the pair of worlds that these plays tell apart best, by the `law` of what is seen in a world."""

        def expect_bound(pair: Pair) -> float:
            first, second = (law(world) for world in pair)
            return expected_lower_bound(first, second, delta=delta, confidence=self.confidence, plays=self.plays)

        return max(pairs, key=expect_bound)


@singledispatch
def verdict_on(target: object, **options: Any) -> Verdict:
    """Play the game for the type of `target`; `verdict_on.register(Mine)` adds one for your own type."""
    remedy = "quorate.auditing.epsilon_lower_bound takes plays"
    raise InvalidInput(f"no attack is known for {type(target).__name__}; {remedy}")


def game(*kinds: type) -> Callable[[Callable[..., Verdict]], Callable[..., Verdict]]:
    """Register a function of a target, an `Effort` and options of its own; callers pass keywords, as to `audit`."""

    def register(play: Callable[..., Verdict]) -> Callable[..., Verdict]:
        @wraps(play)
        def play_with_effort(target: Any, **options: Any) -> Verdict:
            names = [setting.name for setting in fields(Effort) if setting.name in options]
            return play(target, Effort(**{name: options.pop(name) for name in names}), **options)

        for kind in kinds:
            verdict_on.register(kind, play_with_effort)
        return play_with_effort

    return register


def audit(target: object, *, plays: int = 1_000_000, **options: Any) -> Verdict:
    """Attack the claim of `target`, a mechanism or a fitted predictor, and return the verdict.

    Runs of releases are attacked by `quorate audit` and `quorate.auditing.compare_charges`.

    `options` go to the game: `confidence` of the verdict; `seed`, since plays use seeded noise and the same seed gives
    the same verdict; `attacks`, prefixes of the names of those to play, or "auto" for all. Targets that count votes
    have several attacks, most others have one.

    >>> from quorate.core.mechanisms import SoftMajority
    >>> verdict = audit(SoftMajority(teachers=20, epsilon_per_query=1.0), plays=20_000)
    >>> verdict.violated, 0.5 < verdict.ratio < 1.0
    (False, True)
    """
    plays = check_count("plays", plays, least=10)
    with progress(f"attacking {type(target).__name__}, {plays:,} plays", left=_INTERRUPTED):
        return verdict_on(target, plays=plays, **options)


audit.register = verdict_on.register  # type: ignore[attr-defined]  # the documented way to add a game
