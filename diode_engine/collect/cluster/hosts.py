"""What Ray runs on the machines of a cluster for a collection: one process for each GPU, and one
for each core that compiles. Both keep worker processes as a collection on one machine does.
"""

from __future__ import annotations

import contextlib
import platform
import sys
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from diode_engine.collect.binaries import Binaries
from diode_engine.collect.cluster.messages import pack_timed, unpack_request
from diode_engine.collect.compiler_pool import CompilerPool
from diode_engine.collect.executor import Answer, Batch, Conversation, Host, Request, Timed
from diode_engine.collect.gpu_state import GpuState, GpuWatch, Looks
from diode_engine.collect.pool import Pool
from diode_engine.core.hardware import Environment
from diode_engine.inductor.lowering.kernel_class import KernelClass
from diode_engine.version import __version__

FETCH_SECONDS = 60.0


@dataclass(frozen=True)
class Setup:
    """What hosts are made with: the commands of workers and compilers, and the interpreter that
    these were written for, whose place on another machine may be another; a worker's deadline in
    seconds; and the folder of binaries, on each machine, where kernels are launched directly."""

    worker: tuple[str, ...]
    compiler: tuple[str, ...]
    python: str
    deadline: float
    binaries: Path | None

    def here(self, command: Sequence[str]) -> tuple[str, ...]:
        return tuple(sys.executable if word == self.python else word for word in command)


@dataclass(frozen=True)
class Hello:
    """Where a GPU's process is, in which version of Diode, and what it works on."""

    machine: str
    node: str  # as Ray names it
    version: str
    host: Host


@dataclass(frozen=True)
class Missing:
    """The answer to a batch whose binaries, of these keys, cannot be had any more."""

    keys: tuple[str, ...]


class GpuHost:
    """A GPU and its workers. Ray calls it in several threads: one for each worker at a time, and
    one for the rest."""

    def __init__(self, setup: Setup, workers: int) -> None:
        self._binaries = setup.binaries
        command = setup.here(setup.worker)
        if setup.binaries is not None:
            command = (*command, str(setup.binaries))
        self._looks = Looks(GpuWatch.open())
        self._open = contextlib.ExitStack()
        self._pools = [
            self._open.enter_context(
                Pool(
                    [0],  # Ray lets this process see one
                    1,
                    looks=self._looks,
                    command=command,
                    deadline=setup.deadline,
                    in_turn=setup.binaries is not None,
                )
            )
            for _ in range(workers)
        ]
        self._environment: Environment | None = None

    def hello(self) -> Hello:
        """Waits for the first worker. Raises CollectionError where it cannot be started."""
        hosts: list[Host] = []
        for _ in self._pools[0].run(lambda host: hosts.append(host)):
            pass
        self._environment = hosts[0].environment
        import ray

        node = ray.get_runtime_context().get_node_id()
        return Hello(platform.node(), node, __version__, hosts[0])

    def ask(
        self, packed: bytes, references: Mapping[str, Any] | None = None
    ) -> Answer | Missing | bytes:
        """The answer to a packed request of the worker that it names; timings are packed too.
        `references` are Ray's, for binaries that this machine may lack, each to a mapping of them
        by key. Raises CollectionError where the worker cannot be started again."""
        worker, request = unpack_request(packed)
        if isinstance(request, Batch) and (missing := self._fetch(request, references or {})):
            return Missing(missing)
        answers: list[Answer] = []

        def conversation() -> Generator[Request, Answer, None]:
            answers.append((yield request))

        todo: list[Conversation] = [conversation()]
        for _ in self._pools[worker].run(lambda _: todo.pop() if todo else None):
            pass
        (answer,) = answers
        return pack_timed(answer) if isinstance(answer, Timed) else answer

    def _fetch(self, request: Batch, references: Mapping[str, Any]) -> tuple[str, ...]:
        """The keys that could not be had."""
        if self._binaries is None or self._environment is None:
            return ()
        import ray

        binaries = Binaries(self._binaries, self._environment)
        missing = {cls.key for cls in binaries.missing(request.classes)}
        for reference in {references[key] for key in missing if key in references}:
            with contextlib.suppress(ray.exceptions.RayError):  # gone with its machine
                for key, content in ray.get(reference, timeout=FETCH_SECONDS).items():
                    if key in missing:
                        binaries.put_packed(key, content)
                        missing.discard(key)
        return tuple(missing)

    def state(self) -> GpuState | None:
        """How the GPU is; None where it is not known."""
        return self._looks.look(0)

    def close(self) -> None:
        """Ends the workers."""
        self._open.close()


class CompileHost:
    """A compiler, on one core."""

    def __init__(self, setup: Setup, environment: Environment) -> None:
        assert setup.binaries is not None
        self._binaries = Binaries(setup.binaries, environment)
        self._compilers = CompilerPool(self._binaries, 1, command=setup.here(setup.compiler))
        self._compilers.__enter__()

    def ready(self) -> None:
        """Answers when Ray has found a core for it."""

    def compile(self, classes: Sequence[KernelClass]) -> tuple[tuple[str, ...], dict[str, bytes]]:
        """(keys, contents by key) of what there is when all have been compiled. Raises
        CollectionError where the compiler cannot be started."""
        self._compilers.order(classes).result()
        found = {cls.key: self._binaries.get_packed(cls.key) for cls in classes}
        contents = {key: content for key, content in found.items() if content is not None}
        return tuple(contents), contents

    def close(self) -> None:
        """Ends the compiler."""
        self._compilers.__exit__()
