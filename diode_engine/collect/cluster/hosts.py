"""What Ray runs on the machines of a cluster for a collection: a process for each GPU, and tasks
that compile. Both keep worker processes as a collection on one machine does."""

from __future__ import annotations

import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from diode_engine.collect.binaries import Binaries
from diode_engine.collect.executor import Answer, BatchRequest, Host, SpaceRequest
from diode_engine.collect.gpu_state import GpuState, GpuWatch
from diode_engine.collect.local import Setup
from diode_engine.collect.processes.compiler_pool import CompilerPool
from diode_engine.core.hardware import Environment
from diode_engine.inductor.lowering.kernel_class import KernelClass
from diode_engine.version import __version__

FETCH_SECONDS = 60.0


@dataclass(frozen=True)
class Hello:
    """The first answer of a GPU's process."""

    machine: str  # the machine's host name
    node: str  # Ray's id of the machine
    version: str  # of Diode there
    host: Host


class GpuHost:
    """A GPU and its workers. Ray makes calls in several threads at a time: at most one for each
    worker, and others for `hello`, `state` and `close`."""

    def __init__(self, setup: Setup, workers: int) -> None:
        self._binaries = setup.binaries
        self._watch = GpuWatch.open()
        # 0 is the one GPU that Ray lets this process see.
        self._workers = [setup.make_worker(0, self._watch) for _ in range(workers)]
        for worker in self._workers:
            worker.start()
        self._environment: Environment | None = None

    def hello(self) -> Hello:
        """Waits for the first worker, and says what it found. Raises CollectionError where it
        cannot be started."""
        host = self._workers[0].host()
        self._environment = host.environment
        import ray

        node = ray.get_runtime_context().get_node_id()
        return Hello(platform.node(), node, __version__, host)

    def ask(
        self, worker: int, request: SpaceRequest | BatchRequest, references: Mapping[str, Any]
    ) -> Answer:
        """The answer of the worker with this number. `references` has, by the keys of the request's
        classes, Ray's references to mappings of key to binary. Raises CollectionError where the
        worker has died and cannot be started again, and what `_fetch` raises."""
        if isinstance(request, BatchRequest):
            self._fetch(request.classes, references)
        return self._workers[worker].ask(request)

    def _fetch(self, classes: Sequence[KernelClass], references: Mapping[str, Any]) -> None:
        """Stores the binaries of these classes that this machine lacks. Raises Ray's errors."""
        if self._binaries is None or self._environment is None:
            return
        import ray

        binaries = Binaries(self._binaries, self._environment)
        for reference in {references[cls.key] for cls in binaries.missing(classes)}:
            for key, content in ray.get(reference, timeout=FETCH_SECONDS).items():
                binaries.put_packed(key, content)

    def state(self) -> GpuState | None:
        """The GPU's state; None where it is not known, or was read a moment ago."""
        return self._watch.read(0)

    def close(self) -> None:
        """Ends the workers."""
        for worker in self._workers:
            worker.close()


def compile_classes(
    setup: Setup, environment: Environment, classes: Sequence[KernelClass]
) -> tuple[None, dict[str, bytes]]:
    """Compiles the classes on one core, and returns, after None, the contents of their files by
    their keys (see `Binaries.put_packed`). Raises CollectionError where the compiler cannot be
    started."""
    assert setup.binaries is not None
    binaries = Binaries(setup.binaries, environment)
    for compiled in _compiler(setup, environment).order(classes):
        compiled.result()
    found = {cls.key: binaries.get_packed(cls.key) for cls in classes}
    return None, {key: content for key, content in found.items() if content is not None}


@cache
def _compiler(setup: Setup, environment: Environment) -> CompilerPool:
    """The compiler of this process, which ends with it."""
    return setup.make_compilers(environment, 1)
