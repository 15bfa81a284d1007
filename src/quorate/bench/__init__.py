"""The figures this project promises, measured: `quorate bench`.

    run          which figures each bench measures, and whether they hold
    bars         the bar of each figure, read from bars.toml; one without a bar is reported only
    figures      what a figure is, and where the data lie

The other modules each have a function that takes `quick` and yields figures, or help one that does. To add a figure,
yield its name, value and unit there, and give its name a line in bars.toml, under the same bench. A bench whose data
are absent yields the same names, with None for a value.
"""

__all__: list[str] = []
