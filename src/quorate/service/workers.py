"""Several worker processes on one port: a worker that dies is replaced, and one that cannot start stops them all."""

from uvicorn.config import STARTUP_FAILURE
from uvicorn.supervisors.multiprocess import Multiprocess, Process

from quorate.service.telemetry import Log

__all__ = ["Workers"]


class Workers(Multiprocess):
    """uvicorn's supervisor, which asks no worker whether it is well: while one loads a large model it cannot answer."""

    failed = False  # whether a worker could not start

    def keep_subprocess_alive(self) -> None:
        """Replace the workers that have died. What they had on lease stays charged."""
        for place, process in enumerate(self.processes):
            if self.should_exit.is_set() or process.process.is_alive():
                continue
            process.join()
            if process.exitcode == STARTUP_FAILURE:
                self.failed = True
                self.should_exit.set()
                return
            log = Log()
            log.event("worker_died", worker=place, status=process.exitcode)
            log.flush()
            self.processes[place] = Process(self.config, self.sockets)
            self.processes[place].start()
