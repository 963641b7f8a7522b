"""The process that does parts of fits (`fit_jobs`), one after the other.

It is asked over a connection. It says {"ready": true} once, and for each {"job": …} what the job
says, then {"done": true}, {"failed": sentence}, or {"crowded": sentence} where the GPU has too
little memory now. It ends when the connection closes.

    python -m diode_engine.training.fit_worker FD
"""

from __future__ import annotations

import contextlib
import os
import sys
from multiprocessing.connection import Connection

from diode_engine.collect.processes import children, protocol
from diode_engine.documents import shortened
from diode_engine.errors import DiodeError
from diode_engine.training import fit_jobs


class _Parent:
    """Whoever started this process."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def say(self, message: protocol.Message) -> None:
        self._connection.send_bytes(protocol.pack(message))

    def hear(self) -> protocol.Message:
        """Raises EOFError where the connection is closed."""
        return protocol.unpack(self._connection.recv_bytes())


def serve(parent: _Parent) -> None:
    """Does what it is asked until the connection closes."""
    parent.say({"ready": True})
    while True:
        job = parent.hear()
        try:
            fit_jobs.do(job, parent)
        except (EOFError, ConnectionError):
            raise
        except DiodeError as error:
            parent.say({"failed": str(error)})
        except OSError as error:
            parent.say({"failed": fit_jobs.files_failed(error)})
        except Exception as error:  # noqa: BLE001  # of torch's, or XGBoost's
            what = shortened(" ".join(str(error).split()))
            kind = "crowded" if _lacks_gpu_memory(error) else "failed"
            parent.say({kind: f"A fit failed: {type(error).__name__}: {what}"})
        else:
            parent.say({"done": True})


def _lacks_gpu_memory(error: Exception) -> bool:
    """Whether it is torch's error where a GPU's memory is used up, also by other processes."""
    words = "out of memory", "CUBLAS_STATUS_ALLOC_FAILED", "CUBLAS_STATUS_NOT_INITIALIZED"
    return isinstance(error, RuntimeError) and any(word in str(error) for word in words)


def main() -> None:
    children.end_with_parent()
    os.dup2(2, 1)  # whatever a library prints is not an answer
    with contextlib.suppress(EOFError, ConnectionError, KeyboardInterrupt):
        serve(_Parent(Connection(int(sys.argv[1]))))


if __name__ == "__main__":
    main()
