"""The connection of this process to a Ray cluster."""

from __future__ import annotations

import logging
import signal
import threading
from typing import Any

from diode_engine.errors import DiodeError


def imported(what: str, error: type[DiodeError]) -> Any:
    """The module ray. Where it is not installed, raises `error` with a sentence that begins with
    `what` (a task, such as "Collecting") and says how to install it."""
    try:
        import ray
    except ImportError as missing:
        raise error(
            f"{what} on a cluster needs Ray, which is not installed ({missing}): install "
            "diode-engine with its extra ray (pip install 'diode-engine[ray]')."
        ) from missing
    return ray


def connect(ray: Any, address: str, error: type[DiodeError]) -> bool:
    """Connects to the cluster at `address`, in Ray's form (host:port, or auto). Returns False where
    this process is connected already. Raises `error` where the cluster cannot be reached."""
    if ray.is_initialized():
        return False
    # Ray replaces the handler of SIGTERM. A run is cancelled by that signal, so the handler is put
    # back.
    main = threading.current_thread() is threading.main_thread()
    handler = signal.getsignal(signal.SIGTERM) if main else None
    try:
        ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
    except (OSError, RuntimeError, ValueError, AssertionError) as cause:
        why = str(cause).strip().splitlines() or [type(cause).__name__]
        raise error(f"There is no Ray cluster to be reached at {address}: {why[0]}") from cause
    finally:
        if main:
            signal.signal(signal.SIGTERM, handler)
    return True


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
