"""Teachers fitted in batches, in parallel, on a GPU or on a cluster."""

__all__: list[str] = []
