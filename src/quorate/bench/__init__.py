"""The figures this project promises, measured: `quorate bench`.

A bench is a function that takes `quick` and yields figures: a name, a value (None where its data are absent) and a
unit. `bars/` has the bar of each; a figure without a bar is reported only. To add a figure, yield it and give its name
a line in the bars of the same bench.
"""

__all__: list[str] = []
