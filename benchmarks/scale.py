"""Timings a second of a collection over 1, 2, 4 and 8 GPUs of a Ray cluster that are replayed here.

    python benchmarks/scale.py [--gpus N ...] [--workers N] [--seconds S] [--slower X] [--local]
                               [--without] [--json FILE]

This is a replay: each GPU's workers answer with the shipped timings of an H200, and wait as long as
the timing took (`replay_worker.py`), times --slower, one worker at a time. As in a collection, each
GPU has several workers, so that one waits while another gets its next batch. All machines of the
cluster are simulated on this one, whose cores do all the work. For each number of GPUs it prints
timings a second, their share of the linear rate (by the first number's), and the driver's work for
a batch of 128, as the processor time of its own process. With --local, worker processes of this
machine do the same. With --without, no other process does (`replay_executor.py`): the difference
between the two is what an executor costs the driver.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import json
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import replay_worker
from replay_executor import ReplayExecutor

from diode_engine.collect import run as collecting
from diode_engine.collect.executor import Executor
from diode_engine.collect.local import LocalExecutor
from diode_engine.collect.planning.plan import Plan
from diode_engine.collect.progress import Progress
from diode_engine.core.problem import Problem
from diode_engine.store import Store
from diode_engine.store.datasets.reading import read_dataset

ROOT = Path(__file__).parents[1]
DATASET = ROOT / "datasets/nvidia-h200/gemm-direct-bf16-2026-11-21.packed.zst"
BATCH = 128  # as large as those of --direct, whose kernels are all there already


def cluster_of(gpus: int) -> Any:
    """A machine for each GPU, all of them here."""
    from ray.cluster_utils import Cluster

    small = {"object_store_memory": 80 << 20}
    made = Cluster(
        initialize_head=True,
        head_node_args={"num_cpus": 1, "num_gpus": 0, "include_dashboard": False, **small},
    )
    for _ in range(gpus):
        made.add_node(num_cpus=1, num_gpus=1, resources={"accelerator_type:H200": 1}, **small)
    return made


def collected(executor: Executor, problems: list[Problem], seconds: float) -> dict[str, float]:
    """The collection's figures over so many seconds, from the first timing on."""
    seen: list[tuple[float, float, int]] = []  # (seconds by the clock, of the processor, timings)
    ended: list[bool] = []

    def report(progress: Progress) -> None:
        if progress.timings and not ended:  # later reports are of the executor's shutdown
            processor = time.process_time() - getattr(executor, "seconds", 0.0)
            seen.append((time.monotonic(), processor, progress.timings))
            if seen[-1][0] - seen[0][0] > seconds:
                ended.append(True)
                raise KeyboardInterrupt

    with (
        tempfile.TemporaryDirectory() as folder,
        Store.open(Path(folder) / "s.db") as store,
        contextlib.suppress(KeyboardInterrupt),
    ):
        collecting.collect(
            store, Plan.of(problems), executor, report=report, adviser=lambda _: None
        )
    # The first third is not counted: not all GPUs are at work yet.
    since = next(each for each in seen if each[0] - seen[0][0] > seconds / 3)
    clock, processor, timings = (b - a for a, b in zip(since, seen[-1], strict=True))
    return {
        "rate": timings / clock,
        "driver_ms_a_batch": 1e3 * processor / max(1.0, timings / BATCH),
        "driver_load": processor / clock,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])  # type: ignore[union-attr]
    parser.add_argument("--gpus", type=int, nargs="*", default=[1, 2, 4, 8])
    parser.add_argument("--seconds", type=float, default=12.0)
    parser.add_argument("--slower", type=float, default=1.0)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--problems", type=int, default=400)
    parser.add_argument("--local", action="store_true")
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    here = options.local or options.without
    if not here and importlib.util.find_spec("ray") is None:
        print("Ray is not installed: pip install 'diode-engine[ray]', or give --local.")
        return
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    collecting.BATCH = BATCH
    collecting.HEARTBEAT_SECONDS = 0.5
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "replay.msgpack"
        table = read_dataset(DATASET)
        problems = replay_worker.write(
            table, range(min(options.problems, len(table.problems))), file
        )
        script = str(Path(replay_worker.__file__))
        path = f"PYTHONPATH={ROOT}"
        command = ("env", path, sys.executable, script, str(file), str(options.slower))
        for count in options.gpus:
            row: dict[str, Any] = {"gpus": count, "slower": options.slower, "replay": True}
            executor: Executor
            if options.without:
                executor = ReplayExecutor(count, options.workers, file, options.slower)
                row |= collected(executor, problems, options.seconds)
            elif options.local:
                executor = LocalExecutor(
                    range(count),
                    workers_per_gpu=options.workers,
                    command=command,
                    watch=lambda: None,
                )
                row |= collected(executor, problems, options.seconds)
            else:
                row |= over_ray(count, options.workers, command, problems, options.seconds)
            rows.append(row)
            whole = rows[0]["rate"] / rows[0]["gpus"] * count
            print(
                f"{count} replayed GPUs: {row['rate']:.0f} timings/s, "
                f"{row['rate'] / whole:.2f} of linear; driver: {row['driver_ms_a_batch']:.2f} ms "
                f"a batch of {BATCH}, {row['driver_load']:.2f} of a core",
                flush=True,
            )
    if options.json is not None:
        options.json.write_text(json.dumps(rows, indent=1))


def over_ray(
    count: int, workers: int, command: tuple[str, ...], problems: list[Problem], seconds: float
) -> dict[str, float]:
    import ray

    from diode_engine.collect.cluster.executor import RayExecutor

    cluster = cluster_of(count)
    try:
        executor = RayExecutor(cluster.address, workers_per_gpu=workers, command=command)
        return collected(executor, problems, seconds)
    finally:
        ray.shutdown()
        cluster.shutdown()


if __name__ == "__main__":
    main()
