"""A process that compiles for flex_attention.py; flex_compilers.py starts it and talks to it.

It is given {"hardware": …} once, says {"ready": true}, and answers each {"job": a pickled Job}
with {"found": its pickled results}.

    python benchmarks/flex_compile_worker.py FD
"""

from __future__ import annotations

import contextlib
import os
import pickle
import sys
from multiprocessing.connection import Connection

import flex_kernels
import torch

from diode_engine.collect.processes import children, protocol
from diode_engine.core.hardware import Hardware
from diode_engine.inductor import without_gpu


def serve(connection: Connection) -> None:
    """Answers until the connection closes."""
    start = protocol.unpack(connection.recv_bytes())
    torch.set_num_threads(1)
    without_gpu.pretend(Hardware.from_dict(start["hardware"]))
    connection.send_bytes(protocol.pack({"ready": True}))
    while True:
        try:
            message = protocol.unpack(connection.recv_bytes())
        except EOFError:
            return
        job = pickle.loads(message["job"])  # noqa: S301  # the parent's
        found = flex_kernels.compiled(job.family, job.configs)
        connection.send_bytes(protocol.pack({"found": pickle.dumps(found)}))


def main() -> None:
    children.end_with_parent()
    os.dup2(2, 1)  # whatever a compiler prints is not an answer
    with contextlib.suppress(BrokenPipeError, ConnectionResetError, KeyboardInterrupt):
        serve(Connection(int(sys.argv[1])))


if __name__ == "__main__" and len(sys.argv) > 1:  # `make bench` runs all scripts here
    main()
