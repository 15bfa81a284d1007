"""A queue that answers requests in batches: one thread, one call of `ask_all` for each batch.

Counting ballots and writing to the ledger cost about the same for one request and for a hundred, so requests that
arrive during one batch form the next. Callers take turns in a batch, one request at a time, so that a busy caller does
not delay the others. A request that fails does not fail the rest of its batch. A full queue refuses new requests at
once, first those of callers above their equal share of the queue.
"""

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from quorate.core.batch import is_about_one
from quorate.service._errors import Refused

_BATCH_ROWS = 4096  # queries in one batch, unless one request alone has more: the next batch does not wait for long
_QUEUE_ROWS = 2**16  # This bound on waiting queries bounds memory.
_IDLE_SECONDS = 0.25
_LONGEST_WAIT = 60.0  # The largest Retry-After, in seconds.
_NEWEST = 0.2  # how much the last batch counts in the rate

Waiting = tuple[Any, int, "asyncio.Future[Any]"]


class RequestBatcher:
    """The queue before a session, and the thread that empties it. When idle it calls `idle` a few times a second."""

    def __init__(
        self,
        ask_all: Callable[[list[Any]], Sequence[Any]],
        *,
        limit: int = 1024,
        idle: Callable[[], None] | None = None,
    ) -> None:
        self._ask_all, self._limit, self._idle = ask_all, limit, idle
        self.gather_seconds = 0.0  # that the first request of a batch waits for others
        self._waiting: dict[str, deque[Waiting]] = {}  # By caller, in order of turns.
        self._count = self._rows = 0
        self._seconds = 0.0  # that a row takes
        self._batch: list[Waiting] = []  # that is being answered, and since when
        self._since = 0.0
        self._changed = threading.Condition(threading.Lock())
        self._closed = False
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    def start(self) -> None:
        """Start answering, for the event loop that is running."""
        self._loop = asyncio.get_running_loop()
        self._thread = threading.Thread(target=self._run, name="quorate-batcher", daemon=True)
        self._thread.start()

    def ask(self, request: Any, *, rows: int) -> "asyncio.Future[Any]":
        """Queue a request and return a future for its result from `ask_all`: an answer, or an error object."""
        if self._loop is None:
            raise Refused("not_ready")
        future: asyncio.Future[Any] = self._loop.create_future()
        caller = getattr(request, "caller", "")
        with self._changed:
            if self._closed:
                raise Refused("stopping")
            self._check_room(caller)
            self._waiting.setdefault(caller, deque()).append((request, rows, future))
            self._count, self._rows = self._count + 1, self._rows + rows
            self._changed.notify()
        return future

    def _check_room(self, caller: str) -> None:
        """Refuse callers at their equal share of a full queue, and every caller at twice the limit."""
        if self._count < self._limit and self._rows < _QUEUE_ROWS:
            return
        mine = self._waiting.get(caller, ())
        part = 1 / len(self._waiting.keys() | {caller})
        full = self._count >= 2 * self._limit or self._rows >= 2 * _QUEUE_ROWS
        if full or len(mine) >= part * self._limit or sum(rows for _, rows, _ in mine) >= part * _QUEUE_ROWS:
            raise Refused("overloaded", retry_after=min(self._rows * self._seconds, _LONGEST_WAIT))

    async def close(self) -> None:
        """Take no more, answer all that is queued, and end the thread."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        if self._thread is not None:
            await asyncio.to_thread(self._thread.join)
            await asyncio.sleep(0)  # Let the loop deliver the last results of the thread.

    @property
    def answering(self) -> bool:
        """Whether requests are taken and answered."""
        return self._thread is not None and self._thread.is_alive() and not self._closed

    @property
    def queued(self) -> int:
        """How many requests wait for a batch."""
        return self._count

    @property
    def seconds_under_way(self) -> float:
        """How long the batch that is being answered has taken so far."""
        return time.perf_counter() - self._since if self._batch else 0.0

    def refuse_all(self, error: Exception) -> None:
        """Answer every request with an error. Waiting ones are never asked; an answer under way is kept for its id."""
        with self._changed:
            waiting = [request for queue in self._waiting.values() for request in queue]
            self._waiting, self._count, self._rows = {}, 0, 0
        requests = [*self._batch, *waiting]
        _deliver(requests, [error] * len(requests))

    def _run(self) -> None:
        assert self._loop is not None
        while batch := self._next():
            self._since, self._batch = time.perf_counter(), batch
            results = self._answer([request for request, _, _ in batch])
            self._batch = []
            self._loop.call_soon_threadsafe(_deliver, batch, results)
            seconds = (time.perf_counter() - self._since) / max(1, sum(rows for _, rows, _ in batch))
            self._seconds = seconds + (1 - _NEWEST) * (self._seconds - seconds) if self._seconds else seconds

    def _answer(self, requests: list[Any]) -> list[Any]:
        """Return the answer to each request. A batch that fails is split in halves to isolate the failing request."""
        try:
            results = list(self._ask_all(requests))
            if len(results) != len(requests):
                raise RuntimeError("a session must answer every request of a batch")
        except Exception as error:
            if len(requests) == 1 or not is_about_one(error):  # but about all: the ledger, a site
                return [error] * len(requests)
            half = len(requests) // 2
            return self._answer(requests[:half]) + self._answer(requests[half:])
        return results

    def _next(self) -> list[Waiting]:
        """Return the next batch, or nothing when all is done."""
        with self._changed:
            while not self._waiting and not self._closed:
                if not self._changed.wait(_IDLE_SECONDS) and self._idle is not None:
                    self._changed.release()
                    try:
                        self._idle()
                    except Exception:  # noqa: S110  The next request meets the same error and reports it.
                        pass
                    finally:
                        self._changed.acquire()
            if self.gather_seconds and not self._closed:
                self._changed.release()
                time.sleep(self.gather_seconds)
                self._changed.acquire()
            batch: list[Waiting] = []
            rows = 0
            while self._waiting:
                caller = next(iter(self._waiting))
                queue = self._waiting[caller]
                if batch and rows + queue[0][1] > _BATCH_ROWS:
                    break  # whose turn it is keeps it
                batch.append(queue.popleft())
                rows += batch[-1][1]
                del self._waiting[caller]
                if queue:
                    self._waiting[caller] = queue  # behind the others
            self._count, self._rows = self._count - len(batch), self._rows - rows
            return batch


def _deliver(batch: list[Waiting], results: list[Any]) -> None:
    for (_, _, future), result in zip(batch, results, strict=True):
        if not future.done():  # A client that disconnected cancelled it; the ledger keeps the paid answer.
            future.set_result(result)
