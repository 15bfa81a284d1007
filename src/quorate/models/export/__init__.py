"""Published models for other programs: ONNX files, and folders with a model card for a hub."""

from quorate.models.export._card import open_published, write_card
from quorate.models.export._onnx_file import to_onnx

__all__ = ["open_published", "to_onnx", "write_card"]
