"""Language models as functions from prompts to scores of words: transformers in this process, or a server.

Nothing here logs a prompt, and no error repeats one.
"""

import os
import time
from collections.abc import Sequence
from os.path import commonpath
from typing import Any
from urllib.parse import urlsplit

import numpy as np

from quorate.core.arrays import Floats
from quorate.core.checks import check_count, check_positive
from quorate.core.errors import InvalidInput
from quorate.core.lazy import import_extra

_TOP = 20  # log probabilities that a server is asked for
_UNLISTED = 1.0  # below the least of them: the log probability of a word that is not among them
_FEWEST_SHARED = 8  # tokens at the beginning of all prompts, from which on they are read once
_PAUSE = 0.5  # seconds before a request is repeated
_LOOPBACK = ("localhost", "127.0.0.1", "::1")


class TransformersModel:
    """A causal language model of transformers, with its tokenizer. What all prompts of a call begin with is read once.

    The score of a word is the log probability of its first token after the prompt and a space.
    """

    def __init__(self, model: Any, tokenizer: Any) -> None:
        self._torch = import_extra("torch", "text", use="a model of transformers")
        self._model, self._tokenizer = model, tokenizer

    def __call__(self, prompts: Sequence[str], words: Sequence[str]) -> Floats:
        """Return the score of each word after each prompt."""
        firsts = [self._encode(f" {word}")[0] for word in words]
        if len(set(firsts)) < len(firsts):
            raise InvalidInput("words must begin with different tokens of the model; choose other words")
        tokens = [self._encode(prompt) for prompt in prompts]
        shared = commonpath([each[:-1] for each in tokens])
        shared = shared if len(shared) >= _FEWEST_SHARED and len(tokens) > 1 else []
        with self._torch.inference_mode():
            logits = self._last_logits([each[len(shared) :] for each in tokens], list(shared))
            scores = self._torch.log_softmax(logits.float(), dim=-1)[:, firsts]
        return np.asarray(scores.cpu().numpy(), dtype=np.float64)

    def _encode(self, text: str) -> list[int]:
        tokens: list[int] = self._tokenizer(text, add_special_tokens=False)["input_ids"]
        return tokens

    def _last_logits(self, tokens: list[list[int]], shared: list[int]) -> Any:
        """Return the logits after each list of tokens, all of which follow the shared ones."""
        torch, device, rows = self._torch, self._model.device, len(tokens)
        cache = None
        if shared:
            cache = import_extra("transformers", "text", use="a model of transformers").DynamicCache()
            self._model(torch.tensor([shared], device=device), past_key_values=cache, use_cache=True)
            cache.batch_repeat_interleave(rows)
        width = max(map(len, tokens))
        ids = torch.zeros((rows, width), dtype=torch.long)
        mask = torch.zeros((rows, len(shared) + width), dtype=torch.long)
        for row, each in enumerate(tokens):
            ids[row, : len(each)] = torch.tensor(each)
            mask[row, : len(shared) + len(each)] = 1
        positions = torch.arange(len(shared), len(shared) + width).expand(rows, width)
        output = self._model(
            ids.to(device),
            attention_mask=mask.to(device),
            position_ids=positions.to(device),
            past_key_values=cache,
            use_cache=cache is not None,
        )
        return output.logits[torch.arange(rows), torch.tensor([len(each) - 1 for each in tokens])]


class HttpModel:
    """A model behind an OpenAI-compatible address, such as http://localhost:8000/v1 of llama.cpp or vLLM.

    One request has all prompts of a call. The score of a word is the log probability of the likeliest listed token that
    it begins with. A request is repeated `retries` times, and all of it takes at most about `seconds`; after that the
    call fails. A key is read from the environment variable QUORATE_MODEL_KEY.
    """

    def __init__(
        self, address: str, model: str, *, seconds: float = 60.0, retries: int = 2, transport: Any = None
    ) -> None:
        httpx = import_extra("httpx", "text", use="a model behind a server")
        parts = urlsplit(address)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.username or parts.password:
            raise InvalidInput("address must be a URL such as http://localhost:8000/v1, without a password")
        key = os.environ.get("QUORATE_MODEL_KEY", "")
        if key and parts.scheme == "http" and parts.hostname not in _LOOPBACK:
            raise InvalidInput("the key of the model would be readable on the way: use https://")
        self._url, self._name = f"{address.rstrip('/')}/completions", model
        self._seconds = check_positive("seconds", seconds)
        self._retries = check_count("retries", retries, least=0)
        headers = {"authorization": f"Bearer {key}"} if key else {}
        self._http = httpx.Client(headers=headers, transport=transport, trust_env=parts.hostname not in _LOOPBACK)

    def __call__(self, prompts: Sequence[str], words: Sequence[str]) -> Floats:
        """Return the score of each word after each prompt."""
        body = {"model": self._name, "prompt": list(prompts), "max_tokens": 1, "temperature": 0, "logprobs": _TOP}
        end = time.monotonic() + self._seconds
        for attempt in range(self._retries + 1):
            left = end - time.monotonic()
            if left <= 0:
                break
            document = self._post(body, left)
            if document is not None:
                return _scores(document, len(prompts), words)
            if attempt < self._retries:
                time.sleep(min(_PAUSE, max(0.0, end - time.monotonic())))
        raise RuntimeError("the server of the model did not answer in time")

    def _post(self, body: dict[str, Any], seconds: float) -> Any:
        """Return the document of the answer, or None without one."""
        import httpx  # noqa: PLC0415

        try:
            answer = self._http.post(self._url, json=body, timeout=seconds)
            return answer.json() if answer.status_code == httpx.codes.OK else None
        except (httpx.HTTPError, ValueError):
            return None

    def close(self) -> None:
        """Close the connections."""
        self._http.close()


def _scores(document: Any, prompts: int, words: Sequence[str]) -> Floats:
    scores = np.full((prompts, len(words)), np.nan)
    for choice in document["choices"]:
        listed = {str(token): float(value) for token, value in choice["logprobs"]["top_logprobs"][0].items()}
        floor = min(listed.values()) - _UNLISTED
        for column, word in enumerate(words):
            known = [value for token, value in listed.items() if token.strip() and word.startswith(token.strip())]
            scores[int(choice["index"]), column] = max(known, default=floor)
    return scores
