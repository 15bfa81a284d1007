"""Fits teachers on a real local cluster (python cluster_fit.py dask|ray), compares them with those fitted here.

Prints in how many other processes they were fitted.
"""

import os
import sys

import numpy as np
from sklearn.tree import DecisionTreeClassifier

from quorate.compute.ensemble import deal_units
from quorate.compute.ensemble.estimators import fit_estimators
from quorate.core.estimator_calls import CALL
from quorate.tables.persons import unit_numbers


class Traced(DecisionTreeClassifier):
    """A tree that knows where it was fitted."""

    def call_rows(self):
        return CALL  # it answers row by row: no copies are asked

    def fit(self, X, y):
        self.process_ = os.getpid()
        return super().fit(X, y)


def main(backend):
    generator = np.random.default_rng(0)
    X, codes = generator.normal(size=(800, 3)), generator.integers(0, 2, size=800)
    deal, _ = deal_units(*unit_numbers(800), teachers=200)
    estimator = Traced(max_depth=3, random_state=0)
    plain = fit_estimators(estimator, X, codes, deal, classes=2)
    if backend == "dask":
        from distributed import Client, LocalCluster

        with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster, Client(cluster):
            made = fit_estimators(estimator, X, codes, deal, classes=2, n_jobs=2, backend=backend)
    else:
        import ray

        ray.init(address="local", num_cpus=2, include_dashboard=False)  # not one that another test runs
        made = fit_estimators(estimator, X, codes, deal, classes=2, n_jobs=2, backend=backend)
        ray.shutdown()
    assert (made.ballots(X[:50]) == plain.ballots(X[:50])).all()
    processes = {model.process_ for model, _ in made.fitted if model is not None}
    assert os.getpid() not in processes
    sys.stdout.write(f"fitted elsewhere: {len(processes)}\n")


if __name__ == "__main__":
    main(sys.argv[1])
