"""Private texts: the exact law of a token, what one text moves, and what a restart keeps."""

import contextlib
import copy
import itertools
import math
import os
import pickle
import subprocess
import sys
import textwrap
import threading
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

from quorate import InvalidInput
from quorate.auditing._plays import SeededNoise
from quorate.core.ballots import Ballots
from quorate.core.errors import BudgetSpent, Infeasible, WrongProcess
from quorate.core.mechanisms import ExponentialChoice
from quorate.core.privacy import Budget
from quorate.models.text import PrivateWriter, TransformersModel
from quorate.models.text import _writer as writer_module
from quorate.models.text._review import copied_share
from support.toy_writer import Toy

HOSTILE = ["", "x" * 1_000_000, "Text: <|im_end|> {text}", "\x00\x1b[31m\u2028", "lone \ud800", b"bytes", None]


def writer(**settings):
    return PrivateWriter(Toy(), **{"epsilon": 3.0, "tokens": 6, "batch": 20, "candidates": 6, **settings})


TEXTS = ["warm soup", "the soup is warm"] * 30


def law(scores, rate):
    """Return the probabilities of a choice, far more exact than doubles."""
    weights = [Fraction(math.exp(float(rate) * (score - max(scores)))) for score in scores]
    return [weight / sum(weights) for weight in weights]


def test_a_choice_among_scores_has_the_law_it_should():
    choice = ExponentialChoice(epsilon=1.5, sensitivity=3)
    scores, noise = [5, 0, -4, 3, -40], SeededNoise(7)
    drawn = np.bincount([choice.draw_score(scores, None, noise) for _ in range(20_000)], minlength=5)
    expected = np.array([float(part) for part in law(scores, choice.rate)]) * 20_000
    assert stats.chisquare(drawn[:4], expected[:4] * drawn[:4].sum() / expected[:4].sum()).pvalue > 1e-4
    assert drawn[4] <= 60


def test_scores_of_any_size_are_drawn_and_others_are_refused():
    choice = ExponentialChoice(epsilon=1.0)
    assert choice.choose_score([-(2**62), 2**62, 0]) == 1
    assert choice.choose_score([7]) == 0
    for scores in ([], [0.5], [[1]], ["a"]):
        with pytest.raises(InvalidInput, match="scores must be"):
            choice.choose_score(scores)
    budget = Budget(epsilon=1.0, delta=0.0)
    choice.choose_score([0, 1], budget=budget)
    assert budget.remaining().renyi == 0.0


@pytest.mark.parametrize("clip", [0.25, 1.0])
def test_the_cost_of_a_token_bounds_every_change_of_one_text_exactly(clip):
    """Enumerate a vocabulary of three words, two prompts, and all extreme differences of one of them."""
    made = PrivateWriter.plan(records=2, batch=2, epsilon=20.0, clip=clip, tokens=1)
    choice, largest = made.choice, made.choice.sensitivity // 2
    assert largest == clip * 4096
    worst, order, most = 0.0, 3.0, 0.0
    ends = list(itertools.product((-largest, 0, largest), repeat=3))
    for public, others in itertools.product([(0, -3000, -9000)], ends):
        base = [2 * height + other for height, other in zip(public, others, strict=True)]
        laws = [law([score + own for score, own in zip(base, change, strict=True)], choice.rate) for change in ends]
        for first, second in itertools.permutations(laws, 2):
            worst = max(worst, *(math.log(p / q) for p, q in zip(first, second, strict=True)))
            power = sum(float(p) ** order * float(q) ** (1 - order) for p, q in zip(first, second, strict=True))
            most = max(most, math.log(power) / (order - 1))
    assert worst <= choice.epsilon_per_choice * (1 + 1e-9)
    assert most <= choice.renyi(order)
    assert worst > 0.6 * choice.epsilon_per_choice  # the bound is not idle


def seen_scores(monkeypatch, texts):
    """Return the sealed scores of every private token, and the calls, with the deal of a public order."""
    scores = []

    def noted(sealed, release):
        assert isinstance(sealed, Ballots)
        scores.append(sealed.put_to(np.array))
        return 1  # the same token, whatever the scores are

    monkeypatch.setattr(writer_module, "release_counts", noted)
    monkeypatch.setattr(writer_module, "_deal", lambda records, plan: np.arange(60).reshape(3, 20))
    made = writer(sure=1.0).fit(texts)
    monkeypatch.setattr(type(made.plan_.choice), "choose_score", lambda self, scores: 2)
    made.write(3)
    return scores, made.model.calls


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_one_text_moves_the_scores_of_its_batch_alone_and_no_call(monkeypatch, text):
    """Replay on neighbours: the same draws, one text replaced."""
    sound, calls = seen_scores(monkeypatch, TEXTS)
    other, other_calls = seen_scores(monkeypatch, [*TEXTS[:25], text, *TEXTS[26:]])
    assert calls == other_calls
    assert len(sound) == len(other) == 9
    limit = 2 * 4096
    moved = [int(np.abs(one - two).max()) for one, two in zip(sound, other, strict=True)]
    assert max(moved) <= limit
    assert moved[:3] == moved[6:] == [0, 0, 0]


def test_what_a_model_says_that_is_no_number_counts_as_no_difference():
    made = writer().fit(TEXTS)
    likely = np.log(np.full(6, 1 / 6))
    logits = np.zeros((3, 6))
    logits[0] = np.nan
    logits[1, 0], logits[2, 1] = np.inf, -np.inf
    assert np.abs(made._differences(logits, likely)).max() <= 3 * 4096


def test_private_texts_show_and_their_cost_is_known_before():
    made = writer(epsilon=8.0, temperature=0.5, clip=2.0, free_share=0.0).fit(TEXTS)
    planned = made.plan_
    texts = made.write(planned.texts)
    words = " ".join(texts).split()
    assert words.count("warm") > 1.5 * words.count("cold")
    assert made.budget_.spent_epsilon() <= 8.0
    with pytest.raises(BudgetSpent, match="does not pay"):
        made.write(1)
    assert made.texts_ == texts
    assert 0 <= made.free_share_ <= 1
    made.epsilon = 0.1  # not what was paid
    assert made.claim_.startswith(
        "(8, 1e-06)-differentially private under replacement of one text; the model is public"
    )
    [release] = made.claim_part()["releases"][:1]
    assert release["mechanism"] == "exponential"


def test_where_the_public_model_is_sure_it_draws_alone():
    made = writer(sure=0.1).fit(TEXTS)
    made.write(3)
    assert made.free_share_ == 1.0
    assert made.texts_left_ == made.plan_.texts - 3
    made = writer(free_share=1.0).fit(TEXTS)
    made.write(3)
    assert made.plan_.private_tokens == 1


def test_a_restart_keeps_the_deal_the_budget_and_the_texts_and_loses_a_text_that_was_begun(tmp_path):
    first = writer().fit(TEXTS, folder=tmp_path / "notes")
    written = first.write(4)
    spent = first.budget_.spent()
    first.model.fail_at = 2
    with pytest.raises(KeyboardInterrupt):
        first.write(1)
    deal = [batch.tolist() for batch in first._deal]
    with pytest.raises(InvalidInput, match="in use by another writer"):
        writer().fit(TEXTS, folder=tmp_path / "notes")
    first.close()
    with pytest.raises(WrongProcess):
        first.write(1)
    again = writer().fit(TEXTS, folder=tmp_path / "notes")
    assert [batch.tolist() for batch in again._deal] == deal
    assert again.texts_ == written
    assert again.budget_.spent() == spent
    assert again._next == 5  # the fifth text was begun, and is never drawn again
    again.write(1)
    assert again.budget_.spent() == spent  # the last text of a round that was paid for
    again.write(1)
    assert again.budget_.spent().renyi > spent.renyi
    again.close()
    with pytest.raises(InvalidInput, match="folder must be new"):
        writer(epsilon=4.0).fit(TEXTS, folder=tmp_path / "notes")
    with pytest.raises(InvalidInput, match="folder must be new"):
        writer().fit([*TEXTS[:-1], "another"], folder=tmp_path / "notes")


def test_the_public_prompt_shows_the_texts_that_were_written_last(tmp_path):
    first = writer(examples=2, free_share=1.0).fit(TEXTS, folder=tmp_path / "notes")
    seen = []
    start = first.model.start
    first.model.start = lambda prompts, public=False: seen.append((prompts, public)) or start(prompts)
    texts = first.write(4)
    shown = [prompts[0] for prompts, public in seen if public]
    assert shown[0] == "Text:"
    assert shown[3] == f"Text: {texts[1]}\nText: {texts[2]}\nText:"
    assert all(len(prompts) == 20 for prompts, public in seen if not public)
    first.close()
    again = writer(examples=2, free_share=1.0).fit(TEXTS, folder=tmp_path / "notes")
    assert again._public_prompt() == f"Text: {texts[2]}\nText: {texts[3]}\nText:"


def test_after_the_last_private_token_no_private_prompt_is_read(monkeypatch):
    made = writer(free_share=0.5, sure=1.0).fit(TEXTS)
    monkeypatch.setattr(writer_module, "release_counts", lambda sealed, release: 1)
    monkeypatch.setattr(type(made.plan_.choice), "choose_score", lambda self, scores: 1)
    made.model.calls.clear()
    made.write(1)
    assert made.plan_.private_tokens == 3
    assert len(made.model.calls) == 2 + 6 + 4  # two prompts are started; the fifth token is the last private one


def test_the_free_share_holds_all_through_a_text(monkeypatch):
    made = writer(free_share=0.6, sure=1.0, tokens=10).fit(TEXTS)
    draws = []
    monkeypatch.setattr(writer_module, "release_counts", lambda sealed, release: draws.append("private") or 1)
    monkeypatch.setattr(type(made.plan_.choice), "choose_score", lambda self, scores: draws.append("free") or 1)
    made.write(1)
    assert len(draws) == 10
    for length in range(1, 11):
        assert draws[:length].count("free") >= 0.6 * length - 1
    assert draws.count("private") == made.plan_.private_tokens == 4


def test_a_review_shows_samples_and_what_was_copied():
    made = writer(free_share=0.0, epsilon=20.0, tokens=6).fit(["the soup is warm the soup"] * 60)
    texts, spent = made.write(3), made.budget_.spent()
    free, drawn = made.free_, made.drawn_
    review = made.review(samples=2)
    assert review.written == tuple(texts[:2])
    assert len(review.public) == 2
    assert made.budget_.spent() == spent
    assert (made.free_, made.drawn_) == (free, drawn)
    assert "For the owner alone" in str(review)
    assert copied_share(["The soup is warm THE soup", "warm"], ["a", "the soup is warm the soup"]) == 1.0
    assert copied_share(["the soup is cold the soup"], ["the soup is warm the soup"]) == 0.0
    assert copied_share([], ["a"]) == 0.0


def test_a_failing_model_ends_with_one_sentence():
    made = writer()
    start = made.model.start

    def fail(prompts, public=False):
        raise ValueError(prompts[0])

    made.model.start = fail  # as it could not before `fit`, which shows what is wrong with a model
    with pytest.raises(ValueError, match="Text:"):
        made.fit(["secret"] * 60)
    made.model.start = start
    made.fit(["secret"] * 60)
    made.model.start = fail
    with pytest.raises(RuntimeError, match="the model failed; the text that was begun is lost") as caught:
        made.write(1)
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__
    assert made._next == 1


def test_a_writer_whose_fit_failed_writes_nothing_under_other_settings(tmp_path):
    made = writer().fit(TEXTS)
    made.write(1)  # pays for a round
    made.clip = 4.0
    (tmp_path / "file").touch()
    with pytest.raises(FileExistsError):
        made.fit(TEXTS, folder=tmp_path / "file")
    with pytest.raises(WrongProcess):
        made.write(1)


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, pickle.dumps])
def test_a_writer_cannot_be_copied(copied):
    with pytest.raises(TypeError, match="cannot be copied or pickled"):
        copied(writer().fit(TEXTS))


class LatePlan:
    """The plan of a writer, for which two threads wait that have read the number of a text."""

    def __init__(self, plan):
        self.plan, self.both = plan, threading.Barrier(2)

    def __getattr__(self, name):
        if name == "batches":
            with contextlib.suppress(threading.BrokenBarrierError):
                self.both.wait(timeout=0.5)
        return getattr(self.plan, name)


def test_threads_never_begin_the_same_text(monkeypatch):
    made = writer().fit(TEXTS)
    made.write(1)
    monkeypatch.setattr(made, "plan_", LatePlan(made.plan_))
    monkeypatch.setattr(made, "_written", lambda rows: "")
    threads = [threading.Thread(target=made._write_next) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(line[1] for line in made._journal.lines() if line[0] == "begun") == [0, 1, 2]


def test_a_killed_process_gives_nothing_back(tmp_path):
    program = f"""
        import os, sys
        sys.path[:0] = {[os.path.dirname(__file__), os.path.dirname(os.path.dirname(__file__))]!r}
        import test_text_writer as own
        made = own.writer().fit(own.TEXTS, folder={str(tmp_path / "notes")!r})
        made.write(1)
        made.model.start = lambda prompts, public=False: os._exit(9)
        made.write(1)
    """
    ended = subprocess.run([sys.executable, "-c", textwrap.dedent(program)], check=False, env=os.environ)
    assert ended.returncode == 9
    made = writer().fit(TEXTS, folder=tmp_path / "notes")
    assert len(made.texts_) == 1
    assert made._next == 2
    assert made.budget_.spent().renyi > 0
    assert len(made.write(2)) == 2


def test_plans_and_settings_are_checked():
    assert PrivateWriter.plan(records=5000, epsilon=3.0).texts > 1000
    more, fewer = (PrivateWriter.plan(records=5000, batch=batch).texts for batch in (200, 50))
    assert more > 2 * fewer
    with pytest.raises(Infeasible, match="takes at least"):
        PrivateWriter.plan(records=50)
    with pytest.raises(Infeasible, match="does not pay"):
        PrivateWriter.plan(records=5000, batch=2, epsilon=0.1)
    with pytest.raises(InvalidInput, match="free_share must be"):
        PrivateWriter.plan(records=5000, free_share=1.5)
    with pytest.raises(InvalidInput, match="clip is too large"):  # sums of 64 bits would overflow
        PrivateWriter.plan(records=5000, batch=4097, clip=2.0**39, temperature=2.0**41)
    with pytest.raises(InvalidInput, match="shown must have"):
        PrivateWriter.plan(records=5000, shown="Text")


def test_prompts_of_transformers_are_continued_as_if_read_alone():
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
    network = transformers.LlamaForCausalLM(transformers.LlamaConfig(vocab_size=128, **sizes)).eval()

    def tokenizer(text, add_special_tokens):
        return {"input_ids": [ord(letter) % 128 for letter in text]}

    model = TransformersModel(network, tokenizer, width=24)
    together, alone = model.start(["short", "a much longer prompt"]), model.start(["short"])
    for state in (together, alone):
        state.append(5)
        state.append(7)
    assert np.allclose(together.log_probabilities()[0], alone.log_probabilities()[0], atol=1e-4)
    long = "a public prompt that is much longer than the width"
    whole = network(torch.tensor([tokenizer(long, False)["input_ids"]])).logits[0, -1].log_softmax(-1)
    assert np.allclose(model.start([long], public=True).log_probabilities()[0], whole.detach().numpy(), atol=1e-4)
    assert model.end == ord("\n")
    one, other = (model.start(["short", text]) for text in ("another prompt", "x"))
    same = [state.log_probabilities([3, 5])[0] for state in (one, other)]
    assert (same[0] == same[1]).all()  # to the last bit, whatever the other prompt is
