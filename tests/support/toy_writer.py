"""A language model of six words, for writers of texts."""

import numpy as np

WORDS = ["<end>", "warm", "cold", "soup", "is", "the"]


class Toy:
    """A model of six words: a prompt makes its own words more likely. It counts what it is asked."""

    end = 0

    def __init__(self):
        self.calls, self.fail_at = [], None

    def start(self, prompts, public=False):
        self.calls.append(len(prompts))
        return Toy.State(self, prompts)

    def decode(self, tokens):
        return " ".join(WORDS[token] for token in tokens)

    class State:
        def __init__(self, model, prompts):
            self.model, self.prompts, self.length = model, prompts, 0

        def log_probabilities(self, tokens=None):
            known = np.array([[3.0 * prompt.count(word) for word in WORDS] for prompt in self.prompts])
            scores = known + 0.3 * np.sin(np.arange(6) * (self.length + 1)) - 5.0 * (np.arange(6) == 0)
            scores -= np.log(np.exp(scores).sum(axis=1, keepdims=True))
            return scores if tokens is None else scores[:, tokens]

        def append(self, token):
            self.model.calls.append(token)
            self.length += 1
            if self.model.fail_at == self.length:
                raise KeyboardInterrupt
