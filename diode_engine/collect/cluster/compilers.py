"""Compilers on the cores of a Ray cluster."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from functools import partial
from typing import Any

from diode_engine.collect.cluster.hosts import compile_classes
from diode_engine.collect.local import Setup
from diode_engine.collect.orders import Compilers, Job
from diode_engine.core.hardware import Environment
from diode_engine.errors import CollectionError
from diode_engine.inductor.lowering.kernel_class import KernelClass
from diode_engine.ray_connection import error_line

MAX_LOSSES = 3  # of processes that had the same job; then nothing more is compiled


class RayCompilers(Compilers):
    """Compiles for one environment, on the cores of a cluster that nothing else has.

    Each job is a task, which Ray begins again where its process or its result is lost. What is
    compiled stays in Ray's object store, and the machines of the GPUs take it from there. This
    process has only the keys of the classes.
    """

    def __init__(self, ray: Any, setup: Setup, environment: Environment) -> None:
        super().__init__()
        self._ray = ray
        self._setup = setup
        self._environment = environment
        self._compile = ray.remote(compile_classes).options(
            num_cpus=1, num_returns=2, max_retries=MAX_LOSSES - 1
        )
        self._references: dict[str, Any] = {}  # Ray's, by the key of a compiled class
        self._running: set[Any] = set()  # Ray's references to the ends of tasks

    def _missing(self, classes: Sequence[KernelClass]) -> list[KernelClass]:
        return [cls for cls in dict.fromkeys(classes) if cls.key not in self._references]

    def _count(self) -> int:
        return int(self._ray.cluster_resources().get("CPU", 1))

    def _submit(self, job: Job) -> None:
        end, binaries = self._compile.remote(self._setup, self._environment, job)
        self._running.add(end)
        end.future().add_done_callback(partial(self._note_end, job, end, binaries))

    def references(self, classes: Sequence[KernelClass]) -> Mapping[str, Any]:
        """Ray's references to the binaries of these classes, which are compiled, by key."""
        return {cls.key: self._references[cls.key] for cls in classes}

    def end(self) -> None:
        """Ends all tasks at once."""
        for end in list(self._running):
            self._ray.cancel(end, force=True)

    def _note_end(self, job: Job, end: Any, binaries: Any, ended: Future[None]) -> None:
        """Is called in a thread of Ray's."""
        self._running.discard(end)
        error = ended.exception()
        if error is not None:
            self._fail(CollectionError(f"Nothing more can be compiled: {error_line(error)}"))
            return
        for cls in job:
            self._references[cls.key] = binaries
            self._note_compiled(cls.key)
