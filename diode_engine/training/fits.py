"""Fits that do not depend on each other, made side by side where there is memory.

A task is divided into jobs (`fit_steps`). A pool does the jobs: here, one after the other
(`fit_pool`); in processes of this machine (`process_fits`); or on a cluster (`ray_fits`). The jobs
do not depend on the pool, so the same task gives the same model.
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from itertools import chain
from typing import Any

from diode_engine.training.checkpoints import Checkpoints
from diode_engine.training.fit_pool import FitCallback, GpuFullError, Job, Pool
from diode_engine.training.fit_steps import FitTask, Members, TaskSteps, fit_labels

_REPORTED = 10  # parts of the labels from one report to the next
_PROCESS_BYTES = 750 << 20  # what a process needs besides its job: torch and XGBoost


class FitExecutor:
    """Makes fits in this process, one after the other. A subclass has another pool."""

    slots = 1  # for how many tasks it should be asked at a time, so that no core waits

    def pool(self, task: FitTask, report: FitCallback) -> contextlib.AbstractContextManager[Pool]:
        """Return the pool for tasks of which this is the first."""
        return contextlib.nullcontext(Pool(report))

    def run(
        self,
        tasks: Iterable[FitTask],
        report: FitCallback,
        checkpoints: Checkpoints | None = None,
        begin_phase: Callable[[str], None] = lambda what: None,
    ) -> Iterator[tuple[FitTask, Members]]:
        """Yield each task with the members that were fitted, in the tasks' order. The same rows in
        the same order and the same seed give the same members.

        `begin_phase` is called while the labels of a student are made. What it or `report` raises
        ends all fits. With `checkpoints`, members that were finished before an interruption are not
        fitted again, and fits on this machine continue where they were. Raises TrainingError where
        there is no such family, there are too few problems, or a fit fails.
        """
        tasks = iter(tasks)
        first = next(tasks, None)
        if first is not None:
            with self.pool(first, report) as pool:
                yield from _Run(pool, checkpoints, begin_phase).tasks(chain([first], tasks))

    def fit_all(
        self,
        tasks: Sequence[FitTask],
        report: FitCallback,
        checkpoints: Checkpoints | None = None,
    ) -> list[Members]:
        """Return the members of all tasks (see `run`)."""
        return [members for _, members in self.run(tasks, report, checkpoints)]


IN_THIS_PROCESS = FitExecutor()


class _Run:
    """A pool that is doing the jobs of several tasks."""

    def __init__(
        self, pool: Pool, checkpoints: Checkpoints | None, begin_phase: Callable[[str], None]
    ) -> None:
        self._pool, self._checkpoints, self._begin_phase = pool, checkpoints, begin_phase
        self._plans: deque[_Plan] = deque()  # those that are begun and not yielded, in order
        self._running: dict[Future[Any], _JobOfPlan] = {}
        # Jobs for which the GPU had too little memory beside others; each is done again, alone.
        self._crowded: deque[_JobOfPlan] = deque()
        self._alone: _JobOfPlan | None = None

    def tasks(self, tasks: Iterable[FitTask]) -> Iterator[tuple[FitTask, Members]]:
        """As FitExecutor.run. Tasks are begun as there is room; the jobs of the first ones go
        first."""
        pool = self._pool
        waiting = (_Plan(task, iter(TaskSteps(task, pool, self._checkpoints))) for task in tasks)
        while True:
            while self._plans and self._plans[0].members is not None:
                plan = self._plans.popleft()
                assert plan.members is not None
                yield plan.task, plan.members
            while self._is_idle():
                if (begun := next(waiting, None)) is None:
                    break
                self._plans.append(begun)
            self._begin_jobs()
            if not self._running and not self._plans:
                return
            for future in pool.wait(self._running):
                self._end_job(future)

    def _is_idle(self) -> bool:
        """Whether there are fewer jobs than the pool can do."""
        ready = sum(len(plan.ready) for plan in self._plans)
        return ready + len(self._running) < self._pool.size

    def _begin_jobs(self) -> None:
        if self._crowded:
            if not self._running:
                self._pool.restart()
                self._alone = self._crowded.popleft()
                self._begin(self._alone)
            return
        for plan in self._plans:
            while plan.ready and self._alone is None and self._has_room(plan.ready[0].job):
                self._begin(plan.ready.popleft())

    def _has_room(self, job: Job) -> bool:
        if not self._running:
            return True
        used = sum(_PROCESS_BYTES + each.job.needed_bytes for each in self._running.values())
        return (
            len(self._running) < self._pool.size
            and used + _PROCESS_BYTES + job.needed_bytes <= self._pool.memory
        )

    def _begin(self, asked: _JobOfPlan) -> None:
        self._running[self._pool.submit(asked.job)] = asked

    def _end_job(self, future: Future[Any]) -> None:
        ended = self._running.pop(future)
        try:
            result = self._pool.result(future)
        except GpuFullError:
            if ended is self._alone:
                raise
            self._crowded.append(ended)
            return
        self._alone = None
        if ended.job.label:
            self._pool.report(ended.job.label, None)
        elif ended.plan.left % _REPORTED == 1:
            student = fit_labels(ended.plan.task.family, ended.plan.task.name)[-1]
            self._begin_phase(f"makes labels for {student}: {ended.plan.left - 1} parts left")
        ended.plan.set_result(ended.index, result)


class _Plan:
    """The jobs of a task that can be done now, `ready`, and what is known of the others."""

    def __init__(self, task: FitTask, steps: Generator[list[Job], list[Any], Members]) -> None:
        self.task = task
        self.ready: deque[_JobOfPlan] = deque()
        self.members: Members | None = None  # when the task is done
        self._steps = steps
        self._results: list[Any] = []
        self._begin_step(None)

    def set_result(self, index: int, result: Any) -> None:
        """Take the result of the job at this index of the step."""
        self._results[index] = result
        self.left -= 1
        if not self.left:
            self._begin_step(self._results)

    def _begin_step(self, results: list[Any] | None) -> None:
        try:
            jobs = self._steps.send(results)  # type: ignore[arg-type]  # None: the first step
        except StopIteration as end:
            self.members = end.value
            return
        self._results, self.left = [None] * len(jobs), len(jobs)  # left: jobs that have not ended
        self.ready.extend(_JobOfPlan(self, index, job) for index, job in enumerate(jobs))


@dataclass(frozen=True, eq=False)
class _JobOfPlan:
    plan: _Plan
    index: int  # in the step
    job: Job
