"""The figures that this project promises, measured: `python -m benchmarks NAME`.

Each bench is a module with a function `measure(quick)` that yields figures. To add a figure, yield its name, value and
unit there, and give its name a line in bars.toml under the same bench. A bench whose data are absent yields the same
names with None for a value.

`python -m benchmarks.theory` and `python -m benchmarks.pictures` draw the figures of the documentation.
"""
