"""From records to ballots: deal units to teachers, fit the teachers, count their ballots.

A record enters here and leaves as part of one ballot. `Ballots` cannot be printed, logged or stored. Only a mechanism
can read the counts.
"""

from typing import TYPE_CHECKING

from quorate.core.lazy import import_on_use

__all__ = [
    "ClusterTeachers",
    "Electorate",
    "EndpointTeachers",
    "Ensemble",
    "EstimatorTeachers",
    "FunctionTeachers",
    "deal_units",
    "secret_subset",
]

if TYPE_CHECKING:
    from quorate.compute.ensemble.clusters import ClusterTeachers
    from quorate.compute.ensemble.dealing import deal_units, secret_subset
    from quorate.compute.ensemble.electorate import Electorate, EndpointTeachers, FunctionTeachers
    from quorate.compute.ensemble.estimators import Ensemble, EstimatorTeachers
else:
    __getattr__ = import_on_use(__name__, __file__)
