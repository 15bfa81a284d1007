"""When an answer leaves: a whole number of paces after its request was ready to be asked.

How long a vote takes may depend on its margin, on the noise, or on what others ask; with a pace, only the number of
paces can be seen. The clock is set when a request is queued and not when its answer is there, so that the instant at
which an answer leaves does not depend on when it was ready, short of a whole pace. Refusals that come out of the vote
(a spent budget, a quota) leave by the same clock. What is refused before the vote follows from the request and from
public state, and leaves at once.
"""

import asyncio
import math

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

    >>> async def paces():
    ...     departure = Departure(0.001)
    ...     await departure.wait()
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
            self._timer = self._loop.call_at(self._arrival + seconds, self._tick)

    async def wait(self) -> None:
        """Wait for the next tick; without a pace, not at all.

        >>> asyncio.run(Departure(0.0).wait())
        """
        if self._timer is not None:
            self._ready = self._loop.create_future()
            await self._ready

    def cancel(self) -> None:
        """Stop the clock of an answer that will not leave.

        >>> Departure(0.0).cancel()
        """
        if self._timer is not None:
            self._timer.cancel()

    def _tick(self) -> None:
        self.ticks += 1
        if self._ready is None:
            self._timer = self._loop.call_at(self._arrival + (self.ticks + 1) * self._seconds, self._tick)
        elif not self._ready.done():
            self._ready.set_result(None)
