"""From records to ballots: units are dealt to teachers, teachers are fitted, their ballots are counted.

A record enters here and leaves as part of one ballot. `Ballots` cannot be printed, logged or stored: only a mechanism
gets to see the counts.
"""

from quorate.compute.ensemble.electorate import Electorate
from quorate.compute.ensemble.ensemble import Ensemble
from quorate.compute.ensemble.sources import deal_units, unit_numbers

__all__ = ["Electorate", "Ensemble", "deal_units", "unit_numbers"]
