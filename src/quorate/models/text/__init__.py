"""Texts and language models: prompts with private examples as teachers, and models that answer them. See PROOF.md."""

from quorate.models.text._adapters import HttpModel, TransformersModel
from quorate.models.text._classifier import PromptClassifier
from quorate.models.text._prompts import Prompt
from quorate.models.text._review import WritingReview
from quorate.models.text._teachers import PromptTeachers
from quorate.models.text._writer import PrivateWriter, WritingPlan

__all__ = [
    "HttpModel",
    "PrivateWriter",
    "Prompt",
    "PromptClassifier",
    "PromptTeachers",
    "TransformersModel",
    "WritingPlan",
    "WritingReview",
]
