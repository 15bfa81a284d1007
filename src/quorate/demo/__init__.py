"""The main job on a generated clinic: `quorate demo`. Its people are invented, so true outcomes are known.

    clinic       visits of people who do not exist
    job          plan, fit, save, ask, compare, train a student

`quorate.cli.demo` prints what comes of it.
"""

__all__: list[str] = []
