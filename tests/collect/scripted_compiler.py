"""A compiler without Inductor: answers as the real one, and does to some classes what compilers
do.

The environment variable DIODE_COMPILER_SCRIPT holds JSON: a log of what is begun, and by the
candidate what happens to its classes: "crash" each time, "crash once", "hang", "nonsense" said.
"""

import json
import os
import signal
import sys
from multiprocessing.connection import Connection
from pathlib import Path

from diode_engine.collect.binaries import Binaries
from diode_engine.inductor.lowering.binary import Binary
from diode_engine.inductor.lowering.kernel_class import KernelClass


def binary(cls: KernelClass) -> Binary:
    """As large as a real one: Ray keeps what is smaller in another place."""
    return Binary("kernel", 4096 * cls.key.encode(), 4, 0, 32, 0, (("a", "u64"), ("b", "u64")))


def main() -> None:
    connection = Connection(int(sys.argv[1]))
    script = json.loads(os.environ["DIODE_COMPILER_SCRIPT"])
    log = Path(script["log"])
    if script.get("dead_on_arrival"):
        sys.exit("no compiler today")
    environment, root = connection.recv()
    binaries = Binaries(root, environment)
    connection.send(True)
    while True:
        try:
            cls = connection.recv()
        except EOFError:
            return
        earlier = log.read_text().count(cls.key) if log.exists() else 0
        with log.open("a") as file:
            file.write(f"{os.getpid()} {cls.key}\n")
        fate = script["fates"].get(str(cls.candidate))
        if fate == "crash" or (fate == "crash once" and not earlier):
            os.kill(os.getpid(), signal.SIGKILL)
        if fate == "hang":
            signal.pause()
        if fate == "nonsense":
            connection.send_bytes(b"\xc1")
            signal.pause()
        binaries.put(cls, binary(cls))
        connection.send(True)


if __name__ == "__main__":
    main()
