"""The process that compiles kernel classes, for a GPU that need not be in this machine.

It gets messages over a connection: first {"environment": …, "root": …}, which it answers with
{"ready": true}; then {"classes": […]}, each of one family. For these it sends {"begin": i} before
and {"end": i} after each class, and {"done": true} after the last. Results go into the folder of
binaries below `root`.

    python -m diode_engine.collect.workers.compile_worker FD
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
from collections.abc import Generator
from multiprocessing.connection import Connection
from pathlib import Path

import torch

from diode_engine.collect.binaries import Binaries, Unbuilt
from diode_engine.collect.processes import children, protocol
from diode_engine.collect.workers.timer import failure_of
from diode_engine.core.hardware import Environment, Hardware
from diode_engine.core.timing import Failure
from diode_engine.errors import IntegrationError
from diode_engine.inductor import without_gpu
from diode_engine.inductor.lowering.binary import Binary
from diode_engine.inductor.lowering.kernel_class import KernelClass
from diode_engine.inductor.lowering.symbolic import Family, family

# The failures that a compile itself can have. Where `failure_of` finds the words of another one in
# a compiler's error, that is a coincidence.
OWN_FAULTS = (Failure.OUT_OF_RESOURCES, Failure.OUT_OF_MEMORY)


def build(rendering: Family, cls: KernelClass, hardware: Hardware) -> Binary | Unbuilt:
    """The class's binary, or why there is none."""
    try:
        binary = rendering.render(cls).compile()
    except IntegrationError as error:
        return Unbuilt(None, str(error))
    except Exception as error:  # noqa: BLE001  # whatever a compiler does is a result
        failure = failure_of(error)
        reason = f"{type(error).__name__}: {error}"[:300]
        return Unbuilt(failure if failure in OWN_FAULTS else Failure.COMPILE_ERROR, reason)
    if binary.shared_bytes > hardware.shared_bytes_block:
        return Unbuilt(
            Failure.OUT_OF_RESOURCES,
            f"It needs {binary.shared_bytes} bytes of shared memory; a block has "
            f"{hardware.shared_bytes_block}.",
        )
    return binary


def build_all(
    classes: list[KernelClass], hardware: Hardware, device: torch.device
) -> Generator[Binary | Unbuilt, None, None]:
    """The results of classes of one family, each compiled when it is asked for."""
    with contextlib.ExitStack() as stack:
        rendering: Family | Unbuilt
        try:
            rendering = stack.enter_context(family(classes[0], device))
        except Exception as error:  # noqa: BLE001  # Inductor may refuse in any way
            rendering = Unbuilt(None, f"{type(error).__name__}: {error}"[:300])
        for cls in classes:
            yield rendering if isinstance(rendering, Unbuilt) else build(rendering, cls, hardware)


def serve(connection: Connection) -> None:
    """Answers until the connection closes."""
    start = protocol.unpack(connection.recv_bytes())
    environment = Environment.from_dict(start["environment"])
    binaries = Binaries(Path(start["root"]), environment)
    without_gpu.pretend(environment.hardware)
    device = torch.device("cuda", 0)
    connection.send_bytes(protocol.pack({"ready": True}))
    while True:
        try:
            job = protocol.unpack(connection.recv_bytes())
        except EOFError:
            return
        classes = [KernelClass.from_dict(fields) for fields in job["classes"]]
        with contextlib.closing(build_all(classes, environment.hardware, device)) as results:
            for index, cls in enumerate(classes):
                connection.send_bytes(protocol.pack({"begin": index}))
                binaries.put(cls, next(results))
                connection.send_bytes(protocol.pack({"end": index}))
        # Nothing that Triton has cached is needed again.
        shutil.rmtree(os.environ["TRITON_CACHE_DIR"], ignore_errors=True)
        connection.send_bytes(protocol.pack({"done": True}))


def main() -> None:
    children.end_with_parent()
    os.dup2(2, 1)  # whatever a compiler prints is not an answer
    with contextlib.suppress(BrokenPipeError, ConnectionResetError, KeyboardInterrupt):
        serve(Connection(int(sys.argv[1])))


if __name__ == "__main__":
    main()
