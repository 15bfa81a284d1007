"""The main job on a generated clinic: `quorate demo`. Its people are invented, so true outcomes are known."""

__all__: list[str] = []
