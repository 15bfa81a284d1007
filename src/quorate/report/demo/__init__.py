"""The main job on a generated clinic: `quorate demo`. Its people are invented, so true outcomes are known.

    job          plan, fit, save, ask, compare, train a student

The visits come from `quorate.tables.datasets`; `quorate.cli.demo` prints what comes of it.
"""

__all__: list[str] = []
