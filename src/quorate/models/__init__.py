"""What users fit: each model in a package of its own, and how models are saved."""

__all__: list[str] = []
