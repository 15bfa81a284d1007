"""What mechanisms need to know of a class of hypotheses. The classes themselves are in `quorate.models.concepts`."""

__all__: list[str] = []
