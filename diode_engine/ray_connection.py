"""The connection of this process to a Ray cluster."""

from __future__ import annotations

import logging
import signal
import threading
from typing import Any

from diode_engine.errors import DiodeError


class RayConnection:
    """The connection of this process to the Ray cluster at `address` (as Ray takes it: host:port,
    or auto). `what` begins the sentence that says what needs it, such as "Collecting"; `error` is
    raised where there can be no connection."""

    ray: Any  # the module, after `connect`

    def __init__(self, address: str, what: str, error: type[DiodeError]) -> None:
        self.address = address
        self._what = what
        self._error = error
        self._is_own = False

    def connect(self) -> None:
        """Connects, unless this process is connected already. Raises the error where Ray is not
        installed, or the cluster cannot be reached."""
        try:
            import ray
        except ImportError as missing:
            raise self._error(
                f"{self._what} on a cluster needs Ray, which is not installed ({missing}): install "
                "diode-engine with its extra ray (pip install 'diode-engine[ray]')."
            ) from missing
        self.ray = ray
        if ray.is_initialized():
            return
        # Ray replaces the handler of SIGTERM. A run is cancelled by that signal, so the handler is
        # put back.
        main = threading.current_thread() is threading.main_thread()
        handler = signal.getsignal(signal.SIGTERM) if main else None
        try:
            ray.init(address=self.address, log_to_driver=False, logging_level=logging.ERROR)
        except (OSError, RuntimeError, ValueError, AssertionError) as cause:
            why = str(cause).strip().splitlines() or [type(cause).__name__]
            raise self._error(
                f"There is no Ray cluster to be reached at {self.address}: {why[0]}"
            ) from cause
        finally:
            if main:
                signal.signal(signal.SIGTERM, handler)
        self._is_own = True

    def disconnect(self) -> None:
        """Ends the connection, unless this process had it before `connect`."""
        if self._is_own:
            self.ray.shutdown()
            self._is_own = False


def error_line(error: BaseException) -> str:
    """The first line of what an error says. An error that Ray passes on from another process has
    the original one as its cause; then it is that one's line."""
    cause = getattr(error, "cause", None)
    lines = [line.strip() for line in str(cause or error).splitlines() if line.strip()]
    return lines[0][:300] if lines else type(error).__name__


class MachineNames:
    """Names for the machines of a cluster: their host names. Where several machines have the same
    one, a part of Ray's id of the machine is added."""

    def __init__(self) -> None:
        self._names: dict[str, str] = {}  # by Ray's ids

    def find_name(self, node: str, own: str) -> str:
        """The name of the machine with Ray's id `node` and the host name `own`."""
        if node not in self._names:
            taken = own in self._names.values()
            self._names[node] = f"{own}-{node[:6]}" if taken else own
        return self._names[node]
