"""A collection: problems, their candidates' timings into the store, as they come."""

from __future__ import annotations

import contextlib
import logging
import os
import sys
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from diode_engine.collect.adviser import Adviser, adviser_for
from diode_engine.collect.binaries import Binaries
from diode_engine.collect.candidate_plan import CandidatePlan
from diode_engine.collect.claims import Claims
from diode_engine.collect.farm import COMPILER, Farm
from diode_engine.collect.gpu_state import GpuWatch
from diode_engine.collect.plan import Entry, Plan
from diode_engine.collect.pool import (
    DEADLINE_SECONDS,
    WORKER,
    Conversation,
    Host,
    Message,
    Pool,
    Request,
    WorkerDied,
)
from diode_engine.collect.progress import GpuProgress, Progress
from diode_engine.collect.protocol import timing, unpack_candidates
from diode_engine.core.hardware import Environment, Hardware
from diode_engine.core.problem import Candidate, Failure, Problem, Timing
from diode_engine.core.table import TimingTable
from diode_engine.errors import CollectionError
from diode_engine.inductor.lowering.kernel_class import KernelClass, SharedKeys, shared_class
from diode_engine.runs import Job

if TYPE_CHECKING:
    from diode_engine.store import Store

log = logging.getLogger(__name__)

BATCH = 12  # candidates asked for at once: what a kill of everything loses a problem
# Kernels that are timed in turn, and the work of them all together: large products would
# overstay a worker's deadline.
DIRECT_BATCH = 128
MOST_BATCH_FLOPS = 5e13
BATCHES_A_BUDGET = 4  # so that a plan can learn from the earlier ones
DIRECT_WORKERS = 6  # a GPU: one times while others get ready or wait for compilers
MOST_DEATHS = 4  # of workers on one problem, before it is left alone
HEARTBEAT_SECONDS = 2.0
LOOK_SECONDS = 0.2  # between two looks at one GPU


@dataclass(frozen=True)
class Direct:
    """Timing by kernels that are compiled once for many problems and launched directly.

    `binaries` is the folder they are kept in, `compilers` how many processes fill it (None:
    one for each core that the GPUs' workers leave).
    """

    binaries: Path
    compilers: int | None = None
    worker: tuple[str, ...] = (sys.executable, "-P", "-m", "diode_engine.collect.direct_worker")
    compiler: tuple[str, ...] = COMPILER


def cores() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1


def devices() -> tuple[int, ...]:
    """The GPUs that this process sees. Raises CollectionError where there is none."""
    import torch

    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if not count:
        raise CollectionError(
            "There is no GPU here; collect on a machine that has one, or import a dataset."
        )
    return tuple(range(count))


def collect(
    store: Store,
    plan: Plan,
    *,
    gpus: Sequence[int],
    workers_per_gpu: int | None = None,
    seed: int = 0,
    spec: Mapping[str, Any] | None = None,
    report: Callable[[Progress], None] = lambda _: None,
    direct: Direct | None = None,
    command: Sequence[str] = WORKER,
    deadline: float = DEADLINE_SECONDS,
    adviser: Callable[[Hardware], Adviser | None] = adviser_for,
    watch: Callable[[], GpuWatch | None] = GpuWatch.open,
    over: Callable[[], bool] = lambda: False,
) -> Progress:
    """Times the candidates of the plan and adds them to the store, batch by batch.

    What the store has from this environment is not timed again, so the same call goes on
    where an earlier one was stopped. `spec` is what the run says it was asked for, besides
    GPUs and workers; `adviser` gives the model that budgets are spent by, `watch` what knows
    the GPUs' clocks. With `direct` kernels are launched directly (see Direct), else each is
    compiled and timed as Inductor does it. Timings taken while a GPU was throttled are in a
    run of their own, whose spec names this one as throttled_of. A problem that another
    collection is at is left to that one (see Claims). Once `over` says so, it ends with what it
    has: a batch that is being timed is lost. An interrupt keeps what is there and is raised again.
    """
    if workers_per_gpu is None:
        # A worker spends most of its time compiling, so there is one a core, less the run's.
        most = max(1, (cores() - 1) // len(gpus))
        workers_per_gpu = most if direct is None else min(most, DIRECT_WORKERS)
    if direct is not None:
        command = (*direct.worker, str(direct.binaries))
    claims = Claims(store.location)
    asked = {
        **({"problems": len(plan), "seed": seed} if spec is None else spec),
        "gpus": list(gpus),
        "workers_per_gpu": workers_per_gpu,
        **({} if direct is None else {"direct": True}),
    }
    progress = Progress(len(plan), sum(e.size.candidates for e in plan.entries))
    try:
        with (
            Job(
                store,
                "collect",
                asked,
                when_cancelled="stopped by the user; the same command goes on",
            ) as job,
            contextlib.closing(claims),
            contextlib.ExitStack() as compilers,
        ):
            job.ending = lambda: job.tell(progress.to_dict())
            collection = _Collection(
                store, job.id, plan, progress, gpus, seed, adviser, watch(), claims
            )
            if direct is not None:
                collection.start_compilers = _farms(direct, len(gpus), compilers)
            beat = time.monotonic()
            with Pool(gpus, workers_per_gpu, command=command, deadline=deadline) as pool:
                for _ in pool.run(collection.next_conversation):
                    job.check()
                    if over():
                        break
                    if time.monotonic() - beat >= HEARTBEAT_SECONDS:
                        beat = time.monotonic()
                        collection.look()
                        job.tell(progress.to_dict())
                        report(progress)
    finally:
        report(progress)
    return progress


def _farms(
    direct: Direct, gpus: int, open_ones: contextlib.ExitStack
) -> Callable[[Environment], Farm]:
    """What starts the processes that compile for an environment, which `open_ones` ends."""
    # Of a GPU's workers one times and perhaps another gets ready; the others wait.
    spare = cores() - 2 * gpus - 1
    count = max(1, spare) if direct.compilers is None else direct.compilers

    def farm(environment: Environment) -> Farm:
        binaries = Binaries(direct.binaries, environment)
        return open_ones.enter_context(Farm(binaries, count, command=direct.compiler))

    return farm


# Timings, and the GPU that the last of them was taken on.
_Batch = Generator[Request, Message | WorkerDied, tuple[list[tuple[Candidate, Timing]], int]]


class _Collection:
    """The conversations of one run, and what they have in common."""

    def __init__(
        self,
        store: Store,
        run: int,
        plan: Plan,
        progress: Progress,
        gpus: Iterable[int],
        seed: int,
        adviser: Callable[[Hardware], Adviser | None],
        watch: GpuWatch | None,
        claims: Claims,
    ) -> None:
        self.progress = progress
        self.progress.gpus = {gpu: GpuProgress() for gpu in gpus}
        self._store = store
        self._run = run
        self._throttled_run: int | None = None
        self._todo = deque(plan.entries)
        self._claims = claims
        self._seed = seed
        self._adviser = adviser
        self._advisers: dict[Hardware, Adviser | None] = {}
        self._watch = watch
        self._looked: dict[int, float] = {}
        self._throttled: dict[int, float] = {}  # when a GPU was last seen to be
        self._known: set[int] = set()  # GPUs that the watch was told of
        self.start_compilers: Callable[[Environment], Farm] | None = None
        self._farms: dict[Environment, Farm] = {}

    # The GPUs

    def look(self, gpu: int | None = None) -> None:
        """Takes note of how the GPU is, or all of them, unless it has just been looked at."""
        if self._watch is None:
            return
        for each in self.progress.gpus if gpu is None else (gpu,):
            now = time.monotonic()
            if now - self._looked.get(each, -LOOK_SECONDS) < LOOK_SECONDS:
                continue
            self._looked[each] = now
            state = self._watch.state(each)
            if state is not None:
                self.progress.gpus[each].add(self.progress.seconds, state)
                if state.throttled:
                    self._throttled[each] = now

    def _run_for(self, gpu: int, since: float) -> int:
        """The run for timings taken on this GPU since then."""
        self.look(gpu)
        if self._throttled.get(gpu, -1.0) < since - LOOK_SECONDS:
            return self._run
        if self._throttled_run is None:
            self._throttled_run = self._store.start_run("collect", {"throttled_of": self._run})
            self._store.finish_run(
                self._throttled_run,
                "done",
                f"timings of run {self._run} that were taken while a GPU was throttled",
            )
        return self._throttled_run

    # The conversations

    def next_conversation(self, host: Host) -> Conversation | None:
        """The next problem's that no other collection is at; None when all have been begun."""
        if host.gpu not in self._known:
            self._known.add(host.gpu)
            if self._watch is not None:
                self._watch.add(host.gpu, host.name)
                self.look(host.gpu)
        for _ in range(len(self._todo)):
            entry = self._todo.popleft()
            if self._claims.take(entry.problem, host.environment):
                return self._claimed(entry, host.environment)
            self._todo.append(entry)  # the other may be done with it later
        self.progress.problems_elsewhere = len(self._todo)
        return None

    def _claimed(self, entry: Entry, environment: Environment) -> Conversation:
        try:
            yield from self._conversation(entry, environment)
        finally:
            self._claims.give_back(entry.problem, environment)

    def _conversation(self, entry: Entry, environment: Environment) -> Conversation:
        progress, problem = self.progress, entry.problem
        expected = entry.size.candidates
        answer = yield {"problem": problem.to_dict()}
        if isinstance(answer, WorkerDied) or "refused" in answer:
            log.info("%s is left out: %s", problem, answer)
            progress.workers_lost += isinstance(answer, WorkerDied)
            progress.problems_refused += 1
            progress.expect(expected, 0)
            return
        adviser = self._adviser_for(environment.hardware)
        farm = self._farm_for(environment)
        keys = SharedKeys(problem)
        plan = CandidatePlan(
            problem,
            unpack_candidates(answer["offered"]),
            unpack_candidates(answer["default"]),
            environment.hardware,
            selection=entry.selection,
            done=self._store.timed(problem, environment),
            seed=self._seed,
            advise=lambda rest: None if adviser is None else adviser.advise(problem, rest),
            at_hand=lambda c: farm is not None and farm.has(keys(c)),
        )
        progress.expect(expected, plan.left)
        deaths = 0
        size = BATCH
        if farm is not None:
            size = min(DIRECT_BATCH, int(MOST_BATCH_FLOPS / problem.flops))
            if entry.selection.budget is not None:
                size = min(size, plan.left // BATCHES_A_BUDGET)
            size = max(BATCH, size)
        left = plan.left
        while deaths < MOST_DEATHS and (batch := plan.next_batch(size)):
            progress.expect(left, len(batch) + plan.left)  # fewer where compiles are limited
            left = plan.left
            if farm is not None:
                yield from self._compiled([shared_class(problem, c) for c in batch], farm)
            began = time.monotonic()
            rows, gpu = yield from self._batch(problem, batch)
            run = self._run_for(gpu, began)
            self._store.add(
                run, TimingTable.from_records((problem, c, environment, t) for c, t in rows)
            )
            done = progress.gpus[gpu]
            done.name, done.driver = environment.hardware.name, environment.driver
            done.throttled += len(rows) if run != self._run else 0
            for candidate, timed in rows:
                plan.record(candidate, timed.time_us)
                progress.timed(timed.failure, done)
                deaths += timed.failure in (Failure.CRASH, Failure.TIMEOUT)
        progress.expect(left, 0)  # where it was left alone
        progress.problems_done += 1

    def _adviser_for(self, hardware: Hardware) -> Adviser | None:
        if hardware not in self._advisers:
            self._advisers[hardware] = self._adviser(hardware)
        return self._advisers[hardware]

    def _farm_for(self, environment: Environment) -> Farm | None:
        """The compilers, where kernels are launched directly."""
        if self.start_compilers is None:
            return None
        if environment not in self._farms:
            self._farms[environment] = self.start_compilers(environment)
        return self._farms[environment]

    def _compiled(
        self, classes: list[KernelClass | None], farm: Farm
    ) -> Generator[Request, Message | WorkerDied, None]:
        """Waits until there are binaries for a batch."""
        order = farm.order([cls for cls in classes if cls is not None])
        while order.pending:
            answer = yield order
            self.progress.workers_lost += isinstance(answer, WorkerDied)
        order.result()

    def _one_by_one(self, problem: Problem, batch: list[Candidate]) -> _Batch:
        """Asks for each by itself, since one of them ended a worker that timed all in turn."""
        timings: list[tuple[Candidate, Timing]] = []
        deaths = 0
        for candidate in batch:
            more, gpu = yield from self._batch(problem, [candidate])
            timings += more
            deaths += any(t.failure in (Failure.CRASH, Failure.TIMEOUT) for _, t in more)
            if deaths == MOST_DEATHS:
                break
        return timings, gpu

    def _batch(self, problem: Problem, batch: list[Candidate]) -> _Batch:
        """Asks for a batch, again for the rest of it if the worker dies; the timings, and the
        GPU that the last of them was taken on."""
        timings: list[tuple[Candidate, Timing]] = []
        begun: int | None = None
        request = {"problem": problem.to_dict(), "candidates": [c.to_dict() for c in batch]}
        answer = yield request
        while True:
            gpu: int = answer.gpu if isinstance(answer, WorkerDied) else answer["gpu"]
            if isinstance(answer, WorkerDied):
                self.progress.workers_lost += 1
                if begun is None and not timings:
                    if self.start_compilers is not None and len(batch) > 1:
                        return (yield from self._one_by_one(problem, batch))
                    begun = 0  # it died before the first: do not insist
                if begun is not None:
                    reason = Failure.TIMEOUT if answer.timed_out else Failure.CRASH
                    timings.append((batch[begun], Timing(failure=reason)))
                    begun = None
                if rest := batch[len(timings) :]:
                    more, gpu = yield from self._batch(problem, rest)
                    timings += more
                return timings, gpu
            if "done" in answer or "refused" in answer:
                return timings, gpu
            if "begin" in answer:
                begun = answer["begin"]
            elif "timing" in answer:
                candidate = batch[answer["timing"]]
                timings.append((candidate, timing(answer)))
                if answer["failure"] is not None:
                    log.info("%s on %s: %s", candidate, problem, answer["reason"])
                begun = None
            answer = yield None
