"""Language models as functions from prompts to scores of words: transformers in this process, or a server.

Nothing here logs a prompt, and no error repeats one.
"""

import os
import time
from collections.abc import Sequence
from itertools import takewhile
from pathlib import Path
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
    """A causal language model of transformers, with its tokenizer, for prompts and for a `PrivateWriter`.

    The score of a word is the log probability of its first token after the prompt and a space. What all prompts of a
    call begin with is read once. A writer's private prompts are padded to `width` tokens, or cut to their last ones:
    the shapes of all calls, and the place of each prompt in them, are then public. A text ends with its line.
    """

    def __init__(self, model: Any, tokenizer: Any, *, width: int = 256) -> None:
        self._torch = import_extra("torch", "text", use="a model of transformers")
        self._model, self._tokenizer, self._width = model, tokenizer, check_count("width", width)
        self._decode: Any = getattr(tokenizer, "decode", None)
        self.end = self._encode("\n")[-1]  # the token that ends a text, which is one line

    @classmethod
    def load(cls, path: str | Path, *, width: int = 256) -> "TransformersModel":
        """Read a model from a folder with safetensors, or from a .gguf file. Nothing is fetched, and no pickle read."""
        library, path = import_extra("transformers", "text", use="a language model"), Path(path)
        if not path.exists():
            raise InvalidInput(f"{path} must be a folder of transformers or a .gguf file, and is not there")
        folder, file = (path, None) if path.is_dir() else (path.parent, path.name)
        options = {"local_files_only": True, **({"gguf_file": file} if file else {})}
        tokenizer = library.AutoTokenizer.from_pretrained(folder, **options)
        weights: dict[str, Any] = {} if file else {"use_safetensors": True}  # else it would take a pickle, too
        model = library.AutoModelForCausalLM.from_pretrained(folder, **options, **weights)
        return cls(model.eval(), tokenizer, width=width)

    def __call__(self, prompts: Sequence[str], words: Sequence[str]) -> Floats:
        """Return the score of each word after each prompt."""
        firsts = [self._encode(f" {word}")[0] for word in words]
        if len(set(firsts)) < len(firsts):
            raise InvalidInput("words must begin with different tokens of the model; choose other words")
        tokens = [self._encode(prompt) for prompt in prompts]
        same = takewhile(lambda column: len(set(column)) == 1, zip(*(each[:-1] for each in tokens), strict=False))
        length = sum(1 for _ in same)
        shared = tokens[0][:length] if length >= _FEWEST_SHARED and len(tokens) > 1 else []
        with self._torch.inference_mode():
            logits = self._last_logits([each[len(shared) :] for each in tokens], shared)
            scores = self._torch.log_softmax(logits.float(), dim=-1)[:, firsts]
        return np.asarray(scores.cpu().numpy(), dtype=np.float64)

    def start(self, prompts: Sequence[str], *, public: bool = False) -> "_Continued":
        """Read prompts that are continued together, each in its place of a call of fixed shape; `public` ones whole."""
        tokens = [self._encode(prompt) for prompt in prompts]
        width = max(map(len, tokens)) if public else self._width
        return _Continued(self._model, tokens, width, self._torch)

    def decode(self, tokens: Sequence[int]) -> str:
        """Return the first line of the text of some tokens."""
        return str(self._decode(list(tokens), skip_special_tokens=True)).strip().partition("\n")[0]

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


class _Continued:
    """Prompts of one width, padded on the left, and the same tokens after all of them."""

    def __init__(self, model: Any, prompts: list[list[int]], width: int, torch: Any) -> None:
        self._model, self._torch, self._cache = model, torch, None
        ids = torch.zeros((len(prompts), width), dtype=torch.long)
        self._mask = torch.zeros((len(prompts), width), dtype=torch.long)
        for row, tokens in enumerate(prompts):
            kept = tokens[-width:]
            ids[row, width - len(kept) :] = torch.tensor(kept)
            self._mask[row, width - len(kept) :] = 1
        self._position = self._mask.sum(dim=1, keepdim=True)
        self._read(ids, (self._mask.cumsum(dim=1) - 1).clamp(min=0))

    def log_probabilities(self, tokens: Any = None) -> Floats:
        """Return the log probabilities of the next token, one row a prompt: of all tokens, or of these."""
        with self._torch.inference_mode():
            every = self._torch.log_softmax(self._logits.float(), dim=-1)
            asked = every if tokens is None else every[:, self._torch.as_tensor(tokens, device=every.device)]
            return np.asarray(asked.cpu().numpy(), dtype=np.float64)

    def append(self, token: int) -> None:
        """Append a token to every prompt."""
        ones = self._torch.ones_like(self._position)
        self._mask = self._torch.cat([self._mask, ones], dim=1)
        self._read(ones * token, self._position)
        self._position = self._position + 1

    def _read(self, ids: Any, positions: Any) -> None:
        device = self._model.device
        with self._torch.inference_mode():
            output = self._model(
                ids.to(device),
                attention_mask=self._mask.to(device),
                position_ids=positions.to(device),
                past_key_values=self._cache,
                use_cache=True,
                logits_to_keep=1,
            )
        self._cache = output.past_key_values
        self._logits = output.logits[:, -1]


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
        if parts.scheme == "http" and parts.hostname not in _LOOPBACK:
            raise InvalidInput("address must begin with https:// for another machine: prompts hold private texts")
        key = os.environ.get("QUORATE_MODEL_KEY", "")
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
