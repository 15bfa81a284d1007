"""What a bar is."""

__all__ = ["Bar"]

Bar = tuple[str, float]  # ("<=" or ">=", value)
