"""Private texts, written token by token by a public model that sees one private text in each of many prompts.

Claim (replace-one units: one private text): all texts that a writer ever writes are (epsilon, delta)-differentially
private together. What they cost depends on public numbers alone, and is charged before the first token. Proof:
PROOF.md, steps 5 to 8.
"""

import fcntl
import hashlib
import json
import math
import os
import threading
import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from inspect import signature
from pathlib import Path
from typing import Any, NoReturn, Protocol, Self

import numpy as np

from quorate.compute.ensemble.dealing import deal_units
from quorate.core.answerers import Journal
from quorate.core.arrays import Floats, Integers
from quorate.core.ballots import Ballots, release_counts
from quorate.core.checks import check_count, check_delta, check_positive, check_process, check_rate, process_identity
from quorate.core.disk import write_new
from quorate.core.errors import BudgetSpent, Infeasible, InvalidInput
from quorate.core.estimator_calls import silence
from quorate.core.ledger import Ledger
from quorate.core.mechanisms import ExponentialChoice
from quorate.core.privacy import Budget, Cost
from quorate.core.privacy.claims import Claim, Node, budget_node, replaced
from quorate.models.text._prompts import OWN_PROMPT, clean_text
from quorate.models.text._review import WritingReview, copied_share

_GRID = 2**12  # steps of a log probability
_LOWEST = 40.0  # below the likeliest token: no candidate counts as less likely
_DEAL, _LEDGER, _TEXTS, _LOCK = "deal.json", "ledger.sqlite", "texts.jsonl", "lock"
_BEGUN, _WRITTEN = "begun", "text"
_LARGEST = 2**52  # score


class Continuation(Protocol):
    """Some prompts that one model continues with the same tokens."""

    def log_probabilities(self, tokens: Any = None) -> Any:
        """Return the log probabilities of the next token, one row a prompt: of all tokens, or of these."""

    def append(self, token: int) -> None:
        """Append a token to every prompt."""


class TokenModel(Protocol):
    """A language model that writes: see `TransformersModel`.

    A row of `log_probabilities` must be a function of its own prompt and of the tokens appended, to the last bit,
    whatever the other prompts hold; and no prompt may make it fail.
    """

    @property
    def end(self) -> int:
        """The token that ends a text."""

    def start(self, prompts: Sequence[str], *, public: bool = False) -> Continuation:
        """Read prompts that are continued together. Of `public` ones, lengths may show."""

    def decode(self, tokens: Sequence[int]) -> str:
        """Return the text of some tokens, without the one that ends it."""


@dataclass(frozen=True)
class WritingPlan:
    """What a writer can write, from public numbers alone.

    Attributes
    ----------
    texts
        The number of texts.
    batches
        The number of batches of private texts; each writes every so manieth text.
    private_tokens
        The most tokens of one text that are drawn with private texts in prompts; the public model draws the others.
    choice
        The mechanism that draws one of these tokens.

    >>> plan = PrivateWriter.plan(records=5000, epsilon=3.0, delta=1e-6)
    >>> print(plan)
    1,500 texts of at most 60 tokens, of which 30 see private texts, by 50 batches of 100 private texts
    """

    texts: int
    batches: int
    batch: int
    tokens: int
    private_tokens: int
    choice: ExponentialChoice

    def __str__(self) -> str:
        return (
            f"{self.texts:,} texts of at most {self.tokens} tokens, of which {self.private_tokens} see private texts, "
            f"by {self.batches:,} batches of {self.batch:,} private texts"
        )


class PrivateWriter:
    """Synthetic texts under one claim.

    Each private text stands in one prompt of one batch, dealt once and for all. A batch writes a text together: for
    each token the differences of the log probabilities of its prompts to those of the public prompt are clipped and
    averaged, and the exponential mechanism draws exactly. Where the public model is sure of a token it draws alone, at
    no privacy cost, and so it does for the share `free_share` of a text.

    Parameters
    ----------
    model
        A `TokenModel`, such as `TransformersModel`.
    epsilon, delta
        The guarantee of all texts together; delta must be above 0.
    tokens
        The most tokens of a text.
    batch
        The number of private texts behind each text. The cost of a token falls with its square.
    free_share
        The share of tokens that the public model draws alone. All through a text at least so many of its tokens are
        drawn so, up to one token.
    sure
        The probability from which the public model's likeliest token makes it draw alone.
    clip
        The largest difference of log probabilities that one private text can cause, to either side.
    temperature
        What log probabilities are divided by.
    candidates
        The number of tokens, the likeliest of the public model, among which each is drawn.
    examples
        The number of texts that the public prompt shows: the last ones that were written, which are public by then.
    instruction, shown, asked
        The public prompt is `instruction`, the examples and `asked`; in a private one, a private text stands between
        `instruction` and `asked`. Texts stand in {text} of `shown`.
    characters
        The length at which each private text is cut.

    >>> class Echo:  # a stand-in of two words, which repeats those of its prompt; a real one is `TransformersModel`
    ...     end = 2
    ...     def __init__(self, prompts=()):
    ...         self.prompts = prompts
    ...     def start(self, prompts, public=False):
    ...         return Echo(prompts)
    ...     def log_probabilities(self, tokens=None):
    ...         scores = np.array([[prompt.count("tea"), prompt.count("jam"), -9.0] for prompt in self.prompts])
    ...         scores -= np.log(np.exp(scores).sum(axis=1, keepdims=True))
    ...         return scores if tokens is None else scores[:, tokens]
    ...     def append(self, token):
    ...         pass
    ...     def decode(self, tokens):
    ...         return " ".join(["tea", "jam"][token] for token in tokens)
    >>> writer = PrivateWriter(Echo(), epsilon=9.0, tokens=3, batch=50, free_share=0.0, temperature=0.1)
    >>> writer.fit(["tea and tea"] * 50 + ["tea and tea"] * 50).write(1)
    ['tea tea tea']
    """

    def __init__(
        self,
        model: TokenModel,
        *,
        epsilon: float = 3.0,
        delta: float = 1e-6,
        tokens: int = 60,
        batch: int = 100,
        free_share: float = 0.5,
        sure: float = 0.9,
        clip: float = 1.0,
        temperature: float = 1.0,
        candidates: int = 200,
        examples: int = 4,
        instruction: str = "",
        shown: str = "Text: {text}\n",
        asked: str = "Text:",
        characters: int = 400,
    ) -> None:
        self.model, self.epsilon, self.delta, self.tokens, self.batch = model, epsilon, delta, tokens, batch
        self.free_share, self.sure, self.clip, self.temperature = free_share, sure, clip, temperature
        self.candidates, self.examples, self.characters = candidates, examples, characters
        self.instruction, self.shown, self.asked = instruction, shown, asked

    @classmethod
    def plan(cls, *, records: int, **settings: Any) -> WritingPlan:
        """Return what a writer with these settings can write from so many private texts. Nothing private is read."""
        unfitted = cls(None, **settings)  # type: ignore[arg-type]
        return unfitted.plan_and_budget(check_count("records", records))[0]

    def plan_and_budget(self, records: int) -> tuple[WritingPlan, Budget]:
        """Return the plan for so many private texts, and a new budget that pays for it."""
        check_delta(self.delta, zero=False)
        batch, tokens = check_count("batch", self.batch), check_count("tokens", self.tokens)
        check_count("candidates", self.candidates, least=2)
        check_count("examples", self.examples, least=0)
        if records < batch:
            raise Infeasible(f"batch={batch} takes at least so many texts, got {records}; lower batch")
        if self.shown.count("{text}") != 1:
            raise InvalidInput("shown must have {text} once")
        if not 0 <= self.free_share <= 1:
            raise InvalidInput(f"free_share must be from 0 to 1, got {self.free_share!r}")
        private_tokens = max(1, math.ceil(tokens * (1 - self.free_share)))
        check_rate("sure", self.sure)
        clip = max(1, math.floor(_GRID * check_positive("clip", self.clip)))
        if batch * (clip + _GRID * _LOWEST) > _LARGEST:
            raise InvalidInput(f"clip is too large for sums of {batch} differences, got {self.clip!r}; lower clip")
        steps = Fraction(4 * clip, batch * _GRID) / Fraction(check_positive("temperature", self.temperature))
        choice = ExponentialChoice(epsilon=float(steps), sensitivity=2 * clip)  # proof: step 6
        budget = Budget(epsilon=self.epsilon, delta=self.delta, slack=0.0, renyi=choice.renyi)
        rounds = budget.affordable(choice.choice_cost(budget.order).times(private_tokens))
        if rounds == 0:
            raise Infeasible(f"epsilon={self.epsilon} does not pay for one text; raise epsilon or batch, or lower clip")
        batches = records // batch
        return WritingPlan(rounds * batches, batches, batch, tokens, private_tokens, choice), budget

    def fit(self, texts: Sequence[Any], *, folder: str | Path | None = None) -> Self:
        """Deal the private texts to batches and open the budget.

        With a `folder`, which is private, the deal, the ledger and what was written are kept there: a writer with the
        same settings and texts that is fitted with the same folder goes on with all three, once the one before is
        closed: one writer at a time.
        """
        self.close()  # until all is set: with new settings an old round would not be paid for
        self.plan_, budget = self.plan_and_budget(len(texts))
        self._try_model()
        self._texts = list(texts)
        plain = {name: getattr(self, name) for name in signature(type(self)).parameters if name != "model"}
        seen = hashlib.blake2b(json.dumps(plain, sort_keys=True).encode())
        for text in self._texts:
            seen.update(hashlib.blake2b(self._shown(text).encode("utf-8", "replace")).digest())
        if folder is None:
            self._deal, self.budget_, self._journal = _deal(len(texts), self.plan_), budget, Journal()
        else:
            try:
                self._continue(Path(folder), budget, seen.hexdigest())
            except BaseException:
                self.close()
                raise
        lines = [tuple(line) for line in self._journal.lines()]
        self._next = max((line[1] + 1 for line in lines if line[0] == _BEGUN), default=0)
        self._released = [line[2] for line in lines if line[0] == _WRITTEN]
        self.free_, self.drawn_ = 0, 0
        self._turn, self._process = threading.Lock(), process_identity()
        return self

    def _try_model(self) -> None:
        """Put public prompts to the model, so that its mistakes show: errors about private ones say nothing."""
        prompt, tokens = self.instruction + self.asked, [self.model.end]
        public, private = self.model.start([prompt], public=True), self.model.start([prompt] * 2)
        private.append(self.model.end)
        shapes = np.shape(public.log_probabilities())[:1], np.shape(private.log_probabilities(tokens))
        if shapes != ((1,), (2, 1)):
            raise InvalidInput("model must return log probabilities with one row a prompt and one column a token")

    def _continue(self, folder: Path, budget: Budget, fingerprint: str) -> None:
        """Go on with the deal and the ledger of a folder, or make both. Another writer in it is refused."""
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = os.open(folder / _LOCK, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        self._unlock = weakref.finalize(self, os.close, lock)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)  # proof: step 7
        except OSError:
            raise InvalidInput("folder is in use by another writer; close that one first") from None
        if not (folder / _DEAL).exists():
            deal = [batch.tolist() for batch in _deal(len(self._texts), self.plan_)]
            Ledger.create(folder / _LEDGER, budget, fingerprint=fingerprint).close()
            write_new(folder / _DEAL, json.dumps({"fingerprint": fingerprint, "deal": deal}).encode(), synced=True)
        kept = json.loads((folder / _DEAL).read_bytes())
        if kept["fingerprint"] != fingerprint:
            raise InvalidInput("folder must be new, or one that was made with these texts and settings; name another")
        self._deal = [np.array(batch, dtype=np.int64) for batch in kept["deal"]]  # proof: step 5
        self._ledger = Ledger.open(folder / _LEDGER, fingerprint=fingerprint)
        self.budget_, self._journal = self._ledger.budget(), Journal(folder / _TEXTS)

    def write(self, texts: int) -> list[str]:
        """Return so many more texts. Every round of one text a batch is charged before its first token.

        Raises
        ------
        BudgetSpent
            If the budget cannot pay for all of them; none is then written.
        """
        check_process("this writer", self._process)
        count = check_count("texts", texts)
        if count > self.texts_left_:
            raise BudgetSpent(f"the budget does not pay for {count} more texts; it is for {self.texts_left_}")
        return [self._write_next() for _ in range(count)]

    @property
    def texts_left_(self) -> int:
        """The number of texts that the budget still pays for."""
        batches = self.plan_.batches
        return -self._next % batches + self.budget_.affordable(self._round_cost()) * batches

    def _round_cost(self) -> Cost:
        return self.plan_.choice.choice_cost(self.budget_.order).times(self.plan_.private_tokens)

    def _write_next(self) -> str:
        """Charge for a round if this is its first text, and write a text. A text that is interrupted is lost."""
        with self._turn:  # another thread would begin the same text: proof: step 7
            number, batch = self._next, self._next % self.plan_.batches
            if batch == 0:
                described = self.plan_.choice.describe(uses=self.plan_.private_tokens)
                self.budget_.spend(self._round_cost(), releases=[described])  # proof: step 7: charge, then draw
            self._next += 1
            self._journal.add([(_BEGUN, number)])  # proof: step 7
            text = self._written_quietly(self._deal[batch])
            self._journal.add([(_WRITTEN, number, text)])
            self._released.append(text)  # the next one sees it: proof: step 7
            return text

    def _written_quietly(self, rows: Integers) -> str:
        """Write one text; what a library logs or raises would tell of private ones."""
        try:
            with silence():
                return self._written(rows)
        except Exception:
            raise RuntimeError("the model failed; the text that was begun is lost, and stays paid for") from None

    def close(self) -> None:
        """Let another writer go on with the folder. This one writes no more."""
        self._process = (0, 0)
        if (unlock := self.__dict__.pop("_unlock", None)) is not None:
            unlock()

    def __reduce__(self) -> NoReturn:
        raise TypeError("a PrivateWriter cannot be copied or pickled: a copy would write a round that is paid for once")

    @property
    def texts_(self) -> list[str]:
        """All texts that were written, also before a restart."""
        return list(self._released)

    @property
    def free_share_(self) -> float:
        """The share of tokens that the public model drew alone, since `fit`. It is a function of what was written."""
        return self.free_ / max(self.drawn_, 1)

    @property
    def claim_(self) -> str:
        """The guarantee, in one sentence."""
        return str(Claim(self.budget_.epsilon, self.budget_.delta, unit=replaced("text"), conditions=(OWN_PROMPT,)))

    def claim_part(self) -> Node:
        """Return all choices so far as a tree of integers."""
        return budget_node(self.budget_)

    def _written(self, rows: Integers) -> str:
        """Write one text with the private texts of a batch."""
        prompts = [self.instruction + self._shown(self._texts[row]) + self.asked for row in rows.tolist()]
        return self._compose(self._public_prompt(), self.model.start(prompts))

    def _compose(self, public_prompt: str, private: Continuation | None) -> str:
        """Compose one text; without private prompts, by the public model alone."""
        public = self.model.start([public_prompt], public=True)
        tokens, left = list[int](), self.plan_.private_tokens if private else 0
        for _ in range(self.plan_.tokens):
            likely = np.array(public.log_probabilities()[0], dtype=np.float64)
            if not tokens:
                likely[self.model.end] = -np.inf  # no text is empty
            candidates = np.argsort(-likely, kind="stable")[: min(self.candidates, np.isfinite(likely).sum())]
            heights = _on_grid(np.maximum(likely[candidates] - likely[candidates[0]], -_LOWEST))
            is_free = left == 0 or math.exp(likely[candidates[0]]) >= self.sure  # proof: step 8
            is_free |= self.plan_.private_tokens - left > len(tokens) * (1 - self.free_share)
            scores = self.plan_.batch * heights
            if is_free or private is None:
                position = self.plan_.choice.choose_score(scores)
            else:
                left -= 1
                own = private.log_probabilities(candidates)
                sealed = Ballots(scores + self._differences(own, likely[candidates]))
                position = release_counts(sealed, self.plan_.choice.choose_score)  # proof: step 6
            if private:
                self.free_, self.drawn_ = self.free_ + is_free, self.drawn_ + 1
            token = int(candidates[position])
            if token == self.model.end:
                break
            tokens.append(token)
            public.append(token)
            if private and left:  # later ones are drawn by the public model alone
                private.append(token)
        return self.model.decode(tokens)

    def _public_prompt(self) -> str:
        """Return the prompt of the public model, with the texts that were written last: proof: step 8."""
        written = self._released[-self.examples :] if self.examples else []
        return self.instruction + "".join(map(self._shown, written)) + self.asked

    def review(self, samples: int = 5) -> WritingReview:
        """Return samples beside the public model's, the share of free tokens, and what was copied.

        Parameters
        ----------
        samples
            The number of texts of each. What was copied is a function of private texts that no claim covers.
        """
        count = check_count("samples", samples)
        public = tuple(self._compose(self.instruction + self.asked, None) for _ in range(count))
        private = [clean_text(text, self.characters) for text in self._texts]
        shares = [copied_share(texts, private) for texts in (self._released, public)]
        return WritingReview(tuple(self._released[:count]), public, self.free_share_, *shares)

    def _differences(self, own: Any, likely: Floats) -> Integers:
        """Return the sum over prompts of clipped whole differences of log probabilities to the public ones."""
        with np.errstate(all="ignore"):
            whole = np.trunc((np.asarray(own, dtype=np.float64) - likely) * _GRID)
        limit = self.plan_.choice.sensitivity // 2
        whole = np.clip(np.nan_to_num(whole, nan=0.0, posinf=limit, neginf=-limit), -limit, limit)  # proof: step 6
        return np.asarray(whole.astype(np.int64).sum(axis=0))

    def _shown(self, text: Any) -> str:
        return self.shown.replace("{text}", clean_text(text, self.characters))


def _deal(records: int, plan: WritingPlan) -> list[Integers]:
    """Return the texts of each batch, by a secret permutation: equally many, and the rest in none."""
    dealt, _ = deal_units(np.arange(records), records, teachers=plan.batches)
    return [rows[: plan.batch] for rows in np.split(dealt.rows, np.cumsum(dealt.sizes)[:-1])]


def _on_grid(values: Floats) -> Integers:
    return np.trunc(values * _GRID).astype(np.int64)
