"""A worker of a replay (replay_worker.py) to which two things happen, each once in all:
it answers garbage, and it hangs. The first argument is the folder where it is noted."""

import signal
import sys
from multiprocessing.connection import Connection
from pathlib import Path

from diode_engine.collect.processes import protocol
from tests.collect import replay_worker


def first(happened: Path) -> bool:
    try:
        happened.touch(exist_ok=False)
    except FileExistsError:
        return False
    return True


class Prone(Connection):
    folder: Path

    def recv_bytes(self, maxlength: int | None = None) -> bytes:
        data = super().recv_bytes(maxlength)
        if "candidates" in protocol.unpack(data):
            if first(self.folder / "garbage"):
                self.send_bytes(b"\xc1")
                signal.pause()
            if first(self.folder / "hang"):
                signal.pause()
        return data


if __name__ == "__main__":
    Prone.folder = Path(sys.argv.pop(1))
    replay_worker.Connection = Prone
    replay_worker.main()
