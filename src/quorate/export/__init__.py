"""Published models for other programs: ONNX files, and folders with a model card for a hub."""

from quorate.export.card import open_published, write_card
from quorate.export.onnx_file import to_onnx

__all__ = ["open_published", "to_onnx", "write_card"]
