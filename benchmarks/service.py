"""Load and timing of the server, through real HTTP, with the client on the same machine.

The twin with privacy switched off is the same application with a session that answers the plain plurality and keeps
nothing. It exists here alone. Each timing test is also run on a twin with a planted leak, to show that it would see
one: a delay in close votes, and inputs that remember what callers have sent.
"""

import os
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.figures import Figure, import_planted
from benchmarks.service_callers import caller_figures
from benchmarks.service_operation import operation_figures
from benchmarks.service_speed import speed_figures
from benchmarks.serving import binary_request, json_request, send, serving, table_request
from quorate.auditing._tracing import area_under_curve

_FEATURES, _TEACHERS, _CONNECTIONS = 20, 1000, 64
_PACE = 20.0  # milliseconds, as `quorate serve` has it
_DELAY = 0.002  # seconds, planted in close votes
_TOWNS = [f"town {number}" for number in range(60)]
_TABLES = 10  # models with a table of towns: each town of each can be asked about, and probed, once a server
_SIZES = (512, 4096)  # rows of a probe
_SERVERS = {  # how many are probed one after the other, in a whole run and in a quick one
    ("served", _PACE): (16, 2),
    ("served", 0.0): (4, 1),
    ("remembering", 0.0): (1, 2),
}

# Answers in each of two arms, in a whole run and in a quick one: bars.toml counts their standard errors.
TIMED_ANSWERS = (5000, 500)
_IN_AN_ARM = len(_TOWNS) * _TABLES // len(_SIZES) // 2  # of one server
CALLER_PROBES = tuple(servers * _IN_AN_ARM for servers in _SERVERS["served", _PACE])


def service_figures(quick: bool) -> Iterator[Figure]:
    """Measure answers a second and their waiting time, single and in batches, with and without privacy; then timing."""
    with tempfile.TemporaryDirectory(prefix="quorate-bench-") as home:
        folder = _model(Path(home) / "bench", queries=400_000)
        yield from _load_figures(folder, quick)
        yield from speed_figures(folder, _published_model(Path(home) / "published"), quick)
        yield from _timing_figures(folder, quick)
        yield from _caller_figures([_table_model(Path(home) / f"table{n}") for n in range(_TABLES)], quick)


def _load_figures(folder: Path, quick: bool) -> Iterator[Figure]:
    singles, batches = (3000, 400) if quick else (20_000, 3000)
    rates: dict[str, dict[str, float]] = {}
    for kind in ("served", "plain"):
        rates[kind] = {}
        with serving([folder], kind=kind, pace=_PACE) as server:
            send(server.port, _requests(json_request, 500, 1), _CONNECTIONS)  # warm
            total, seconds = send(server.port, _requests(json_request, singles, 1), _CONNECTIONS)
            rates[kind]["singles"] = singles / total
            if kind == "served":
                yield "service.single_answers_per_second", singles / total, "1/s"
                yield "service.single_p99_milliseconds", 1000 * float(np.quantile(seconds, 0.99)), "ms"
            for name, write in (("json", json_request), ("binary", binary_request)):
                total, _ = send(server.port, _requests(write, batches, 64), 16)
                rates[kind][name] = 64 * batches / total
                if kind == "served":
                    yield f"service.rows_per_second.batch64.{name}", 64 * batches / total, "1/s"
    for name in ("singles", "json", "binary"):
        yield f"service.speed_over_no_privacy.{name}", rates["served"][name] / rates["plain"][name], "ratio"


def _timing_figures(folder: Path, quick: bool) -> Iterator[Figure]:
    """Tell close votes from clear ones by the time of their answers: the area under the curve, from 0.5 (cannot)."""
    arm = TIMED_ANSWERS[quick]
    for kind in ("served", "slow"):
        for pace in (_PACE, 0.0):
            with serving([folder], kind=kind, pace=pace) as server:
                send(server.port, _requests(json_request, 200, 1), 8)
                clear = np.random.default_rng().permutation(2 * arm) < arm
                requests = [
                    json_request("bench", _queries(1, clear=bool(is_clear)), _id(number))
                    for number, is_clear in enumerate(clear)
                ]
                _, seconds = send(server.port, requests, 8 if pace else 1)
            distance = abs(area_under_curve(seconds[clear], seconds[~clear]) - 0.5)
            yield f"service.timing.{kind}.{'paced' if pace else 'not_paced'}.auc_from_half", distance, "share"


def _caller_figures(folders: Sequence[Path], quick: bool) -> Iterator[Figure]:
    """Tell by the time of a refusal, which costs nothing, whether another caller has asked about the same town."""
    for (kind, pace), servers in _SERVERS.items():
        timing = probe_callers(folders, kind, pace=pace, servers=servers[quick])
        for rows, (heard, unheard) in timing.items():
            name = f"service.callers.{kind}.{'paced' if pace else 'not_paced'}.rows{rows}.auc_from_half"
            yield name, abs(area_under_curve(heard, unheard) - 0.5), "share"


def probe_callers(
    folders: Sequence[Path], kind: str, *, pace: float, servers: int
) -> dict[int, tuple[np.ndarray, np.ndarray]]:
    """Return, by the size of a probe, how long it took over towns that a victim had asked about, and over others.

    A server is asked about every town of every model once: what a probe leaves behind would spoil the next.
    """
    names = [folder.name for folder in folders]
    pairs = [(name, town, _SIZES[index % 2]) for index, name in enumerate(names) for town in _TOWNS]
    sizes = np.array([rows for _, _, rows in pairs])
    runs = [_probe_server(folders, kind, pairs, pace=pace) for _ in range(servers)]
    seconds, heard = (np.concatenate(parts) for parts in zip(*runs, strict=True))
    by_size = {rows: np.tile(sizes == rows, servers) for rows in _SIZES}
    return {rows: (seconds[heard & of_size], seconds[~heard & of_size]) for rows, of_size in by_size.items()}


def _probe_server(
    folders: Sequence[Path], kind: str, pairs: list[tuple[str, str, int]], *, pace: float
) -> tuple[np.ndarray, np.ndarray]:
    """Return how long a probe of each pair of a model and a town took, and whether a victim had asked about it."""
    chance, sizes = np.random.default_rng(), np.array([rows for _, _, rows in pairs])
    heard = np.zeros(len(pairs), dtype=np.bool_)
    for rows in _SIZES:
        indices = chance.permutation(np.flatnonzero(sizes == rows))
        heard[indices[: len(indices) // 2]] = True
    victim = [_towns(name, town, 1, "1.5") for name, town, _ in (pairs[index] for index in np.flatnonzero(heard))]
    order = chance.permutation(len(pairs))
    probes = [_towns(name, town, rows, "bad") for name, town, rows in (pairs[index] for index in order)]
    with serving(folders, kind=kind, pace=pace) as server:
        send(server.port, [_towns(folder.name, "elsewhere", 1, "1.5") for folder in folders] * 20, 4)  # warm
        send(server.port, victim, 4)
        _, seconds = send(server.port, probes, 1, status=400)
    return seconds[np.argsort(order)], heard


def _towns(model: str, town: str, rows: int, age: str) -> bytes:
    return table_request(model, {"town": [town] * rows, "age": [age] * rows})


def _table_model(folder: Path) -> Path:
    """Fit a model on a table of towns, small and with a budget that pays for every server of the bench."""
    from quorate.models.predictors import PrivateClassifier
    from quorate.models.saving import save
    from quorate.tables import SCHEMA_FILE, Category, Number, Schema

    schema = Schema({"town": Category(_TOWNS), "age": Number()})
    X = np.random.default_rng(0).normal(size=(2000, len(_TOWNS) + 1))
    classifier = PrivateClassifier(epsilon=1e6, teachers=100, aggregator="noisy_max", queries=10_000, classes=[0, 1])
    return save(classifier.fit(X, (X[:, 0] > 0).astype(int)), folder, extra={SCHEMA_FILE: schema.to_json().encode()})


def _model(folder: Path, *, queries: int) -> Path:
    """Fit a model whose budget pays for the whole bench: its guarantee is worth nothing, its work is the same."""
    from quorate.models.predictors import PrivateClassifier
    from quorate.models.saving import save

    generator = np.random.default_rng(0)
    X = generator.normal(size=(30 * _TEACHERS, _FEATURES))
    y = (X[:, 0] > 0).astype(int)
    classifier = PrivateClassifier(
        epsilon=1e6, teachers=_TEACHERS, aggregator="quorum", queries=queries, no_quorums=queries // 2, classes=[0, 1]
    )
    return save(classifier.fit(X, y), folder)


def _published_model(folder: Path) -> Path:
    """Fit a linear model, which may be published: it is asked without keys and without a ledger."""
    from quorate import PrivateLogisticRegression
    from quorate.models.saving import save

    generator = np.random.default_rng(0)
    X = generator.normal(size=(30 * _TEACHERS, _FEATURES))
    model = PrivateLogisticRegression(epsilon=1.0, classes=[0, 1])
    return save(model.fit(X, (X[:, 0] > 0).astype(int), public=generator.normal(size=(500, _FEATURES))), folder)


def _queries(rows: int, *, clear: bool = True) -> np.ndarray:
    X = np.random.default_rng().normal(size=(rows, _FEATURES))
    X[:, 0] = np.sign(X[:, 0]) * (8 if clear else 1e-3)
    if not clear:
        X[:, 1:] *= 0.01
    return X


def _requests(write: Any, number: int, rows: int) -> list[bytes]:
    return [write("bench", _queries(rows), _id(index)) for index in range(number)]


def _id(number: int) -> str:
    return f"{number}-{os.urandom(6).hex()}"


class _Plain:
    """A session that answers the plain plurality, pays nothing and keeps nothing."""

    def __init__(self, ensemble: Any) -> None:
        self._ensemble = ensemble

    def ask_all(self, requests: Sequence[Any]) -> list[Any]:
        from quorate.core.privacy import Cost
        from quorate.core.requests import Replies, rows_of

        rows = [(index, row) for index, request in enumerate(requests) for row in range(len(request.X))]
        labels = self._ensemble.count(rows_of(requests, rows)).put_to(lambda votes: votes.argmax(axis=1))
        ends = np.cumsum([len(request.X) for request in requests])
        return [
            Replies(labels=part, refused=np.zeros(len(part), dtype=np.bool_), spent=Cost(0.0))
            for part in np.split(labels, ends[:-1])
        ]


class _Slow:
    """A session that takes longer over close votes: a leak, planted."""

    def __init__(self, session: Any) -> None:
        self._session = session

    def ask_all(self, requests: Sequence[Any]) -> Any:
        if any(abs(request.X[:, 0]).min() < 1 for request in requests):
            time.sleep(_DELAY)
        return self._session.ask_all(requests)

    def close(self) -> None:
        self._session.close()


def main(kind: str, port: str, pace: str, *folders: str) -> None:
    """Serve a twin of the application, for the figures above."""
    import uvicorn

    from quorate.service._app import make_app
    from quorate.service._settings import Settings

    settings = Settings.of(*folders, port=int(port), keys=False, pace_ms=float(pace))
    models = [_twin(kind, Path(folder), lease=settings.lease) for folder in folders]
    uvicorn.run(make_app(models, settings), host="127.0.0.1", port=int(port), access_log=False, log_level="error")


def _twin(kind: str, folder: Path, *, lease: int) -> Any:
    from quorate.models.saving import load, open_folder
    from quorate.service.model import Model

    classifier, schema = load(folder, lease=lease), open_folder(folder).schema()
    model = Model.of(folder.name, classifier, schema=schema)
    session: Any = classifier.session_
    if kind == "remembering":
        model.inputs.encoder = import_planted("lookups").RemembersTexts(schema)  # type: ignore[attr-defined]
    else:
        session = _Plain(session.answerer.ensemble) if kind == "plain" else _Slow(session)
    return Model(folder.name, session=session, inputs=model.inputs, outputs=model.outputs, claim=model.claim)


def measure(quick: bool) -> Iterator[Figure]:
    """Yield the figures of load and timing, of callers beside each other, and of servers in trouble."""
    yield from service_figures(quick)
    yield from caller_figures(quick)
    yield from operation_figures(quick)


if __name__ == "__main__":
    main(*sys.argv[1:])
