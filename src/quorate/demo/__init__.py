"""The main job on a generated clinic: `quorate demo`. Nobody in it exists, so true outcomes are known."""

__all__: list[str] = []
