"""diode-engine collect: times Inductor's candidates on this machine's GPUs."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from diode_engine.atomic import FileKind, kind_of
from diode_engine.cli import diagnostics, options
from diode_engine.cli.files import check_output
from diode_engine.cli.options import (
    LAYOUTS,
    READ_FILE,
    WordsCommand,
    add_options,
    check_cluster,
    option,
    split_names,
)
from diode_engine.core.operand import TYPES
from diode_engine.core.operators import OPERATORS
from diode_engine.errors import CollectionError, NothingError, StoreError
from diode_engine.location import Location
from diode_engine.paths import binaries_dir
from diode_engine.plain_text import format_duration, format_table

if TYPE_CHECKING:
    from rich.progress import Progress as Display
    from rich.progress import TaskID

    from diode_engine.collect.executor import Executor
    from diode_engine.collect.planning.plan import Plan, Rate
    from diode_engine.collect.progress import GpuProgress, Progress
    from diode_engine.core.table import TimingTable
    from diode_engine.problems.sources import Wanted
    from diode_engine.store import Store

SOURCES = (
    "transformers", "zoo", "log-normal", "attention", "inner-batch", "skinny", "widths", "odd",
    "grid", "powers", "harvest", "eight-bit", "experts",
)  # fmt: skip


def named_sources(values: Mapping[str, Any]) -> tuple[str, ...]:
    """The sources that a command's options name, with their parameters."""
    flags = ("log_normal", "log-normal"), ("power_of_two", "powers")
    return (*values["sources"], *(source for flag, source in flags if values[flag]))


def wanted_problems(values: Mapping[str, Any], *, held_out: bool = False) -> Wanted:
    """The condition that a command's options set for problems to be taken, with `held_out` only
    those that training holds out. Raises CollectionError for an unknown name."""
    from diode_engine.problems.sources import Wanted

    ops, dtypes, layouts = (split_names(values[kind]) for kind in ("ops", "dtypes", "layouts"))
    least, most = values["min_size"], values["max_size"]
    return Wanted(ops, dtypes, layouts, least=least, most=most, held_out=held_out)


_SIZES = "--source, --min-size and --max-size say which sizes are drawn"
_LOG_NORMAL = "the distribution is set as in --source log-normal:median=700,sigma=1.5"
# The command gets their values, for `wanted_problems` and `named_sources`.
drawn_options = add_options(
    option(
        "--source", "sources", metavar="NAME[:PARAMETER=VALUE,...]", multiple=True,
        heading="Problems", label="Sources",
        help="Where problems are drawn from: names with parameters, such as skinny grid:m=1/64.",
        details=f"The names are {', '.join(SOURCES)}. It may be repeated, then each source has an "
        "equal share. The values in a list are separated by slashes: "
        "grid:m=1/64,n=4096,k=4096 or transformers:models=llama-3-8b/qwen2-7b.",
        default_text="a mix of the first four",
    ),
    option("--log-normal", is_flag=True, help="The same as --source log-normal."),
    option("--power-of-two", is_flag=True, help="The same as --source powers."),
    option(
        "--ops", "--operations", metavar="OP,...", default="", heading="Problems",
        label="Operators", names=tuple(OPERATORS), help="Only problems of these operators.",
    ),
    option(
        "--dtypes", metavar="TYPE,...", default="", heading="Problems", label="Types", names=TYPES,
        help="Only problems of these types of the operands; fp32 is without TF32.",
        details=f"The types are {', '.join(TYPES)} (or bfloat16 and the like).",
    ),
    option(
        "--layouts", metavar="A/B,...", default="", heading="Problems", names=LAYOUTS,
        help="Only problems whose operands have these layouts; a Linear layer's forward is "
        "row/col.",
        details=f"The layouts are {', '.join(LAYOUTS)}.",
    ),
    option(
        "--min-size", type=click.IntRange(1), help="Only problems with M, N and K of at least this."
    ),
    option(
        "--max-size", type=click.IntRange(1), help="Only problems with M, N and K of at most this."
    ),
    options.unused("--no-rectangular", is_flag=True, instead=_SIZES),
    options.unused("--no-odd-sizes", is_flag=True, instead=_SIZES),
    *(
        options.unused(f"--log-normal-{size}-{parameter}", instead=_LOG_NORMAL)
        for size in "mnk"
        for parameter in ("mean", "std")
    ),
)  # fmt: skip


@click.command(cls=WordsCommand)
@options.store
@options.problems(300)
@drawn_options
@option(
    "--file", "files", type=READ_FILE, multiple=True, heading="Problems", label="Files",
    help="Time the problems of this shapeset or dataset. Nothing is drawn then, unless a source is "
    "named too.",
    details="A shapeset is as capture writes it, or torch-diode's. May be repeated.",
)  # fmt: skip
@option(
    "--search-space", type=click.Choice(("EXHAUSTIVE", "DEFAULT"), case_sensitive=False),
    default="EXHAUSTIVE", heading="Candidates of each", label="Space",
    help="Inductor's space of candidates that is timed: EXHAUSTIVE is what Diode chooses among, "
    "DEFAULT what max-autotune times by itself.",
)  # fmt: skip
@option(
    "--search-mode", type=click.Choice(("max-autotune", "max-autotune-no-cudagraphs")),
    default="max-autotune", expose_value=False,
    help="torch.compile's mode whose candidates are timed. Both modes have the same candidates, "
    "and other modes have none.",
)  # fmt: skip
@options.budget
@option(
    "--whole", type=click.IntRange(0), default=0, heading="Candidates of each",
    help="Of this many problems, the first ones, time all candidates, whatever the budget is.",
)  # fmt: skip
@option(
    "--candidates", type=READ_FILE,
    help='Time only the candidates in this file, a JSON list of {"template": ..., "kwargs": '
    "{...}}; with --budget at most that many of them. With a dataset its problems are timed again, "
    "of each the candidates that it has there.",
)  # fmt: skip
@option(
    "--direct", is_flag=True, heading="How",
    help="Compile each kernel once for many problems and launch it directly: much faster, and "
    "within a few percent of Inductor's own kernels.",
    details="See docs/notes/direct-launching.md.",
)  # fmt: skip
@option(
    "--compiles", type=click.IntRange(0), heading="How",
    applies=lambda values: bool(values["direct"] and values["budget"].strip()),
    help="With --direct and --budget: compile at most this many kernels for a problem, besides the "
    "DEFAULT space's. After that, only kernels are timed that were compiled for other problems.",
)  # fmt: skip
@options.gpus("", "all")
@options.seed()
@option(
    "--ray", metavar="ADDRESS",
    help="Time on the GPUs of the Ray cluster at this address, host:port or auto, instead of this "
    "machine's (docs/scale.md).",
)  # fmt: skip
@options.accelerator
@option(
    "--workers", type=click.IntRange(1),
    help="Worker processes for each GPU. [default: one for each core]",
)  # fmt: skip
@option(
    "--output", metavar="FILE", type=click.Path(dir_okay=False),
    help="Write the timings of these problems to this dataset file too, at the end.",
)  # fmt: skip
@options.unused("--chunk-size", instead="timings are stored as they come")
@options.json_anyway
@option("--plan", "plan_only", is_flag=True, help="Show what would be timed, and time nothing.")
def collect(
    store: Location, gpus: tuple[int, ...], ray: str | None, accelerator: str | None,
    workers: int | None, output: str | None, plan_only: bool, **values: Any,
) -> None:  # fmt: skip
    """Time Inductor's candidates on this machine's GPUs, or on a cluster's, into the store.

    Ctrl-C keeps what was timed; run the command again to resume. The counts go to stdout as
    JSON; with --plan, those of the plan.
    """
    from diode_engine.collect.local import LocalExecutor, Setup, devices, direct_setup
    from diode_engine.collect.run import collect as run
    from diode_engine.store import Store
    from diode_engine.store.datasets.format import SUFFIXES

    if output is not None and not output.endswith(SUFFIXES):
        raise click.UsageError(f"--output must end in {', '.join(SUFFIXES)}.")
    if output is not None:
        check_output(Path(output), FileKind.DATASET, sources=values["files"])
    check_cluster(ray, accelerator, gpus)
    if gpus:
        gpus = devices(gpus)
    plan = make_plan(values)
    if plan_only:
        here = len(gpus) or (1 if ray is not None else _count_gpus())
        summary = plan.summary(expected_rate(store, here, direct=values["direct"]))
        diagnostics.note(_table(summary))
        click.echo(json.dumps(summary))
        return

    setup = direct_setup(binaries_dir()) if values["direct"] else Setup()
    executor: Executor
    if ray is not None:
        from diode_engine.collect.cluster.executor import RayExecutor

        cluster = RayExecutor(ray, kind=accelerator, workers_per_gpu=workers, setup=setup)
        count, where, executor = cluster.count(), f"the Ray cluster at {ray}", cluster
    else:
        used = devices(gpus)
        count, where = len(used), "this machine"
        executor = LocalExecutor(used, workers_per_gpu=workers, setup=setup)
    rate = expected_rate(store, count, direct=values["direct"])
    diagnostics.note(_table(plan.summary(rate)))
    with Store.open(store) as opened, diagnostics.progress() as display:
        diagnostics.note(
            f"Timing on {count} GPU(s) of {where} into {store}; Ctrl-C stops it; run the command "
            "again to resume."
        )
        progress = run(
            opened, plan, executor, seed=values["seed"], spec=_spec(values),
            report=_reporter(display, len(plan)),
        )  # fmt: skip
        if output is not None:
            _write_dataset(opened, plan, output)
    if progress.problems_elsewhere:
        diagnostics.warn(
            f"Another collection into {store} times {progress.problems_elsewhere} of the problems "
            "now. Run this command again afterwards, for those that it leaves."
        )
    click.echo(json.dumps(progress.to_dict()))


def make_plan(values: Mapping[str, Any]) -> Plan:
    """The plan of a collection with these values of the command's options.

    Raises UsageError for options that do not go together, CollectionError for an unknown source or
    name, DatasetError for a file that cannot be read and NothingError for a plan of no problems.
    """
    from diode_engine.collect.planning.plan import CandidateSelection, Plan, read_candidates
    from diode_engine.problems.sources import mixed, problems_in

    files, candidates, compiles = values["files"], values["candidates"], values["compiles"]
    default, only_held_out = values["search_space"] == "DEFAULT", "only_held_out" in values
    if candidates is not None and default:
        raise click.UsageError("--candidates names the candidates: leave out --search-space.")
    if compiles is not None and not (values["direct"] and values["budget"]):
        raise click.UsageError("--compiles goes with --direct and --budget.")
    wanted, sources = wanted_problems(values, held_out=only_held_out), named_sources(values)
    if candidates is not None and kind_of(candidates) is FileKind.DATASET:
        if files or sources or values["whole"]:
            raise click.UsageError(
                "The dataset of --candidates says what is timed: leave out --file, --source and "
                "--whole."
            )
        return _plan_again(candidates, wanted, values["budget"], compiles)
    found = [p for file in files for p in problems_in(file, values["seed"]) if wanted.holds(p)]
    if files and only_held_out:
        diagnostics.note(f"{len(found)} problems in the files are held out from training.")
    if sources or not files:
        found += mixed(values["problems"], values["seed"], sources, wanted)
    if not found:
        raise NothingError(
            "The files and sources have no such problems; name another --source or --file."
        )
    fixed = None if candidates is None else read_candidates(candidates)
    selection = CandidateSelection(values["budget"], fixed, compiles, default)
    return Plan.for_problems(found, selection, whole=values["whole"])


def _plan_again(dataset: Path, wanted: Wanted, budget: int | None, compiles: int | None) -> Plan:
    """The plan that times again what a dataset has of the wanted problems."""
    from diode_engine.collect.planning.plan import CandidateSelection, Plan, PlannedProblem
    from diode_engine.store import read_dataset

    table, entries = read_dataset(dataset, times_required=False), []
    for number, rows in table.groups():
        named = dict.fromkeys(table.candidates[i] for i in table.candidate[rows])
        if wanted.holds(problem := table.problems[number]):
            selection = CandidateSelection(budget, tuple(named), compiles)
            entries.append(PlannedProblem(problem, selection))
    if not entries:
        raise NothingError(f"{dataset} has no such problems.")
    return Plan(tuple(entries))


def _spec(values: Mapping[str, Any]) -> dict[str, Any]:
    """The options as the run's record has them."""
    kept = ("problems", "ops", "dtypes", "layouts", "min_size", "max_size", "search_space",
            "budget", "whole", "seed", "compiles")  # fmt: skip
    candidates = values["candidates"]
    return {
        **{name: values[name] for name in kept},
        "source": list(named_sources(values)),
        "file": list(map(str, values["files"])),
        "candidates": None if candidates is None else str(candidates),
    }


def _write_dataset(opened: Store, plan: Plan, output: str) -> None:
    """Writes what the store has of the plan's problems to a dataset file, and says what it has."""
    import numpy as np

    from diode_engine.core.table import TimingTable
    from diode_engine.store import write_dataset
    from diode_engine.store.soundness import require_sound

    require_sound(opened.location, f"{output} was not written")
    planned = {entry.problem for entry in plan.entries}
    table = opened.read(kernels=True)
    ours = np.array([problem in planned for problem in table.problems], np.bool_)
    table = TimingTable.joined([table.take(ours[table.problem])])
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
        left = progress.seconds_left
        display.update(
            task,
            completed=done,
            description=f"{progress.timings:,} timings, {progress.rate:.1f}/s, "
            f"{'?' if left is None else format_duration(left)} left",
        )
        places: dict[str, list[GpuProgress]] = {}
        for number, gpu in progress.gpus.items():
            places.setdefault(gpu.node or f"GPU {number}", []).append(gpu)
        for place, gpus in places.items():
            states = [gpu.state for gpu in gpus if gpu.state is not None]
            words = [f"{place}: {len(gpus)} GPU(s)" if gpus[0].node else place]
            if states and not gpus[0].node:
                words += [f"{states[0].clock_mhz} MHz", f"{states[0].temperature_c} °C"]
            words += sorted({reason for state in states for reason in state.held_back})
            line(place, sum(gpu.timings for gpu in gpus), " ".join(words))
        if progress.failures:
            reasons = (f"{n:,} {reason}" for reason, n in progress.failures.most_common(3))
            line("failed", progress.failures.total(), f"failed: {', '.join(reasons)}")

    return report


def expected_rate(store: Location, gpus: int, *, direct: bool) -> Rate:
    """How fast this many GPUs will time candidates, by the earlier collections in the store."""
    from diode_engine.collect.local import cores
    from diode_engine.collect.planning.plan import expected_rate as rate_after
    from diode_engine.store import Store

    earlier = []
    with contextlib.suppress(StoreError), Store.open(store, read_only=True) as opened:
        earlier = [(r.spec, r.progress or {}) for r in opened.runs() if r.kind == "collect"]
    earlier = [(spec, done) for spec, done in earlier if bool(spec.get("direct")) == direct]
    return rate_after(earlier, gpus=gpus, cores=cores())


def _count_gpus() -> int:
    """The number of GPUs; 1 where there is none, since a plan can be made anywhere."""
    from diode_engine.collect.local import devices

    try:
        return len(devices())
    except CollectionError:
        diagnostics.note("There is no GPU here; the plan is for one like an H200.")
        return 1


def _table(summary: Mapping[str, Any]) -> str:
    """The plan for people."""
    rows = [
        [name, f"{counts['problems']:,}", f"{counts['candidates']:,}"]
        for group in ("by_selection", "by_op", "by_type")
        for name, counts in summary[group].items()
    ]
    rows.append(["total", f"{summary['problems']:,}", f"{summary['candidates']:,}"])
    return (
        f"{format_table(['', 'problems', 'candidates'], rows)}\n"
        f"Up to {summary['compiles']:,} kernels to compile: about "
        f"{format_duration(summary['seconds'])}, by {summary['known_from']}. Candidates that the "
        "store has are not timed again."
    )
