"""When an answer leaves: a whole number of paces after the last byte of its request came.

How long a request takes may depend on what it holds, on the margin of its vote, on the noise, or on what others ask;
with a pace, only the number of paces can be seen. The clock is set when the body is there, before anything of it is
read, and not when the answer is ready, so that the instant at which an answer leaves does not depend on when it was
ready, short of a whole pace. All that follows from the body leaves by this clock: answers, refusals of what was sent (a
bad number, an unknown column, a wrong shape), of the queue, and of the vote (a spent budget, a quota), and failures.
What is refused before the body is read follows from the address, the headers and the key alone, and leaves at once.
"""

import asyncio
import math
from typing import Self

__all__ = ["Departure", "Pace"]


class Pace:
    """A pace in seconds; 0 for none.

    >>> Pace(0.02).paces(0.03), Pace(0.02).told(0.03), Pace(0.0).told(0.0301)
    (2, 0.04, 0.031)
    """

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    def paces(self, elapsed: float) -> int:
        """Return how many paces cover a time: at least 1.

        >>> Pace(0.02).paces(0.0), Pace(0.02).paces(0.02)
        (1, 1)
        """
        return max(1, math.ceil(elapsed / self.seconds - 1e-9))

    def told(self, elapsed: float) -> float:
        """Return a time as logs and metrics may tell it: whole paces, or milliseconds where there is no pace.

        >>> Pace(0.02).told(0.001)
        0.02
        """
        if self.seconds > 0:
            return self.paces(elapsed) * self.seconds
        return math.ceil(elapsed * 1000) / 1000

    def departure(self) -> "Departure":
        """Set the clock for an answer. Needs a running event loop.

        >>> async def leave():
        ...     await Pace(0.001).departure().wait()
        >>> asyncio.run(leave())
        """
        return Departure(self.seconds)


class Departure:
    """The clock of one answer: it ticks every pace from now on, and the answer leaves at the first tick once ready.

    `async with` leaves its block by the clock, also where that raises.

    >>> async def paces():
    ...     async with Departure(0.001) as departure:
    ...         pass
    ...     return departure.ticks >= 1
    >>> asyncio.run(paces())
    True
    """

    __slots__ = ("_arrival", "_loop", "_ready", "_seconds", "_timer", "ticks")

    def __init__(self, seconds: float) -> None:
        self.ticks, self._seconds = 0, seconds
        self._ready: asyncio.Future[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        if seconds > 0:
            self._loop = asyncio.get_running_loop()
            self._arrival = self._loop.time()
            self._set()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        try:
            if error is None or isinstance(error, Exception):  # and not where the request itself was given up
                await self.wait()
        finally:
            self.cancel()

    async def wait(self) -> None:
        """Wait for the next tick; without a pace, not at all.

        >>> asyncio.run(Departure(0.0).wait())
        """
        if self._timer is not None:
            passed = int((self._loop.time() - self._arrival) / self._seconds)
            if passed > self.ticks:  # while the loop was busy, with this request for one: those ticks are over
                self._timer.cancel()
                self.ticks = passed
                self._set()
            self._ready = self._loop.create_future()
            await self._ready

    def cancel(self) -> None:
        """Stop the clock of an answer that will not leave.

        >>> Departure(0.0).cancel()
        """
        if self._timer is not None:
            self._timer.cancel()

    def _set(self) -> None:
        self._timer = self._loop.call_at(self._arrival + (self.ticks + 1) * self._seconds, self._tick)

    def _tick(self) -> None:
        self.ticks += 1
        if self._ready is None:
            self._set()
        elif not self._ready.done():
            self._ready.set_result(None)
