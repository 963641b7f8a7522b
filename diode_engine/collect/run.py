"""A collection: the candidates of problems are timed, and the timings are written to the store as
they come."""

from __future__ import annotations

import contextlib
import logging
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import InitVar, dataclass
from functools import cache, partial
from typing import TYPE_CHECKING, Any

from diode_engine.collect.executor import (
    BatchAnswer,
    BatchRequest,
    Executor,
    Host,
    Refusal,
    Session,
    SpaceAnswer,
    SpaceRequest,
)
from diode_engine.collect.planning.adviser import Adviser, adviser_for
from diode_engine.collect.planning.candidate_plan import CandidatePlan
from diode_engine.collect.planning.plan import Plan, PlannedProblem
from diode_engine.collect.processes.gpu_worker import MAX_DEATHS
from diode_engine.collect.progress import GpuProgress, Progress
from diode_engine.core.candidate import Candidate
from diode_engine.core.content_key import content_key
from diode_engine.core.hardware import Environment, Hardware
from diode_engine.core.problem import Problem
from diode_engine.core.table import TimingTable
from diode_engine.core.timing import Failure
from diode_engine.inductor.lowering.kernel_class import KernelClass, SharedKeys, shared_classes
from diode_engine.runs import Job
from diode_engine.store.backends import NumberClaims, backend_of

if TYPE_CHECKING:
    from diode_engine.store import Store

log = logging.getLogger(__name__)

BATCH = 12  # candidates of a request; if the run is killed, these are lost for each worker
# With direct launches: how many candidates a request has, and how many flops they may have
# together, since a request must end before the worker's deadline.
DIRECT_BATCH = 128
MAX_BATCH_FLOPS = 5e13
BATCHES_A_BUDGET = 4  # a budget is divided, so that the plan can learn from the earlier batches
HEARTBEAT_SECONDS = 2.0


def collect(
    store: Store,
    plan: Plan,
    executor: Executor,
    *,
    seed: int = 0,
    spec: Mapping[str, Any] | None = None,
    report: Callable[[Progress], None] = lambda _: None,
    adviser: Callable[[Hardware], Adviser | None] = adviser_for,
    should_stop: Callable[[], bool] = lambda: False,
) -> Progress:
    """Times the candidates of the plan on the executor's GPUs and adds the timings to the store as
    they come. What the store has from this environment is not timed again, so the same call
    continues where an earlier one was stopped.

    `spec` is what the run says it was asked for, besides the executor's own; `adviser` returns the
    model that decides how budgets are spent, for a device. Timings that were taken while a GPU was
    throttled go into a run of their own, whose spec names this one as throttled_of. A problem that
    another collection is timing is left to that one (see NumberClaims). When `should_stop` returns
    true, the collection ends with what it has; batches that are being timed then are lost. An
    interrupt keeps the timings that have come, and is raised again. The executor is started and
    ended here.
    """
    claims = backend_of(store.location).claims()
    asked = {**({"problems": len(plan), "seed": seed} if spec is None else spec), **executor.spec}
    progress = Progress(len(plan), sum(e.size.candidates for e in plan.entries))
    try:
        with (
            Job(
                store,
                "collect",
                asked,
                when_cancelled="stopped by the user; run the command again to resume",
            ) as job,
            contextlib.closing(claims),
        ):
            job.ending = lambda: job.tell(progress.to_dict())
            with executor:
                collection = _Collection(
                    store, job.id, plan, progress, executor, seed, adviser, claims
                )
                beat = time.monotonic()
                try:
                    for _ in executor.run(collection.next_session):
                        job.check()
                        if should_stop():
                            break
                        collection.writer.write_if_due()
                        if time.monotonic() - beat >= HEARTBEAT_SECONDS:
                            beat = time.monotonic()
                            collection.note_states()
                            job.tell(progress.to_dict())
                            report(progress)
                finally:
                    collection.writer.write()
    finally:
        report(progress)
    return progress


def claim_number(problem: Problem, environment: Environment) -> int:
    """The number under 2⁶⁰ that a collection claims while it times this problem there."""
    return int(content_key("claim", {"of": problem.key, "in": environment.key})[:15], 16)


@dataclass
class _Collection:
    """The sessions of one run, and what they share."""

    store: Store
    run: int
    plan: InitVar[Plan]
    progress: Progress
    executor: Executor
    seed: int
    adviser: Callable[[Hardware], Adviser | None]
    claims: NumberClaims

    def __post_init__(self, plan: Plan) -> None:
        self.progress.gpus = {gpu: GpuProgress() for gpu in self.executor.gpus}
        self.writer = TimingWriter(self.store)
        self._todo = deque(plan.entries)
        self._throttled_run: int | None = None
        self._adviser_for = cache(self.adviser)

    def note_states(self) -> None:
        """Takes note of the GPUs' states."""
        for gpu, state in self.executor.states().items():
            self._gpu(gpu).add(self.progress.seconds, state)

    def _gpu(self, number: int) -> GpuProgress:
        """The progress of a GPU. It is made when the GPU is first mentioned: in a cluster, a GPU
        may go on with another one's session before it gets its own."""
        return self.progress.gpus.setdefault(number, GpuProgress())

    def _run_for(self, batch: BatchAnswer) -> int:
        """The run that the batch's timings are written to."""
        if not batch.throttled:
            return self.run
        if self._throttled_run is None:
            self._throttled_run = self.store.start_run("collect", {"throttled_of": self.run})
            self.store.finish_run(
                self._throttled_run,
                "done",
                f"timings of run {self.run} that were taken while a GPU was throttled",
            )
        return self._throttled_run

    def next_session(self, host: Host) -> Session | None:
        """The session on the next problem that no other collection has; None when all have
        been begun."""
        gpu = self._gpu(host.gpu)
        gpu.node = host.node
        for _ in range(len(self._todo)):
            entry = self._todo.popleft()
            if self.claims.take(claim_number(entry.problem, host.environment)):
                return self._claimed(entry, host.environment)
            self._todo.append(entry)  # by then the other collection may be done with it
        self.progress.problems_elsewhere = len(self._todo)
        return None

    def _claimed(self, entry: PlannedProblem, environment: Environment) -> Session:
        try:
            yield from self._session(entry, environment)
        finally:
            # The claim ends when the problem's timings are in the store: a collection that takes
            # the problem then must find all of them.
            number = claim_number(entry.problem, environment)
            self.writer.then(partial(self.claims.give_back, number))

    def _session(self, entry: PlannedProblem, environment: Environment) -> Session:
        progress, problem = self.progress, entry.problem
        expected = entry.size.candidates
        answer = yield SpaceRequest(problem)
        if not isinstance(answer, SpaceAnswer):
            assert isinstance(answer, Refusal)
            log.info("%s is left out: %s", problem, answer.reason)
            progress.workers_lost += answer.workers_lost
            progress.problems_refused += 1
            progress.expect(expected, 0)
            return
        adviser = self._adviser_for(environment.hardware)
        compilers = self.executor.compilers(environment)
        keys = SharedKeys(problem, answer.offered)
        plan = CandidatePlan(
            problem,
            answer.offered,
            answer.default,
            environment.hardware,
            selection=entry.selection,
            done=self.store.timed(problem, environment),
            seed=self.seed,
            advise=lambda rest: None if adviser is None else adviser(problem, rest),
            is_compiled=lambda c: compilers is not None and compilers.has(keys(c)),
        )
        progress.expect(expected, plan.left)
        deaths, left = 0, plan.left
        size = BATCH if compilers is None else _direct_batch(entry, left)
        while deaths < MAX_DEATHS and (batch := plan.next_batch(size)):
            progress.expect(left, len(batch) + plan.left)  # fewer where compiles are limited
            left = plan.left
            classes: tuple[KernelClass, ...] = ()
            if compilers is not None:
                found = shared_classes(problem, batch)
                classes = tuple(cls for cls in found if cls is not None)
                ordered = compilers.order(classes)
                yield ordered
                for compiled in ordered:
                    compiled.result()
            answer = yield BatchRequest(problem, tuple(batch), classes)
            if isinstance(answer, Refusal):
                log.warning("The rest of %s is not timed: %s", problem, answer.reason)
                break
            assert isinstance(answer, BatchAnswer)
            for place, timing in answer.timings:
                plan.record(batch[place], timing.time_us)
                deaths += timing.failure in (Failure.CRASH, Failure.TIMEOUT)
            self._add(answer, problem, batch, environment)
        progress.expect(left, 0)  # where the problem was given up
        progress.problems_done += 1

    def _add(
        self, answer: BatchAnswer, problem: Problem, batch: Sequence[Candidate],
        environment: Environment,
    ) -> None:  # fmt: skip
        """Adds the timings of a batch to those that are written, and to the progress."""
        progress, done = self.progress, self._gpu(answer.gpu)
        progress.workers_lost += answer.workers_lost
        if answer.state is not None:
            done.add(progress.seconds, answer.state)
        run = self._run_for(answer)
        records = ((problem, batch[i], environment, timing) for i, timing in answer.timings)
        self.writer.add(run, TimingTable.from_records(records))
        done.name, done.driver = environment.hardware.name, environment.driver
        done.throttled += len(answer.timings) if run != self.run else 0
        for _, timing in answer.timings:
            progress.add_timing(timing.failure, done)


def _direct_batch(entry: PlannedProblem, left: int) -> int:
    """The number of candidates of a request with direct launches; `left` are planned."""
    size = min(DIRECT_BATCH, int(MAX_BATCH_FLOPS / entry.problem.flops))
    if entry.selection.budget is not None:
        size = min(size, left // BATCHES_A_BUDGET)
    return max(BATCH, size)


# Between two transactions, since a transaction costs as much as writing a thousand rows. A
# collection that is killed may lose what came in this time, and the batches that are being timed.
WRITE_SECONDS = 0.5


class TimingWriter:
    """Writes timings at once, or when WRITE_SECONDS have passed since the last write."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._tables: dict[int, list[TimingTable]] = {}  # by run
        self._then: list[Callable[[], None]] = []
        self._written = 0.0  # by time.monotonic()

    def add(self, run: int, table: TimingTable) -> None:
        """Adds timings of a run. Raises StoreError, as `write` does."""
        self._tables.setdefault(run, []).append(table)
        self.write_if_due()

    def then(self, call: Callable[[], None]) -> None:
        """Makes this call when everything that was added before is written."""
        self._then.append(call)
        if not self._tables:
            self.write()

    def write_if_due(self) -> None:
        """Writes, if WRITE_SECONDS have passed since the last write. Raises StoreError."""
        if time.monotonic() - self._written >= WRITE_SECONDS:
            self.write()

    def write(self) -> None:
        """Writes what was added and is not written yet. Raises StoreError."""
        for run in list(self._tables):
            self._store.add(run, TimingTable.joined(self._tables[run]))
            del self._tables[run]
            self._written = time.monotonic()
        calls, self._then = self._then, []
        for call in calls:
            call()
