"""Fits side by side on the cores of this machine, in worker processes.

The processes do the parts of fits: a member, or a share of what a student's teachers are asked.
They share the rows to learn by files. What is fitted is what one process fits, to the last bit: the
parts do not depend on how many processes there are.
"""

from __future__ import annotations

import contextlib
import math
import shutil
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path

from diode_engine.collect.local import cores
from diode_engine.collect.processes import protocol
from diode_engine.collect.processes.scratch import Scratch
from diode_engine.collect.processes.supervisor import (
    Event,
    Lost,
    Received,
    Start,
    Supervisor,
    Worker,
    last_words,
)
from diode_engine.errors import TrainingError
from diode_engine.models.artifact import load_member
from diode_engine.models.coverage import Coverage
from diode_engine.models.families import FAMILIES
from diode_engine.models.protocol import TimingModel
from diode_engine.training import fit_jobs
from diode_engine.training.checkpoints import Checkpoints
from diode_engine.training.fit import MemberFits, families_of, made_from
from diode_engine.training.fits import FitTask, LocalFits, Members, TaskProgressCallback
from diode_engine.training.lessons import MAX_LESSONS, Draws, asked_problems
from diode_engine.training.memory import available_bytes
from diode_engine.training.settings import TrainingSettings

WORKER = (sys.executable, "-P", "-m", "diode_engine.training.fit_worker")
# Fewer timings are fitted in less time than the processes take to start.
MIN_ROWS = 20_000
_LESSONS = 32  # problems of a job
_ANSWERS = 1 << 15  # rows of a job: whole blocks of a network's
# What a process needs, beside its rows: torch and XGBoost. Of the rows a fit makes a copy, and for
# a moment a second one; a student also puts its lessons together.
_PROCESS_BYTES = 750 << 20
_COPIES, _STUDENT_COPIES = 2, 4
_PREFIX = "diode-fits-"


class ProcessFits:
    """`processes` on this machine (None: one for each core that this process may use), as many of
    them at a time as the free memory allows. Fits of fewer than `min_rows` timings are made in this
    process. Where fewer parts can be done than there are cores, each has several threads."""

    slots = 1  # tasks: a search tries the settings that it tries in one process
    divides_tasks = True

    def __init__(
        self,
        processes: int | None = None,
        *,
        min_rows: int = MIN_ROWS,
        command: Sequence[str] = WORKER,
    ) -> None:
        self._processes = cores() if processes is None else processes
        self._min_rows = min_rows
        self._command = command

    def run(
        self,
        tasks: Iterable[FitTask],
        report: TaskProgressCallback,
        checkpoints: Checkpoints | None = None,
    ) -> Iterator[tuple[FitTask, Members]]:
        """As FitExecutor.run. Raises TrainingError also where a process dies."""
        tasks = iter(tasks)
        first = next(tasks, None)
        if first is None:
            return
        tasks = chain([first], tasks)
        if self._processes < 2 or len(first.learned) < self._min_rows:
            yield from LocalFits().run(tasks, report, checkpoints)
            return
        with contextlib.ExitStack() as stack:
            with _for_fits():
                scratch = Scratch(_PREFIX)
                stack.callback(scratch.close)
                processes = stack.enter_context(_Processes(self._command, self._processes))
            plans = (
                _Plan(place, task, scratch.path / str(place), report, checkpoints)
                for place, task in enumerate(tasks)
            )
            yield from _run(plans, processes)


@contextlib.contextmanager
def _for_fits() -> Iterator[None]:
    """While processes and files for fits are made: raises TrainingError where that fails."""
    try:
        yield
    except OSError as error:
        raise TrainingError(fit_jobs.files_failed(error)) from error


# Takes what a job's process says, and yields the answers that processes wait for.
_Answer = tuple[Worker, protocol.Message]
_Hearer = Callable[[Worker, protocol.Message], Iterator[_Answer]]


@dataclass(eq=False)
class _Job:
    """A part of a fit, for one process."""

    name: str  # in errors
    message: Callable[[], protocol.Message]  # that asks for it; called when it begins
    bytes: Callable[[], int]  # of memory that it needs, besides the process's own
    done: Callable[[], None]  # called when it is done
    said: _Hearer
    alone: bool = False  # nothing may run beside it


class _Plan:
    """What is to be done for a task, in this order: its members, the lessons of a student, the
    student. `ready` are the jobs that can be done now."""

    def __init__(
        self,
        place: int,
        task: FitTask,
        folder: Path,
        report: TaskProgressCallback,
        checkpoints: Checkpoints | None,
    ) -> None:
        self.task = task
        self.ready: deque[_Job] = deque()
        self.members: Members | None = None  # when it is done
        self._place, self._report, self._checkpoints = place, report, checkpoints
        self._folder, self._prepared = folder, False
        self._families = families_of(task.family)
        self._settings = task.settings or TrainingSettings()
        self._rows, self._row_bytes = 0, 0
        self._teacher: list[tuple[str, Path]] = []  # the family and the file of each member
        self._asked = 0  # problems, of a teacher
        self._lessons = 0  # jobs that are not done
        self._begin()

    def _begin(self) -> None:
        task = self.task
        places = range(len(self._families)) if task.member is None else [task.member]
        self._what = {}
        if self._checkpoints is not None:
            key, seed, _, settings = made_from(task.learned, task.seed, 0, self._settings)
            self._what = {place: [key, seed, place, settings] for place in places}
        teaches = [place for place in places if not FAMILIES[self._families[place]].teacher]
        # At most one: a family learns from one teacher, or from none.
        self._student = next((place for place in places if place not in teaches), None)
        self._made: dict[int, TimingModel] = {}
        for place in places:
            if (model := self._finished(place)) is not None:
                self._made[place] = model
        if self._student is not None and self._student in self._made:
            self.members = (self._made[self._student],)
            return
        self._left = [place for place in teaches if place not in self._made]
        for place in self._left:
            self.ready.append(self._fit(place))
        self._teachers = teaches
        if not self._left:
            self._go_on()

    def _finished(self, place: int) -> TimingModel | None:
        if self._checkpoints is None:
            return None
        family = self._families[place]
        return self._checkpoints.finished(self._what[place], family, self._settings.feature_set)

    def _prepare(self) -> None:
        """Writes the rows for the processes."""
        if self._prepared:
            return
        self._prepared = True
        task = self.task
        fits = MemberFits(task.learned, task.family, seed=task.seed, settings=self._settings)
        with _for_fits():
            self._folder.mkdir()
            fit_jobs.save_examples(self._folder, fit_jobs.TRAIN, fits.train)
            fit_jobs.save_examples(self._folder, fit_jobs.HELD_OUT, fits.held_out)
        self._rows = len(fits.train.x)
        self._row_bytes = fits.train.x.nbytes // self._rows

    def _fit(self, place: int) -> _Job:
        family = self._families[place]
        label = f"{family}-{place}"
        made = self._folder / f"{label}.model"
        student = place == self._student

        def message() -> protocol.Message:
            self._prepare()
            keep = None
            if self._checkpoints is not None:
                keep = (self._checkpoints, self._what[place])
            settings = replace(self._settings.of(family), seed=self.task.seed + place)
            return fit_jobs.fit_job(
                family, settings, self._settings.features, self._folder, made,
                taught_by=self._folder if student else None,
                teacher=self._teacher if student else (), keep=keep,
            )  # fmt: skip

        def need() -> int:
            self._prepare()
            if not student:
                return _COPIES * self._rows * self._row_bytes
            rows = self._asked * MAX_LESSONS + self._rows
            return _STUDENT_COPIES * rows * self._row_bytes

        def said(worker: Worker, message: protocol.Message) -> Iterator[_Answer]:
            self._report(self._place, label, fit_jobs.progress_of(message))
            return iter(())

        def done() -> None:
            model = load_member(family, made.read_bytes(), self._settings.feature_set)
            self._made[place] = model
            if student:
                self._end((model,))
                return
            self._left.remove(place)
            if not self._left:
                self._go_on()

        return _Job(f"the fit {label}", message, need, done, said)

    def _go_on(self) -> None:
        """All that others learn from is fitted."""
        if self._student is None:
            self._end(tuple(self._made[place] for place in self._teachers))
            return
        self._prepare()
        task, folder, version = self.task, self._folder, self._settings.features
        given = task.teacher or tuple(self._made[place] for place in self._teachers)
        teacher = [(model.family, folder / f"teacher-{i}") for i, model in enumerate(given)]
        self._teacher = teacher
        with _for_fits():
            for (_, path), model in zip(teacher, given, strict=True):
                path.write_bytes(model.to_bytes())
        coverage = Coverage.of(task.learned)
        environment = task.learned.environments[int(task.learned.environment[0])]
        asked = asked_problems(task.learned, coverage, self._settings.lessons, seed=task.seed)
        self._asked = len(asked)
        draws = _DrawsInOrder(task.seed)
        for place, part in enumerate(fit_jobs.row_parts(len(asked), _LESSONS)):
            message = fit_jobs.lessons_job(
                teacher, version, asked[part], coverage.kernels, environment.torch,
                fit_jobs.part_file(folder, "lessons", place),
            )  # fmt: skip
            self._ask("lessons", message, draws.counted(place))
        for place, part in enumerate(fit_jobs.row_parts(self._rows, _ANSWERS)):
            made = fit_jobs.part_file(folder, "answers", place)
            message = fit_jobs.answers_job(teacher, version, folder, part, made)
            self._ask("answers", message, lambda *_: iter(()))

    def _ask(self, name: str, message: protocol.Message, said: _Hearer) -> None:
        """Adds a job without which the student cannot be fitted."""
        self._lessons += 1

        def done() -> None:
            self._lessons -= 1
            if not self._lessons:
                assert self._student is not None
                self.ready.append(self._fit(self._student))

        self.ready.append(_Job(f"making {name}", lambda: message, lambda: 0, done, said))

    def _end(self, members: Members) -> None:
        self.members = members
        shutil.rmtree(self._folder, ignore_errors=True)


class _DrawsInOrder:
    """The random draws of a task's lessons: the order is that of the jobs, whenever they ask."""

    def __init__(self, seed: int) -> None:
        self._draws = Draws(seed)
        self._waiting: dict[int, _Answer] = {}
        self._next = 0

    def counted(self, place: int) -> _Hearer:
        """For the job of this place: hears what was counted, and answers all whose turn it is."""

        def said(worker: Worker, message: protocol.Message) -> Iterator[_Answer]:
            self._waiting[place] = worker, message
            while self._next in self._waiting:
                asking, counts = self._waiting.pop(self._next)
                self._next += 1
                yield asking, fit_jobs.drawn_message(self._draws.of, fit_jobs.counted(counts))

        return said


class _Processes:
    """At most `most` worker processes, with as many threads in all. A context manager: leaving it
    ends them at once."""

    def __init__(self, command: Sequence[str], most: int) -> None:
        self._command, self._most = command, most
        self._supervisor = Supervisor(_PREFIX, deadline=math.inf)
        self._memory = available_bytes()
        self._at: dict[Worker, tuple[_Job, int, int]] = {}  # with its threads and bytes
        self._idle: dict[Worker, int] = {}  # with its threads
        # Jobs for which the GPU had too little memory beside others: they are done again, alone.
        self.crowded: deque[_Job] = deque()

    def __enter__(self) -> _Processes:
        return self

    def __exit__(self, *_: object) -> None:
        self._supervisor.close()

    @property
    def busy(self) -> int:
        return len(self._at)

    @property
    def free(self) -> int:
        """Cores that nothing runs on."""
        return self._most - sum(threads for _, threads, _ in self._at.values())

    def takes(self, job: _Job) -> bool:
        """Whether it can begin now: there is memory for it, and no job that must be alone."""
        if not self._at:
            return True
        if job.alone or any(other.alone for other, *_ in self._at.values()):
            return False
        used = sum(size for *_, size in self._at.values())
        return used + _PROCESS_BYTES + job.bytes() <= self._memory

    def begin(self, job: _Job, threads: int) -> None:
        size = _PROCESS_BYTES + job.bytes()
        if job.alone:  # so that idle processes keep no memory of the GPU
            for idle in self._idle:
                self._end(idle)
            self._idle.clear()
        worker = next((w for w, count in self._idle.items() if count == threads), None)
        if worker is None:
            if self._idle:  # of other numbers of threads; none is kept beside those that work
                self._end(self._idle.popitem()[0])
            with _for_fits():
                environment = {"OMP_NUM_THREADS": str(threads)}
                worker = self._supervisor.start(Start(self._command, "Fits", environment))
        else:
            del self._idle[worker]
        self._at[worker] = job, threads, size
        self._supervisor.send(worker, job.message())

    def _end(self, worker: Worker) -> None:
        self._supervisor.workers.remove(worker)
        worker.kill()

    def step(self) -> None:
        """Waits for what processes say, and hears it."""
        for event in self._supervisor.step():
            self._hear(event)

    def _hear(self, event: Event) -> None:
        if isinstance(event, Lost):
            job, *_ = self._at.get(event.worker, (None,))
            # One that was killed while it started has said nothing.
            if not event.worker.ready and event.worker.log.stat().st_size:
                said = last_words(event.worker.log)
                raise TrainingError(f"The processes for fits cannot be started; one said: {said}")
            raise TrainingError(
                f"The process of {'the fits' if job is None else job.name} was killed, perhaps for "
                "want of memory: end other programs and train again. What is finished is kept."
            )
        assert isinstance(event, Received)
        message = event.message
        if "ready" in message:
            return
        job, threads, _ = self._at[event.worker]
        if "failed" in message:
            raise TrainingError(message["failed"])
        if "crowded" in message:
            if job.alone:
                raise TrainingError(message["crowded"])
            del self._at[event.worker]
            self._end(event.worker)  # it may keep memory of the GPU
            job.alone = True
            self.crowded.append(job)
            return
        if "done" in message:
            del self._at[event.worker]
            self._idle[event.worker] = threads
            job.done()
            return
        for worker, answer in job.said(event.worker, message):
            self._supervisor.send(worker, answer)


def _threads(free: int, ready: int) -> int:
    """Of one of the jobs that are ready, on so many free cores: one, or half of its share, since
    threads of one fit wait for each other, and much longer where other programs run too."""
    return max(1, free // ready // 2)


def _run(plans: Iterator[_Plan], processes: _Processes) -> Iterator[tuple[FitTask, Members]]:
    """Each task with its members, in order. Plans are made as cores become free for them; what is
    ready of the first ones goes first."""
    going: deque[_Plan] = deque()
    while True:
        while (ready := sum(map(len, _queues(going, processes)))) < processes.free:
            if (plan := next(plans, None)) is None:
                break
            going.append(plan)
        for queue in _queues(going, processes):
            while queue and processes.free and processes.takes(queue[0]):
                processes.begin(queue.popleft(), _threads(processes.free, ready))
                ready -= 1
        while going and going[0].members is not None:
            done = going.popleft()
            assert done.members is not None
            yield done.task, done.members
        if not going and not processes.busy:
            return
        if processes.busy:
            processes.step()


def _queues(going: Iterable[_Plan], processes: _Processes) -> list[deque[_Job]]:
    return [processes.crowded, *(plan.ready for plan in going)]
