"""The process that compiles kernel classes, for a GPU that need not be in this machine.

It gets pickled messages over a connection: first the environment and the root of the folder of
binaries, then one class at a time. It answers each with True: when it is ready, and when the
class's result is in the folder.

    python -m diode_engine.collect.workers.compile_worker FD
"""

from __future__ import annotations

import contextlib
import itertools
import os
import shutil
import sys
from collections.abc import Iterable, Iterator
from multiprocessing.connection import Connection
from operator import attrgetter

import torch

from diode_engine.collect.binaries import Binaries, Unbuilt
from diode_engine.collect.processes import children
from diode_engine.collect.workers.timer import failure_of
from diode_engine.core.hardware import Hardware
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
    classes: Iterable[KernelClass], hardware: Hardware, device: torch.device
) -> Iterator[tuple[KernelClass, Binary | Unbuilt]]:
    """The classes, each with its result, compiled when it is asked for. What classes are rendered
    from is kept until a class of another family comes."""
    for _, members in itertools.groupby(classes, attrgetter("family")):
        with contextlib.ExitStack() as stack:
            rendering: Family | None = None
            for cls in members:
                try:
                    rendering = rendering or stack.enter_context(family(cls, device))
                except Exception as error:  # noqa: BLE001  # Inductor may refuse in any way
                    yield cls, Unbuilt(None, f"{type(error).__name__}: {error}"[:300])
                else:
                    yield cls, build(rendering, cls, hardware)


def requests(connection: Connection) -> Iterator[KernelClass]:
    """What comes over the connection, until it closes."""
    with contextlib.suppress(EOFError):
        while True:
            yield connection.recv()


def serve(connection: Connection) -> None:
    """Answers until the connection closes."""
    environment, root = connection.recv()
    binaries = Binaries(root, environment)
    without_gpu.pretend(environment.hardware)
    device = torch.device("cuda", 0)
    connection.send(True)
    for cls, result in build_all(requests(connection), environment.hardware, device):
        binaries.put(cls, result)
        # Nothing that Triton has cached is needed again.
        shutil.rmtree(os.environ["TRITON_CACHE_DIR"], ignore_errors=True)
        connection.send(True)


def main() -> None:
    children.end_with_parent()
    os.dup2(2, 1)  # whatever a compiler prints is not an answer
    with contextlib.suppress(BrokenPipeError, ConnectionResetError, KeyboardInterrupt):
        serve(Connection(int(sys.argv[1])))


if __name__ == "__main__":
    main()
