"""diode-engine collect: times Inductor's candidates on this machine's GPUs."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from diode_engine.atomic import FileKind
from diode_engine.cli import diagnostics
from diode_engine.cli.drawing import DrawnProblems, drawn_options
from diode_engine.cli.options import (
    WordsCommand,
    accelerator_option,
    check_cluster,
    gpus_option,
    json_anyway_option,
    seed_option,
    store_option,
    unused_option,
)
from diode_engine.cli.output_file import check_output
from diode_engine.location import Location

if TYPE_CHECKING:
    from rich.progress import Progress as Display
    from rich.progress import TaskID

    from diode_engine.collect.executor import Executor
    from diode_engine.collect.planning.plan import Plan, Rate
    from diode_engine.collect.progress import GpuProgress, Progress
    from diode_engine.core.table import TimingTable
    from diode_engine.store import Store

_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


@click.command(cls=WordsCommand)
@store_option
@click.option(
    "--problems",
    "--num-shapes",
    type=click.IntRange(1),
    default=300,
    show_default=True,
    help="How many distinct problems to draw from the sources.",
)
@drawn_options
@click.option(
    "--file",
    "files",
    type=_FILE,
    multiple=True,
    help="Time the problems of this shapeset (as capture writes it, or torch-diode) or dataset; "
    "may be repeated. Nothing is drawn then, unless a source is named too.",
)
@click.option(
    "--search-space",
    type=click.Choice(("EXHAUSTIVE", "DEFAULT"), case_sensitive=False),
    default="EXHAUSTIVE",
    show_default=True,
    help="Inductor's space of candidates that is timed.",
)
@click.option(
    "--search-mode",
    type=click.Choice(("max-autotune", "max-autotune-no-cudagraphs")),
    default="max-autotune",
    show_default=True,
    expose_value=False,
    help="torch.compile's mode whose candidates are timed. Both modes have the same candidates, "
    "and other modes have none.",
)
@click.option(
    "--budget",
    type=click.IntRange(1),
    help="At most this many candidates for each problem: ATen, decompose_k and the DEFAULT "
    "space first, then the model's favourites, random others and the neighbours of the best. "
    "[default: all]",
)
@click.option(
    "--whole",
    type=click.IntRange(0),
    default=0,
    help="Time all candidates of this many problems, the first ones, whatever the budget is.",
)
@click.option(
    "--candidates",
    type=_FILE,
    help='Time only the candidates in this file, a JSON list of {"template": ..., "kwargs": '
    "{...}}; with --budget at most so many of them.",
)
@seed_option()
@gpus_option("[default: all]")
@click.option(
    "--ray",
    metavar="ADDRESS",
    help="Time on the GPUs of the Ray cluster at this address, host:port or auto, instead of this "
    "machine's (docs/scale.md).",
)
@accelerator_option
@click.option(
    "--workers",
    type=click.IntRange(1),
    help="Worker processes for each GPU. [default: one for each core]",
)
@click.option(
    "--direct",
    is_flag=True,
    help="Compile each kernel once for many problems and launch it directly: much faster, and "
    "within a few percent of Inductor's own kernels (docs/notes/direct-launching.md).",
)
@click.option(
    "--compiles",
    type=click.IntRange(0),
    help="With --direct and --budget: compile at most this many kernels for a problem, besides the "
    "DEFAULT space's. After that, only kernels are timed that were compiled for other problems.",
)
@click.option(
    "--output",
    metavar="FILE",
    type=click.Path(dir_okay=False),
    help="Write the timings of these problems to this dataset file too, at the end.",
)
@unused_option("--chunk-size", instead="timings are stored as they come")
@json_anyway_option
@click.option(
    "--plan", "plan_only", is_flag=True, help="Show what would be timed, and time nothing."
)
def collect(
    store: Location, problems: int, drawn: DrawnProblems, files: tuple[Path, ...],
    search_space: str,
    budget: int | None, whole: int, candidates: Path | None, seed: int, gpus: tuple[int, ...],
    ray: str | None, accelerator: str | None, workers: int | None, direct: bool,
    compiles: int | None, output: str | None, plan_only: bool, only_held_out: bool = False,
) -> None:  # fmt: skip
    """Time Inductor's candidates on this machine's GPUs, or on a cluster's, into the store.

    Ctrl-C keeps what was timed; the same command continues from there. The counts go to stdout as
    JSON; with --plan, those of the plan.
    """
    from diode_engine.collect.planning.plan import Plan, read_candidates
    from diode_engine.errors import NothingError
    from diode_engine.problems.sources import mixed, problems_in
    from diode_engine.store.datasets.format import SUFFIXES

    if candidates is not None and search_space == "DEFAULT":
        raise click.UsageError("--candidates names the candidates: leave out --search-space.")
    if compiles is not None and not (direct and budget):
        raise click.UsageError("--compiles goes with --direct and --budget.")
    if output is not None and not output.endswith(SUFFIXES):
        raise click.UsageError(f"--output must end in {', '.join(SUFFIXES)}.")
    if output is not None:
        check_output(Path(output), FileKind.DATASET, sources=files)
    check_cluster(ray, accelerator, gpus)
    if gpus:
        from diode_engine.collect.local import devices

        gpus = devices(gpus)
    wanted = drawn.wanted(held_out=only_held_out)
    todo = [p for file in files for p in problems_in(file, seed) if wanted.holds(p)]
    if files and only_held_out:
        diagnostics.note(f"{len(todo)} problems in the files are held out from training.")
    if drawn.sources or not files:
        todo += mixed(problems, seed, drawn.sources, wanted)
    fixed = None if candidates is None else read_candidates(candidates)
    plan = Plan.of(
        todo, budget=budget, whole=whole, fixed=fixed, compiles=compiles,
        default=search_space == "DEFAULT",
    )  # fmt: skip
    if not len(plan):
        raise NothingError("There are no problems in what was given; name a source or a file.")
    if plan_only:
        here = len(gpus) or (1 if ray is not None else _count_gpus())
        summary = plan.summary(_expected_rate(store, here, direct))
        diagnostics.note(_table(summary))
        click.echo(json.dumps(summary))
        return

    from diode_engine.collect.local import Direct, LocalExecutor, devices
    from diode_engine.collect.run import collect as run
    from diode_engine.paths import binaries_dir
    from diode_engine.store import Store

    how = Direct(binaries_dir()) if direct else None
    executor: Executor
    if ray is not None:
        from diode_engine.collect.cluster.executor import RayExecutor

        cluster = RayExecutor(ray, kind=accelerator, workers_per_gpu=workers, direct=how)
        count, where, executor = cluster.count(), f"the Ray cluster at {ray}", cluster
    else:
        used = devices(gpus)
        count, where = len(used), "this machine"
        executor = LocalExecutor(used, workers_per_gpu=workers, direct=how)
    diagnostics.note(_table(plan.summary(_expected_rate(store, count, direct))))
    with Store.open(store) as opened, diagnostics.progress() as display:
        diagnostics.note(
            f"Timing on {count} GPU(s) of {where} into {store}; Ctrl-C stops "
            "this, the same command continues it."
        )
        spec = {
            "problems": problems, "source": list(drawn.sources), "file": [str(f) for f in files],
            "ops": drawn.ops, "dtypes": drawn.dtypes, "layouts": drawn.layouts,
            "min_size": drawn.min_size, "max_size": drawn.max_size, "search_space": search_space,
            "budget": budget, "whole": whole, "seed": seed, "compiles": compiles,
            "candidates": None if candidates is None else str(candidates),
        }  # fmt: skip
        progress = run(
            opened, plan, executor, seed=seed, spec=spec, report=_reporter(display, len(plan))
        )  # fmt: skip
        if output is not None:
            _write_dataset(opened, plan, output)
    if progress.problems_elsewhere:
        diagnostics.warn(
            f"Another collection into {store} times {progress.problems_elsewhere} of the problems. "
            "Run the same command again for what it leaves."
        )
    click.echo(json.dumps(progress.to_dict()))


def _write_dataset(opened: Store, plan: Plan, output: str) -> None:
    """Writes what the store has of the plan's problems to a dataset file, and says what it has."""
    import numpy as np

    from diode_engine.store import write_dataset
    from diode_engine.store.soundness import require_sound

    require_sound(opened.location, f"{output} was not written")
    planned = {entry.problem for entry in plan.entries}
    table = opened.read(kernels=True)
    ours = np.array([problem in planned for problem in table.problems], np.bool_)
    table = table.take(ours[table.problem]).compact()
    write_dataset(table, output)
    diagnostics.note(f"{output}: {len(table):,} timings.\n{_statistics(table)}")


def _statistics(table: TimingTable) -> str:
    """The hardware, the operators, and how many problems and configs they have."""
    import numpy as np

    ops = np.array([str(problem.op) for problem in table.problems])
    names = np.array([environment.hardware.name for environment in table.environments])
    lines = ["Dataset Statistics:"]
    for name in dict.fromkeys(names.tolist()):
        lines.append(f"Hardware: {name}")
        here = names[table.environment] == name
        for op in dict.fromkeys(ops.tolist()):
            rows = here & (ops[table.problem] == op)
            pairs = np.unique(np.stack([table.problem[rows], table.candidate[rows]]), axis=1)
            problems = len(np.unique(pairs[0]))
            if problems:
                lines.append(f"  Operation '{op}': {problems} problems, {pairs.shape[1]} configs")
    return "\n".join(lines)


def _reporter(display: Display, problems: int) -> Callable[[Progress], None]:
    """A function that shows the progress: a line for all problems, one for each GPU (or each
    machine of a cluster), and one for failures by reason. A message follows each tenth of the
    problems."""
    task = display.add_task("problems", total=problems)
    lines: dict[str, TaskID] = {}
    tenths = 0

    def line(name: str, completed: int, description: str) -> None:
        if name not in lines:
            lines[name] = display.add_task(name, total=None)
        display.update(lines[name], completed=completed, description=description)

    def report(progress: Progress) -> None:
        nonlocal tenths
        done = progress.problems_done + progress.problems_refused
        if 10 * done // problems > tenths:
            tenths = 10 * done // problems
            diagnostics.note(f"[{done:,}/{problems:,}] problems, {progress.timings:,} timings")
        display.update(
            task,
            completed=done,
            description=f"{progress.timings:,} timings, {progress.rate:.1f}/s, "
            f"{_duration(progress.seconds_left)} left",
        )
        machines: dict[str, list[GpuProgress]] = {}
        for gpu in progress.gpus.values():
            if gpu.node:
                machines.setdefault(gpu.node, []).append(gpu)
        for machine, there in machines.items():
            held_back = sorted({r for g in there if g.state is not None for r in g.state.held_back})
            words = [f"{machine}: {len(there)} GPU(s)", *held_back]
            line(machine, sum(gpu.timings for gpu in there), " ".join(words))
        for number, gpu in progress.gpus.items():
            if gpu.node:
                continue
            words = [f"GPU {number}"]
            if gpu.state is not None:
                words += [f"{gpu.state.clock_mhz} MHz", f"{gpu.state.temperature_c} °C",
                          *gpu.state.held_back]  # fmt: skip
            line(f"GPU {number}", gpu.timings, " ".join(words))
        if progress.failures:
            reasons = (f"{n:,} {reason}" for reason, n in progress.failures.most_common(3))
            line("failed", progress.failures.total(), f"failed: {', '.join(reasons)}")

    return report


def _expected_rate(store: Location, gpus: int, direct: bool) -> Rate:
    from diode_engine.collect.local import cores
    from diode_engine.collect.planning.plan import expected_rate
    from diode_engine.errors import StoreError
    from diode_engine.store import Store

    earlier = []
    with contextlib.suppress(StoreError), Store.open(store, read_only=True) as opened:
        earlier = [(r.spec, r.progress or {}) for r in opened.runs() if r.kind == "collect"]
    earlier = [(spec, done) for spec, done in earlier if bool(spec.get("direct")) == direct]
    return expected_rate(earlier, gpus=gpus, cores=cores())


def _count_gpus() -> int:
    """The number of GPUs; 1 where there is none, since a plan can be made anywhere."""
    from diode_engine.collect.local import devices
    from diode_engine.errors import CollectionError

    try:
        return len(devices())
    except CollectionError:
        diagnostics.note("There is no GPU here; the plan is for one like an H200.")
        return 1


def _table(summary: Mapping[str, Any]) -> str:
    """The plan for people."""
    from diode_engine.validation.text import aligned

    rows = [
        [name, f"{counts['problems']:,}", f"{counts['candidates']:,}"]
        for group in ("by_selection", "by_op", "by_type")
        for name, counts in summary[group].items()
    ]
    rows.append(["total", f"{summary['problems']:,}", f"{summary['candidates']:,}"])
    return (
        f"{aligned(['', 'problems', 'candidates'], rows)}\n"
        f"Up to {summary['compiles']:,} kernels to compile, about {_duration(summary['seconds'])} "
        f"(from {summary['known_from']}); what the store has is not timed again."
    )


def _duration(seconds: float | None) -> str:
    if seconds is None:
        return "?"
    minutes, hours = seconds / 60, seconds / 3600
    if hours >= 2:
        return f"{hours:.1f} h"
    return f"{minutes:.0f} min" if minutes >= 2 else f"{seconds:.0f} s"
