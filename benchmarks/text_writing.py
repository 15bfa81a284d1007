"""Synthetic texts for `python -m benchmarks text`: a PrivateWriter's, InvisibleInk's, and the public model's.

    python -m benchmarks.text_writing FOLDER_OF_TEXTS SCORES.npz [TEXTS_OF_A_CLASS]

It needs what `text_scores.py` needs, and adds to its file: embeddings of texts that each of the three wrote for each
class of SST-2 and AG News, how many tokens were free, and how fast they came. On one core, 20 texts of each class take
about half an hour. InvisibleInk (Vinod, Pillutla and Thakurta, 2025) is written from its formula: differences of
log probabilities to the public model are clipped to C and averaged over B prompts, among the likeliest tokens of the
public model, and a token costs (C / (B * temperature))**2 / 2 of zCDP. That is for a text that is taken out; for one
that is replaced, which is what a PrivateWriter's claim is about, it costs four times as much.
"""

import csv
import gzip
import math
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.text_scores import Scorer, embed
from quorate import PrivateWriter
from quorate.core.errors import Infeasible
from quorate.core.privacy import Budget
from quorate.models.text import TransformersModel

DELTA, EPSILON, PEER_EPSILON = 1e-6, 3.0, 9.0
ROUNDS, BATCHES, BATCH, TOKENS = 12, 4, 100, 30  # texts of a batch that are paid for; batches that are used here
CHARACTERS, WIDTH, CANDIDATES, FREE = 160, 64, 100, 0.55
JUDGES = 1000
HEADS = {
    "sst2": ["A negative film review:", "A positive film review:"],
    "ag_news": ["World news:", "Sports news:", "Business news:", "Science and technology news:"],
}


def read_texts(folder: Path, name: str) -> tuple[list[tuple[str, int]], list[tuple[str, int]]]:
    """Return private texts with their classes, and texts that judge."""
    if name == "ag_news":
        with gzip.open(folder / "agnews_7600.csv.gz", "rt", newline="", encoding="utf-8") as file:
            rows = [(f"{title}. {text}", int(label) - 1) for label, title, text in csv.reader(file)]
        return rows[:-JUDGES], rows[-JUDGES:]
    parts = []
    for part in ("train", "test"):
        with gzip.open(folder / f"sst2_{part}.tsv.gz", "rt", encoding="utf-8") as file:
            split = [line.rstrip("\n").rsplit("\t", 1) for line in file]
            parts.append([(text, int(label)) for text, label in split])
    return parts[0], parts[1][:JUDGES]


def largest_clip(settings: dict[str, Any]) -> float:
    """Return the largest clip with which the budget pays for all rounds."""
    affordable = 0.05
    for clip in np.arange(0.05, 20.0, 0.05):
        try:
            plan = PrivateWriter.plan(records=BATCHES * BATCH, clip=float(clip), **settings)
        except Infeasible:
            break
        affordable = float(clip) if plan.texts >= ROUNDS * BATCHES else affordable
    return affordable


def peer_clip(temperature: float = 1.0) -> float:
    """Return the clip with which InvisibleInk writes all rounds at its epsilon."""
    budget = Budget(epsilon=PEER_EPSILON, delta=DELTA, slack=0.0, renyi=lambda order: order)
    rho = budget.capacity().renyi / budget.order
    return BATCH * temperature * math.sqrt(2 * rho / (ROUNDS * TOKENS))


def write_by_formula(model: TransformersModel, prompts: list[str], public: str, clip: float) -> str:
    """Return one text of InvisibleInk, with its top-k rule; without prompts, one of the public model."""
    generator, tokens = np.random.default_rng(), list[int]()
    asked = model.start([public], public=True)
    private = model.start(prompts) if prompts else None
    for _ in range(TOKENS):
        likely = np.array(asked.log_probabilities()[0])
        if not tokens:
            likely[model.end] = -np.inf
        least = np.sort(likely)[-CANDIDATES] - 2 * clip / BATCH * bool(prompts)
        candidates = np.flatnonzero(likely >= least)
        scores = likely[candidates]
        if private is not None:
            own = private.log_probabilities(candidates) - likely[candidates]
            scores = scores + np.clip(own, -clip, clip).mean(axis=0)
        weights = np.exp(scores - scores.max())
        token = int(generator.choice(candidates, p=weights / weights.sum()))
        if token == model.end:
            break
        tokens.append(token)
        asked.append(token)
        if private is not None:
            private.append(token)
    return model.decode(tokens)


def bare_seconds(network: Any, tokenizer: Any, prompts: list[str], tokens: int) -> float:
    """Return how long the bare model takes to read prompts, padded to the longest, and to continue them."""
    start = time.process_time()
    rows = [tokenizer(prompt, add_special_tokens=False)["input_ids"] for prompt in prompts]
    width = max(map(len, rows))
    ids = torch.tensor([[0] * (width - len(row)) + row for row in rows])
    mask = torch.tensor([[0] * (width - len(row)) + [1] * len(row) for row in rows])
    cache = None
    for _ in range(tokens):
        output = network(ids, attention_mask=mask, past_key_values=cache, use_cache=True, logits_to_keep=1)
        cache, ids = output.past_key_values, output.logits[:, -1].argmax(dim=-1, keepdim=True)
        mask = torch.cat([mask, torch.ones_like(ids)], dim=1)
    return time.process_time() - start


def write_all(folder: Path, name: str, texts: int, scorer: Scorer) -> dict[str, Any]:
    """Return embeddings of written texts and of judges, with their classes, shares and speeds."""
    private, judges = read_texts(folder, name)
    order = np.random.default_rng(0).permutation(len(private))
    model = TransformersModel(scorer.model, scorer.tokenizer, width=WIDTH)
    clip, written, free, drawn, ours, bare = peer_clip(), dict[str, list[str]](), 0, 0, 0.0, 0.0
    for label, head in enumerate(HEADS[name]):
        own = [private[row][0] for row in order if private[row][1] == label][: BATCHES * BATCH]
        settings: dict[str, Any] = {"epsilon": EPSILON, "delta": DELTA, "tokens": TOKENS, "batch": BATCH}
        settings |= {"shown": head + " {text}\n", "asked": head, "characters": CHARACTERS, "free_share": FREE}
        writer = PrivateWriter(model, clip=largest_clip(settings), **settings).fit(own)
        start = time.process_time()
        written.setdefault("quorate", []).extend(writer.write(texts))
        ours += time.process_time() - start
        free, drawn = free + writer.free_, drawn + writer.drawn_
        rows = np.random.default_rng(1).permutation(len(own)).reshape(BATCHES, BATCH)
        for number in range(texts):
            shown = [f"{head} {own[row][:CHARACTERS]}\n{head}" for row in rows[number % BATCHES]]
            written.setdefault("invisible_ink", []).append(write_by_formula(model, shown, head, clip))
            written.setdefault("public", []).append(write_by_formula(model, [], head, clip))
        bare += texts * bare_seconds(scorer.model, scorer.tokenizer, shown, round(writer.drawn_ / texts))
    arrays: dict[str, Any] = {f"written_{name}_{who}": embed(part, "cpu") for who, part in written.items()}
    arrays[f"written_{name}_labels"] = np.repeat(np.arange(len(HEADS[name])), texts)
    arrays[f"written_{name}_judges"] = embed([text for text, _ in judges], "cpu")
    arrays[f"written_{name}_truth"] = np.array([label for _, label in judges])
    return arrays | {f"written_{name}_shares": np.array([free / drawn, bare / ours])}


def main(folder: Path, scores: Path, texts: int) -> None:
    """Write texts for both sets, and add what came of them to the file."""
    scorer = Scorer("cpu")
    scorer.model.to(torch.bfloat16)
    with torch.inference_mode():
        for name in HEADS:
            with np.load(scores) as arrays:
                known = {part: arrays[part] for part in arrays.files}
            np.savez_compressed(scores, **(known | write_all(folder, name, texts, scorer)))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]) if len(sys.argv) > 3 else 20)
