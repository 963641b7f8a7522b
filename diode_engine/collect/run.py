"""A collection: problems, their candidates' timings into the store, as they come."""

from __future__ import annotations

import logging
import os
import time
from collections import Counter
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from diode_engine.collect.plan import CandidatePlan
from diode_engine.collect.pool import (
    DEADLINE_SECONDS,
    WORKER,
    Conversation,
    Message,
    Pool,
    WorkerDied,
)
from diode_engine.collect.protocol import timing
from diode_engine.errors import CollectionError
from diode_engine.hardware import Environment
from diode_engine.problem import Candidate, Failure, Problem, Timing
from diode_engine.runs import Heartbeat, begin
from diode_engine.table import TimingTable

if TYPE_CHECKING:
    from diode_engine.store import Store

log = logging.getLogger(__name__)

BATCH = 12  # candidates asked for at once: what a kill of everything loses a problem
MOST_DEATHS = 4  # of workers on one problem, before it is left alone
HEARTBEAT_SECONDS = 2.0


@dataclass
class Progress:
    """How far a collection is."""

    problems: int
    problems_done: int = 0
    problems_refused: int = 0
    timings: int = 0
    failures: Counter[Failure] = field(default_factory=Counter)
    workers_lost: int = 0
    began: float = field(default_factory=time.monotonic)

    @property
    def seconds(self) -> float:
        return time.monotonic() - self.began

    def to_dict(self) -> dict[str, Any]:
        return {
            "problems": self.problems,
            "problems_done": self.problems_done,
            "problems_refused": self.problems_refused,
            "timings": self.timings,
            "failures": {str(reason): count for reason, count in self.failures.items()},
            "workers_lost": self.workers_lost,
            "seconds": round(self.seconds, 1),
        }


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
    problems: Sequence[Problem],
    *,
    gpus: Sequence[int],
    workers_per_gpu: int | None = None,
    budget: int | None = None,
    seed: int = 0,
    report: Callable[[Progress], None] = lambda _: None,
    command: Sequence[str] = WORKER,
    deadline: float = DEADLINE_SECONDS,
) -> Progress:
    """Times the candidates of each problem and adds them to the store, batch by batch.

    What the store has from this environment is not timed again, so the same call goes on
    where an earlier one was stopped. `budget` is the most candidates a problem (all, if
    None; see CandidatePlan). An interrupt keeps what is there and is raised again.
    """
    if workers_per_gpu is None:
        # A worker spends most of its time compiling, so there is one a core, less the run's.
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1
        workers_per_gpu = max(1, (cores - 1) // len(gpus))
    progress = Progress(problems=len(problems))
    run = begin(
        store,
        "collect",
        {
            "problems": len(problems),
            "budget": budget,
            "seed": seed,
            "gpus": list(gpus),
            "workers_per_gpu": workers_per_gpu,
        },
    )
    todo = iter(problems)
    done: dict[Environment, dict[str, set[str]]] = {}

    def next_conversation(environment: Environment) -> Conversation | None:
        if environment not in done:
            known: dict[str, set[str]] = {}
            for problem_key, candidate_key in store.timed_pairs(environment):
                known.setdefault(problem_key, set()).add(candidate_key)
            done[environment] = known
        problem = next(todo, None)
        if problem is None:
            return None
        timed = done[environment].get(problem.key, set())
        return _conversation(problem, environment, timed)

    def _conversation(problem: Problem, environment: Environment, timed: set[str]) -> Conversation:
        answer = yield {"problem": problem.to_dict()}
        if isinstance(answer, WorkerDied) or "refused" in answer:
            log.info("%s is left out: %s", problem, answer)
            progress.workers_lost += isinstance(answer, WorkerDied)
            progress.problems_refused += 1
            return
        plan = CandidatePlan(
            problem,
            [Candidate.from_dict(c) for c in answer["offered"]],
            [Candidate.from_dict(c) for c in answer["default"]],
            done=timed,
            budget=budget,
            seed=seed,
        )
        deaths = 0
        while deaths < MOST_DEATHS and (batch := plan.next_batch(BATCH)):
            rows: list[tuple[Candidate, Timing]] = []
            for candidate, timed_now in (yield from _batch(problem, batch)):
                plan.record(candidate, timed_now.time_us)
                rows.append((candidate, timed_now))
                progress.timings += 1
                if timed_now.failure is not None:
                    progress.failures[timed_now.failure] += 1
                    deaths += timed_now.failure in (Failure.CRASH, Failure.TIMEOUT)
            store.add(run, TimingTable.from_records((problem, c, environment, t) for c, t in rows))
        progress.problems_done += 1

    def _batch(
        problem: Problem, batch: list[Candidate]
    ) -> Generator[Message | None, Message | WorkerDied, list[tuple[Candidate, Timing]]]:
        """Asks for a batch, again for the rest of it if the worker dies."""
        timings: list[tuple[Candidate, Timing]] = []
        begun: int | None = None
        answer = yield _request(problem, batch)
        while True:
            if isinstance(answer, WorkerDied):
                progress.workers_lost += 1
                if begun is None and not timings:  # it died before the first: do not insist
                    begun = 0
                if begun is not None:
                    reason = Failure.TIMEOUT if answer.timed_out else Failure.CRASH
                    timings.append((batch[begun], Timing(failure=reason)))
                    begun = None
                rest = batch[len(timings) :]
                if not rest:
                    return timings
                timings += yield from _batch(problem, rest)
                return timings
            if "done" in answer or "refused" in answer:
                return timings
            if "begin" in answer:
                begun = answer["begin"]
            elif "timing" in answer:
                candidate = batch[answer["timing"]]
                timings.append((candidate, timing(answer)))
                if answer["failure"] is not None:
                    log.info("%s on %s: %s", candidate, problem, answer["reason"])
                begun = None
            answer = yield None

    state, message = "done", None
    beat = time.monotonic()
    try:
        with (
            Heartbeat(store, run) as heartbeat,
            Pool(gpus, workers_per_gpu, command=command, deadline=deadline) as pool,
        ):
            for _ in pool.run(next_conversation):
                heartbeat.check()
                if time.monotonic() - beat >= HEARTBEAT_SECONDS:
                    beat = time.monotonic()
                    store.update_run(run, progress=progress.to_dict())
                    report(progress)
    except KeyboardInterrupt:
        state, message = "cancelled", "stopped by the user; the same command goes on"
        raise
    except BaseException as error:
        state, message = "failed", str(error)
        raise
    finally:
        store.update_run(run, progress=progress.to_dict())
        store.finish_run(run, state, message)
        report(progress)
    return progress


def _request(problem: Problem, batch: list[Candidate]) -> dict[str, Any]:
    return {"problem": problem.to_dict(), "candidates": [c.to_dict() for c in batch]}
