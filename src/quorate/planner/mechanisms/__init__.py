"""What each aggregator gives for a task, from a forecast of the votes: drafts, calibrated and certified.

forecast                    the shares of the vote that are expected, from a guess or from public points
task                        what is asked of an aggregator, and what it is expected to give
quorum, maxima, sharp, thresholds
the aggregators
choose, nearest             the best of them, and the smallest change that would do
distributions               normal, Beta and binomial laws as plain numbers
"""

__all__: list[str] = []
