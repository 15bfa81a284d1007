"""The cluster engines, Dask and Ray: each runs functions on workers and keeps their results there.

Both keep the lineage of a result. The results of a dead worker are computed again from their inputs, down to the files,
and results move directly between workers. Functions are pure, so a recomputed result is the same. A reference to a
result is an argument of the engine's functions or of `get`.
"""

import os
import re
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from importlib import import_module
from itertools import count
from typing import Any

from quorate.core.checks import check_count
from quorate.core.errors import ClusterLost, InvalidInput, QuorateError
from quorate.core.lazy import import_extra
from quorate.core.rows import usable_cores

_CONNECT_SECONDS = 30
_IDLE_SECONDS = 60  # how long a cluster may be without any worker
_TICK = 2.0
_RETRIES = 5  # Of a task on dying workers.

Reference = Any  # The result of a function on the cluster.


def open_engine(cluster: Any) -> "DaskEngine | RayEngine":
    """Return the engine of a cluster, which may be an address, "local", "ray", a Dask client, or an engine.

    Its workers must have the versions that this process has: another one fits other teachers, in their last bits.
    """
    if not isinstance(cluster, str):
        opened: DaskEngine | RayEngine = cluster if hasattr(cluster, "spread") else DaskEngine(cluster)
    elif cluster == "ray" or cluster.startswith("ray://"):
        opened = RayEngine(cluster)
    elif re.fullmatch(r"local(:\d+)?|(tcp|tls)://.+", cluster):
        opened = DaskEngine(cluster)
    else:
        raise InvalidInput(
            'cluster must be "local" or "local:4" (so many workers), the address of a Dask scheduler '
            '(tcp://host:8786) or of a Ray cluster (ray://host:10001), or "ray" for one that runs on this machine, '
            f"not {cluster!r}"
        )
    try:
        there = opened.get(opened.call(versions))
        if there != versions():
            raise InvalidInput(f"the workers of the cluster have {there}, and this process has {versions()}")
    except BaseException:
        opened.close()
        raise
    return opened


def versions() -> dict[str, str]:
    """Return the versions that decide the last bit of a teacher."""
    modules = {"quorate": "quorate", "numpy": "numpy", "scikit-learn": "sklearn", "pyarrow": "pyarrow"}
    return {name: str(import_module(module).__version__) for name, module in modules.items()}


class DaskEngine:
    """A Dask cluster: results are futures, whose graphs the scheduler keeps."""

    def __init__(self, cluster: Any) -> None:
        distributed = import_extra("distributed", "dask", use="this cluster")
        self._open, self._address = ExitStack(), ""
        if isinstance(cluster, str) and cluster.startswith("local"):
            number = check_count("the number of workers", int(cluster[6:] or usable_cores()))
            patience = {"distributed.deploy.lost-worker-timeout": "1h"}  # or one that starts again slowly is given up
            self._open.enter_context(import_module("dask").config.set(patience))
            started = distributed.LocalCluster(n_workers=number, threads_per_worker=1, dashboard_address=None)
            cluster = self._open.enter_context(started).scheduler_address
        if isinstance(cluster, str):
            self._address = cluster
            try:
                cluster = self._connect()
            except OSError:
                self._open.close()
                raise InvalidInput(f"no Dask scheduler answers at {cluster}") from None
        if not isinstance(cluster, distributed.Client):
            raise InvalidInput(f"cluster must be an address or a distributed.Client, not {type(cluster).__name__}")
        self._client = cluster
        weakref.finalize(self, self._open.close)

    def _connect(self) -> Any:
        client = import_module("distributed").Client
        return self._open.enter_context(client(self._address, set_as_default=False, timeout=_CONNECT_SECONDS))

    def renew(self) -> None:
        """Join the cluster again, if its scheduler has been away for so long that Dask has given it up."""
        if self._address and self._client.status == "closed":
            with _name_lost_cluster("Dask"):
                self._client = self._connect()

    @property
    def workers(self) -> int:
        """How many tasks can run at a time."""
        return max(1, sum(map(int, self._client.nthreads().values())))

    def call(self, function: Callable[..., Any], *arguments: Any) -> Reference:
        """Run a function on a worker."""
        with _name_lost_cluster("Dask"):
            return self._client.submit(function, *arguments, pure=False)

    def spread(self, function: Callable[..., Any], argument: Any, outputs: int) -> list[Reference]:
        """Run a function that returns a list of this length, and return a reference to each item."""
        result = self.call(function, argument)
        with _name_lost_cluster("Dask"):
            items: list[Reference] = self._client.map(_item, [result] * outputs, range(outputs), pure=False)
        return items

    def get(self, reference: Reference) -> Any:
        """Fetch a result. Raise the refusal of its function, or `ClusterLost` if no worker can compute it."""
        seen = time.monotonic()
        while True:
            with _name_lost_cluster("Dask"):
                try:
                    return reference.result(timeout=_TICK)
                except TimeoutError:
                    if self._client.status == "running" and self._client.nthreads():
                        seen = time.monotonic()
                    elif self._client.status == "closed" or time.monotonic() > seen + _IDLE_SECONDS:
                        raise ClusterLost("the Dask cluster has no workers") from None

    def drop(self, references: Sequence[Reference]) -> None:
        """Release results. Results that depend on them can still be recomputed."""
        for reference in references:
            reference.release()

    def close(self) -> None:
        """Let go of the cluster where it was started, or joined, for this."""
        self._open.close()


@contextmanager
def _name_lost_cluster(engine: str) -> Iterator[None]:
    """Say that a cluster is gone, or that a worker failed. The text of its error may hold values, and is not told."""
    try:
        yield
    except QuorateError:
        raise
    except Exception as error:
        raise ClusterLost(f"the {engine} cluster could not do it ({type(error).__name__})") from None


def _item(items: Sequence[Any], index: int) -> Any:
    return items[index]


class RayEngine:
    """A Ray cluster: a keeper process on the cluster holds the references, and this process holds their names.

    Ray sends results that are small to the process which has asked for them. That is the keeper, so that none comes
    here unless it is to be brought here.
    """

    def __init__(self, cluster: str) -> None:
        self._ray = import_extra("ray", "ray", use="this cluster")
        self._open = ExitStack()
        if not self._ray.is_initialized():
            os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
            os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
            settings = {} if cluster == "ray" else {"address": cluster}
            try:
                self._ray.init(**settings, log_to_driver=False, include_dashboard=None if settings else False)
            except (ConnectionError, RuntimeError, ValueError):
                raise InvalidInput(f"no Ray cluster answers at {cluster}") from None
            self._open.callback(self._ray.shutdown)
        self._names = count()
        self._keeper = self._start_keeper()
        weakref.finalize(self, self._open.close)

    def _start_keeper(self) -> Any:
        actor = self._ray.remote(num_cpus=0, max_restarts=0)(_Keeper)
        return actor.remote()

    def renew(self) -> None:
        """Start another keeper: it knows none of the results, which are all made again."""
        with _name_lost_cluster("Ray"):
            self._ray.kill(self._keeper)
            self._keeper = self._start_keeper()

    @property
    def workers(self) -> int:
        """How many tasks can run at a time."""
        return max(1, int(self._ray.cluster_resources().get("CPU", 1)))

    def call(self, function: Callable[..., Any], *arguments: Any) -> Reference:
        """Run a function on a worker."""
        return self._called(function, arguments, 1)[0]

    def spread(self, function: Callable[..., Any], argument: Any, outputs: int) -> list[Reference]:
        """Run a function that returns a list, and return a reference to each item."""
        return self._called(function, (argument,), outputs)

    def _called(self, function: Callable[..., Any], arguments: Sequence[Any], outputs: int) -> list[Reference]:
        names = [_Name(next(self._names)) for _ in range(outputs)]
        with _name_lost_cluster("Ray"):
            self._keeper.call.remote(names, function, list(arguments))
        return names

    def get(self, reference: Reference) -> Any:
        """Bring a result here."""
        try:
            brought, refused = self._ray.get(self._keeper.get.remote(reference))
        except self._ray.exceptions.RayError as error:
            raise ClusterLost(f"the Ray cluster could not do it ({type(error).__name__})") from None
        if isinstance(refused, QuorateError):
            raise refused
        if refused is not None:
            raise ClusterLost(f"the Ray cluster could not do it ({refused})")
        return brought

    def drop(self, references: Sequence[Reference]) -> None:
        """Let go of results."""
        if self._keeper is not None:
            self._keeper.drop.remote(list(references))

    def close(self) -> None:
        """Let go of all results, and of the cluster where it was started, or joined, for this."""
        if self._ray.is_initialized() and self._keeper is not None:
            self._ray.kill(self._keeper)
        self._keeper = None
        self._open.close()


class _Name(int):
    """The name of a result that a keeper has."""


class _Keeper:
    """Keeps the references of one engine, on the cluster."""

    def __init__(self) -> None:
        self._ray = import_module("ray")
        self._run = self._ray.remote(max_retries=_RETRIES)(_run)
        self._kept: dict[int, Any] = {}

    def call(self, names: Sequence[int], function: Callable[..., Any], arguments: Sequence[Any]) -> None:
        values = [self._kept[argument] if isinstance(argument, _Name) else argument for argument in arguments]
        references = self._run.options(num_returns=len(names)).remote(function, *values)
        self._kept.update(zip(names, references if len(names) > 1 else [references], strict=True))

    def get(self, name: int) -> tuple[Any, Any]:
        """Return a result and None, or None and the refusal or the type of the error."""
        try:
            return self._ray.get(self._kept[name]), None
        except self._ray.exceptions.RayTaskError as error:
            cause = error.cause
            return None, cause if isinstance(cause, QuorateError) else type(cause).__name__

    def drop(self, names: Sequence[int]) -> None:
        for name in names:
            self._kept.pop(name, None)


def _run(function: Callable[..., Any], *arguments: Any) -> Any:
    return function(*arguments)


Engine = DaskEngine | RayEngine
