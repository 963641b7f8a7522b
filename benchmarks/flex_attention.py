"""Is choosing FlexAttention's configs worth it? Times Inductor's own configs beside its default.

    python benchmarks/flex_attention.py [--json FILE] [--minutes N] [--seed N] [--workers N]
        [--plan] [--part I/N]
    python benchmarks/flex_attention.py --report FILE …

There are 200 calls: heads of 64, 128 and 256 elements, grouped heads, lengths of 128 to 32,768,
causal, window, document and no mask, forward, backward and decoding. Inductor's lowering lists all
its configs. Kernels are compiled by processes on all cores (with `--workers 0` by this process),
with symbols for batch and length. The default and max-autotune's configs of all calls come first,
in an order drawn by the seed, so that an interrupted run has a fair sample. Then come the likely
ones of the exhaustive space, then the rest. Each batch of configs is timed in turn with the default
of its call, with operands that are not in the cache. The default's result is compared with torch's.
At the end the best config of each call is timed once more beside the default, and that ratio is
reported: the best of many noisy times would look too good. A few kernels are compiled without
symbols too, to measure what symbols cost.

Each row is written to `FILE` at once, one JSON object a line. A run continues from the rows that it
finds. Several GPUs share the families of calls.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import math
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import flex_kernels
import flex_problems
import measuring
import torch
from flex_compilers import Compilers, Found, Job
from flex_kernels import AUTOTUNE_TIER, DEFAULT_TIER, LIKELY_TIER, REST_TIER, Config, Kernel
from flex_problems import BACKWARD, DECODING, DENSE, Family, Problem

from diode_engine.collect.workers.direct_timer import DirectTimer, TimedKernel
from diode_engine.collect.workers.driver import Driver, DriverError, Loaded
from diode_engine.collect.workers.timer import FLUSH_BYTES
from diode_engine.core.hardware import detect
from diode_engine.errors import DiodeError

JOB_CONFIGS = 4
CONFIRM_SECONDS = 25.0  # kept for the last timing of the best configs
CONFIRM_ROUNDS = 3
SAY_SECONDS = 15.0
FIXED_FAMILIES = 6  # the default of so many is also compiled without symbols
MAX_RESTARTS = 8  # after kernels that broke the device
MAX_ERROR = 2e-2  # of a config's output relative to the default's, and of the default's to torch's
COLD_CACHES = 3
MAX_SET_BYTES = 6 << 30
WORTH = 1.02
CONFIRMED = "confirmed"  # written as a row's tier: the config was timed once more
FIXED = "fixed"  # written as a row's config: the default without symbols
CHECK = "check"  # written as a row's config: the default's result compared with torch's

Row = dict[str, Any]


class Rows:
    """Rows in a file, one JSON object a line; those of earlier runs are read."""

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self.rows = _read([path]) if path is not None and path.exists() else []
        self.done = {(row["problem"], _key(row["config"])) for row in self.rows}
        self._file = path.open("a") if path is not None else None

    def add(self, row: Row) -> None:
        self.rows.append(row)
        self.done.add((row["problem"], _key(row["config"])))
        if self._file is not None:
            self._file.write(json.dumps(row) + "\n")
            self._file.flush()


def _read(paths: Iterable[Path]) -> list[Row]:
    """Rows of files; a last line that was cut off is left out."""
    found = []
    for path in paths:
        for line in path.read_text().splitlines():
            try:
                found.append(json.loads(line))
            except ValueError:
                continue
    return found


def _row(problem: Problem, config: Any, tier: Any, **what: Any) -> Row:
    return {**problem.to_dict(), "problem": problem.key, "config": config, "tier": tier, **what}


def _key(config: Any) -> Any:
    return tuple(config) if isinstance(config, list) else config


def jobs(problems: Sequence[Problem], done: set[Any]) -> list[Job]:
    """What is compiled: first the default configs of all families, then the others, family by
    family in the order of the problems."""
    families = list(dict.fromkeys(p.family for p in problems))
    found: list[Job] = []
    for number, family in enumerate(families):
        of_family = [p for p in problems if p.family == family]
        by_tier: dict[int, list[Config]] = defaultdict(list)
        for config, tier in flex_kernels.configs(family).items():
            missing = any((p.key, config) not in done for p in of_family)
            if missing or tier == DEFAULT_TIER:
                by_tier[tier].append(config)
        for tier, configs in by_tier.items():
            found += [
                Job(family, tuple(configs[at : at + JOB_CONFIGS]), tier)
                for at in range(0, len(configs), JOB_CONFIGS)
            ]
        if number % max(1, len(families) // FIXED_FAMILIES) == 0 and family.kind != DECODING:
            middle = of_family[len(of_family) // 2]
            if (middle.key, FIXED) not in done:
                fixed = replace(family, fixed=(middle.batch, middle.length))
                found.append(Job(fixed, tuple(by_tier[DEFAULT_TIER]), AUTOTUNE_TIER))
    return sorted(found, key=lambda job: job.tier)


class Launch:
    """A kernel with a problem's arguments, called with the addresses of the tensors that change."""

    def __init__(
        self, driver: Driver, kernel: Kernel, loaded: Loaded, grid: tuple[int, ...],
        values: dict[str, int], changing: Sequence[str],
    ) -> None:  # fmt: skip
        binary = kernel.binary
        self._driver = driver
        self._place = (ctypes.c_uint64 * len(changing))()
        first = ctypes.addressof(self._place)
        self._kept: list[Any] = []
        pointers = []
        for name, kind in binary.arguments:
            if name in changing:
                pointers.append(first + 8 * changing.index(name))
                continue
            value = (ctypes.c_uint64 if kind.endswith("64") else ctypes.c_uint32)(values[name])
            self._kept.append(value)
            pointers.append(ctypes.addressof(value))
        self._packed = (ctypes.c_void_p * len(pointers))(*pointers)
        self._head = (loaded.function, *grid, 32 * binary.warps, 1, 1, binary.shared_bytes)

    def __call__(self, place: tuple[int, ...], stream: int) -> None:
        self._place[:] = place  # type: ignore[call-overload]
        code = self._driver.launch_kernel(*self._head, stream, self._packed, None)
        if code:
            self._driver.check(code, "cuLaunchKernel")


# The names in the kernels' signatures, by kind: those whose tensors change from launch to launch.
CHANGING = {
    BACKWARD: ("arg_Q", "arg_K", "arg_V", "arg_DO", "arg_DQ", "arg_DV", "out_ptr0"),
    DECODING: ("arg_Q", "arg_K", "arg_V"),
}
FORWARD_CHANGING = ("arg_Q", "arg_K", "arg_V", "out_ptr0")


class Bench:
    """One problem's tensors on the GPU."""

    rotates = True  # so many sets of operands that each is out of the cache when its turn comes

    def __init__(self, problem: Problem, device: torch.device, l2_bytes: int) -> None:
        self.problem = problem
        family = problem.family
        self.changing = CHANGING.get(family.kind, FORWARD_CHANGING)
        dtype = getattr(torch, family.dtype)
        query_rows = 1 if family.kind == DECODING else problem.length
        query = (problem.batch, family.heads, query_rows, family.head)
        key = (problem.batch, family.kv_heads, problem.length, family.head)
        sizes = [
            query if name in ("arg_Q", "arg_DO", "arg_DQ")
            or (name == "out_ptr0" and family.kind != BACKWARD) else key
            for name in self.changing
        ]  # fmt: skip
        step = sum(math.prod(size) for size in sizes) * dtype.itemsize
        count = max(2, min(COLD_CACHES * l2_bytes // step + 2, MAX_SET_BYTES // step))
        self.sets = [
            [torch.randn(size, device=device, dtype=dtype) for size in sizes] for _ in range(count)
        ]
        self._places = [tuple(x.data_ptr() for x in some) for some in self.sets]
        self._turn = 0
        tokens = problem.batch * family.heads * query_rows
        # What is not read, or whose values do not matter, is one piece of memory.
        self._scratch = torch.ones(max(1 << 20, 4 * tokens), dtype=torch.float32, device=device)
        self._lists = {
            f"arg_{_SIGNATURE[name]}": x.to(device)
            for name, x in flex_problems.block_lists(family, problem.length).items()
        }
        self._documents = flex_problems.documents(problem.length).to(device)
        self._partial: list[torch.Tensor] = []  # a decoding kernel's sums, maxima and weights
        self._device = device

    def next(self) -> tuple[int, ...]:
        self._turn = (self._turn + 1) % len(self._places)
        return self._places[self._turn]

    def launch(self, driver: Driver, kernel: Kernel, loaded: Loaded, config: Config) -> Launch:
        p, f = self.problem, self.problem.family
        symbols = {"batch": p.batch, "blocks": p.length // flex_problems.BLOCK}
        arguments = [name for name, _ in kernel.binary.arguments]
        values = dict.fromkeys(arguments, 0)
        values |= dict.fromkeys(
            [n for n in ("arg_LSE", "arg_MAX", "arg_DELTA", "arg_M", "arg_L") if n in values],
            self._scratch.data_ptr(),
        )
        values |= {name: x.data_ptr() for name, x in self._lists.items() if name in values}
        values |= {n: self._documents.data_ptr() for n in arguments if n.startswith("in_ptr")}
        values |= {f"ks{i}": symbols[what] for i, what in enumerate(kernel.sizes)}
        if f.kind == DECODING:
            size = (p.batch, kernel.split, f.heads, 1, f.head)
            if not self._partial:
                self._partial = [
                    torch.zeros(shape, device=self._device)
                    for shape in (size, size[:-1], size[:-1])
                ]
            names = "out_ptr0", "arg_M", "arg_L"
            values |= {n: x.data_ptr() for n, x in zip(names, self._partial, strict=True)}
            grid: tuple[int, ...] = (1, p.batch * f.kv_heads, kernel.split)
        elif f.kind == BACKWARD:
            _, n1, m2, _, *_ = config
            blocks = math.ceil(p.length / m2) * (f.heads // f.kv_heads) + math.ceil(p.length / n1)
            grid = (blocks, p.batch, f.kv_heads)
        else:
            grid = (math.ceil(p.length / config[0]), p.batch, f.heads)
        return Launch(driver, kernel, loaded, grid, values, self.changing)

    def output(self) -> torch.Tensor:
        """The result of the last launch, which must have used the first set; in float32."""
        if not self._partial:
            return self.sets[0][-1].float()
        sums, maxima, weights = self._partial  # by parts of the keys
        part = torch.exp2(maxima - maxima.amax(1, keepdim=True))
        return (sums * part[..., None]).sum(1) / (weights * part).sum(1)[..., None]

    def expected(self) -> torch.Tensor:
        """What `output` should be, by torch and head by head; in float32."""
        p, f = self.problem, self.problem.family
        query, key, value, *others = (x.float() for x in self.sets[0])
        group = f.heads // f.kv_heads
        found = torch.zeros_like(key if f.kind == BACKWARD else query)
        kept = self._kept()
        for b in range(p.batch):
            for h in range(f.heads):
                q, k, v = query[b, h], key[b, h // group], value[b, h // group]
                scores = (q @ k.T * f.head**-0.5).masked_fill(~kept, -math.inf)
                if f.kind != BACKWARD:
                    found[b, h] = scores.softmax(-1) @ v
                    continue
                # The saved logarithms (to base 2) and delta are ones here: `_scratch` holds them.
                weights = torch.exp2(scores * math.log2(math.e) - 1)
                by_score = weights * (others[0][b, h] @ v.T - 1)
                found[b, h // group] += by_score.T @ q * f.head**-0.5
        return found

    def _kept(self) -> torch.Tensor:
        """Which keys each query sees."""
        p, f = self.problem, self.problem.family
        if f.mask == DENSE:
            rows = 1 if f.kind == DECODING else p.length
            return torch.ones(rows, p.length, dtype=torch.bool, device=self._device)
        m = torch.arange(p.length, device=self._device)[:, None]
        n = m.T
        kept = m >= n
        if f.mask == flex_problems.WINDOW:
            kept &= m - n < flex_problems.WINDOW_LENGTH
        if f.mask == flex_problems.DOCUMENT:
            kept &= self._documents[:, None] == self._documents[None, :]
        return kept

    @property
    def first(self) -> tuple[int, ...]:
        return self._places[0]


_SIGNATURE = {
    f"{prefix}{side}_{what}": f"{prefix.upper()}{side.upper()}_{short}"
    for prefix in ("", "full_")
    for side in ("kv", "q")
    for what, short in (("num_blocks", "NUM_BLKS"), ("indices", "IDX"))
}


@dataclass
class State:
    """What is known of a family while it runs."""

    default: Config | None = None
    kernels: dict[Config, Kernel] = field(default_factory=dict)
    waiting: list[tuple[Job, Found]] = field(default_factory=list)


def smallest(problems: Iterable[Problem]) -> set[Problem]:
    """The problem of each family that is computed fastest."""
    found: dict[Family, Problem] = {}
    for problem in problems:
        kept = found.setdefault(problem.family, problem)
        if flex_problems.flops(problem) < flex_problems.flops(kept):
            found[problem.family] = problem
    return {*found.values()}


class DeviceBroken(Exception):
    """A kernel broke the device's context, so this process can launch nothing more."""


class Runner:
    """Times the compiled kernels on this process's GPU."""

    def __init__(self, problems: Sequence[Problem], rows: Rows, deadline: float) -> None:
        self._problems = problems
        self._rows = rows
        self._deadline = deadline
        self._device = torch.device("cuda", torch.cuda.current_device())
        hardware = detect(self._device.index)
        self._l2 = hardware.l2_bytes
        self._timer = DirectTimer(self._device, hardware.clock_mhz, FLUSH_BYTES)
        self._driver = Driver(device=self._device.index)
        self._states: dict[Family, State] = defaultdict(State)
        self._checked = smallest(problems)

    def take(self, job: Job, found: Found) -> None:
        """Times a job's kernels on the problems of its family, or keeps them until the family's
        default is there."""
        family = replace(job.family, fixed=None)
        state = self._states[family]
        if job.family.fixed is None and job.tier == DEFAULT_TIER:
            config, kernel = next(iter(found.items()))
            state.default = config
            if isinstance(kernel, Kernel):
                state.kernels[config] = kernel
            else:
                for problem in self._problems:
                    if problem.family == family:
                        self._rows.add(_row(problem, "default", job.tier, error=kernel))
        if state.default is None:
            state.waiting.append((job, found))
            return
        for ready, compiled in [(job, found), *state.waiting]:
            self._time(ready, compiled, state)
        state.waiting = []

    def _time(self, job: Job, found: Found, state: State) -> None:
        base = state.kernels.get(state.default) if state.default else None
        family = replace(job.family, fixed=None)
        if job.family.fixed is None:
            state.kernels |= {c: k for c, k in found.items() if isinstance(k, Kernel)}
        if base is None or state.default is None:
            return
        for problem in self._problems:
            if problem.family != family or time.monotonic() > self._deadline:
                continue
            if job.family.fixed not in (None, (problem.batch, problem.length)):
                continue
            names: dict[Config, Any] = {
                c: FIXED if job.family.fixed else c
                for c in found if (problem.key, FIXED if job.family.fixed else c)
                not in self._rows.done and (job.family.fixed or c != state.default)
            }  # fmt: skip
            if names:
                self._time_problem(problem, names, found, (state.default, base), job.tier)

    def _time_problem(
        self, problem: Problem, names: dict[Config, Any], found: Found,
        default: tuple[Config, Kernel], tier: int | str, rounds: int = 1,
    ) -> None:  # fmt: skip
        said: set[Any] = set()

        def add(config: Any, **what: Any) -> None:
            said.add(config)
            self._rows.add(_row(problem, config, tier, **what))

        compiled = {config: kernel for config, kernel in found.items() if config in names}
        for config, kernel in compiled.items():
            if isinstance(kernel, str):
                add(names[config], error=kernel)
        kernels = {c: k for c, k in compiled.items() if isinstance(k, Kernel)}
        if not kernels or (problem.key, "default") in self._rows.done:  # it failed
            return
        loaded: list[Loaded] = []
        try:
            bench = Bench(problem, self._device, self._l2)
            timed_kernels: dict[Any, TimedKernel] = {}

            def begin(name: Any, config: Config, kernel: Kernel) -> None:
                loaded.append(self._driver.load(kernel.binary))
                launch = bench.launch(self._driver, kernel, loaded[-1], config)
                timed_kernel = TimedKernel(launch)
                note = self._timer.once(timed_kernel, bench.first)
                try:
                    torch.cuda.synchronize(self._device)
                except RuntimeError as error:
                    for each in self._problems:  # so that no other problem tries it
                        if each.family == problem.family:
                            self._rows.add(_row(each, name, tier, error=str(error)[:300]))
                    raise DeviceBroken(str(error)) from error
                note()
                timed_kernels[name] = timed_kernel

            begin("default", *default)
            reference = bench.output()
            norm = torch.linalg.vector_norm(reference)
            if problem in self._checked and (problem.key, CHECK) not in self._rows.done:
                off = torch.linalg.vector_norm(bench.expected() - reference) / norm
                add(CHECK, off=off.item())
            for config, kernel in kernels.items():
                name = names[config]
                try:
                    begin(name, config, kernel)
                except DriverError as error:
                    add(name, error=str(error))
                    continue
                off = torch.linalg.vector_norm(bench.output() - reference) / norm
                if not off.item() <= MAX_ERROR:
                    add(name, error=f"the result is off by {off.item():.3g}")
                    del timed_kernels[name]
            times: dict[Any, list[float]] = defaultdict(list)
            for _ in range(rounds):
                self._timer.time_in_turn(list(timed_kernels.values()), bench)  # type: ignore[arg-type]
                for name, timed_kernel in timed_kernels.items():
                    times[name] += timed_kernel.times
            default_us = statistics.median(times.pop("default"))
            for name, found_us in times.items():
                us = statistics.median(found_us)
                add(name, us=us, default_us=default_us, launches=len(found_us))
            torch.cuda.synchronize(self._device)
        except torch.OutOfMemoryError as error:
            for name in (n for n in names.values() if n not in said):
                add(name, error=f"out of memory: {error}"[:300])
        except DriverError as error:
            if error.sticky:
                raise DeviceBroken(str(error)) from error
            add("default", error=str(error))
        except RuntimeError as error:
            for name in (n for n in names.values() if n not in said):
                add(name, error=f"{type(error).__name__}: {error}"[:300])
            raise DeviceBroken(str(error)) from error
        for one in loaded:
            self._driver.unload(one)

    def best(self) -> dict[Problem, Config]:
        """The best config of each problem where one is faster than the default and was not timed
        once more."""
        confirmed = {row["problem"] for row in self._rows.rows if row["tier"] == CONFIRMED}
        best = _best(self._rows.rows)
        return {
            p: tuple(best[p.key]["config"])
            for p in self._problems if p.key in best and p.key not in confirmed
        }  # fmt: skip

    def lacks(self, problem: Problem, config: Config) -> bool:
        return config not in self._states[problem.family].kernels

    def keep(self, family: Family, found: Found) -> None:
        kernels = {c: k for c, k in found.items() if isinstance(k, Kernel)}
        self._states[family].kernels |= kernels

    def confirm(self, deadline: float) -> None:
        """Times the best config of each problem and the default once more, in turn."""
        for problem, config in self.best().items():
            state = self._states[problem.family]
            if time.monotonic() > deadline or state.default is None:
                continue
            if config in state.kernels and state.default in state.kernels:
                default = state.default, state.kernels[state.default]
                self._time_problem(
                    problem, {config: config}, dict(state.kernels), default, CONFIRMED,
                    CONFIRM_ROUNDS,
                )  # fmt: skip


def _best(rows: Iterable[Row]) -> dict[str, Row]:
    """By problem: the first timing of its fastest config, where that is faster than the default."""
    best: dict[str, Row] = {}
    for row in rows:
        if isinstance(row["tier"], int) and "us" in row and row["config"] != FIXED:
            ratio = row["default_us"] / row["us"]
            kept = best.get(row["problem"])
            if ratio > (1.0 if kept is None else kept["default_us"] / kept["us"]):
                best[row["problem"]] = row
    return best


def run(problems: Sequence[Problem], rows: Rows, end: float, compilers: Compilers) -> None:
    """Compiles and times until the end, by time.monotonic."""
    start = time.monotonic()
    runner = Runner(problems, rows, end - CONFIRM_SECONDS)
    todo = jobs(problems, rows.done)
    count = sum(len(job.configs) for job in todo)
    print(f"{len(problems)} problems, {count} kernels", flush=True)
    compiled = 0
    said = start
    for job, found in compilers.compiled(todo, end - CONFIRM_SECONDS):
        compiled += len(found)
        runner.take(job, found)
        if time.monotonic() > said + SAY_SECONDS:
            said = time.monotonic()
            print(f"{said - start:4.0f} s: {compiled} kernels, {len(rows.rows)} rows", flush=True)
    seconds = time.monotonic() - start
    print(f"{compiled} kernels, {len(rows.rows)} rows after {seconds:.0f} s", flush=True)
    missing = [
        Job(problem.family, (config,), DEFAULT_TIER)
        for problem, config in runner.best().items() if runner.lacks(problem, config)
    ]  # fmt: skip
    for job, found in compilers.compiled(missing, end - CONFIRM_SECONDS / 2):
        runner.keep(job.family, found)
    runner.confirm(end)


def report(rows: Sequence[Row]) -> None:
    """Prints how much faster the best configs are than the default."""
    if not rows:
        print("Nothing was timed.")
        return
    of_problem: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        of_problem[row["problem"]].append(row)
    off = [row["off"] for row in rows if row["config"] == CHECK]
    wrong = sum(not one <= MAX_ERROR for one in off)
    worst = f", at most {max(off):.2g} off" if off else ""
    print(f"The default's result beside torch's: {len(off)} checked, {wrong} wrong{worst}")
    for kind in [*dict.fromkeys(row["kind"] for row in rows), None]:
        _report_kind(
            kind or "all",
            {p: r for p, r in of_problem.items() if kind in (None, r[0]["kind"])},
        )


def _report_kind(kind: str, some: dict[str, list[Row]]) -> None:
    tried = [r for rs in some.values() for r in rs if isinstance(r["tier"], int)]
    tried = [r for r in tried if r["config"] != CHECK]
    errors = Counter(str(r["error"]).split(":")[0][:60] for r in tried if "error" in r)
    print(f"\n{kind}: {len(some)} problems, {len(tried)} configs tried; errors: {dict(errors)}")
    for last, name in ((AUTOTUNE_TIER, "max-autotune's configs"), (REST_TIER, "all configs")):
        ratios = [
            _ratio(_best(r for r in rs if r["tier"] in range(last + 1)).get(p))
            for p, rs in some.items()
        ]
        _say(f"best of {name}, as first timed", ratios)
    # The second timing of the best; where none is faster than the default there is none.
    again = {r["problem"]: r for rs in some.values() for r in rs if r["tier"] == CONFIRMED}
    found = {p: _ratio(again.get(p)) for p, rs in some.items() if p in again or p not in _best(rs)}
    _say("best of all, timed once more", list(found.values()))
    whole = {
        p: ratio for p, ratio in found.items()
        if any(r["tier"] == LIKELY_TIER for r in some[p])
    }  # fmt: skip
    _say("the same where configs of the exhaustive space were tried", list(whole.values()))
    for what in ("mask", "head", "dtype"):
        groups: dict[Any, list[float]] = defaultdict(list)
        for p, ratio in found.items():
            groups[some[p][0][what]].append(ratio)
        if len(groups) > 1:
            print("    by " + what + ": " + ", ".join(
                f"{g} {measuring.geomean(v):.3f} ({len(v)})" for g, v in groups.items()
            ))  # fmt: skip
    _table(some)
    fixed = [
        r["default_us"] / r["us"] for rs in some.values() for r in rs
        if r["config"] == FIXED and "us" in r
    ]  # fmt: skip
    if fixed:
        print(
            f"  the default with symbols takes {measuring.geomean(fixed):.3f} of its time "
            f"without ({min(fixed):.3f} to {max(fixed):.3f}, {len(fixed)} problems)"
        )


def _ratio(row: Row | None) -> float:
    """The default's time over this one's; 1 where there is none."""
    return row["default_us"] / row["us"] if row is not None and "us" in row else 1.0


def _say(name: str, ratios: list[float]) -> None:
    if ratios:
        over = sum(r > WORTH for r in ratios) / len(ratios)
        print(
            f"  {name}: {measuring.geomean(ratios):.3f} × the default's speed in the geomean, "
            f"over {WORTH} for {over:.0%}, at most {max(ratios):.2f} ({len(ratios)} problems)"
        )


def _table(some: dict[str, list[Row]]) -> None:
    """How good the best single config for each head size and type (Inductor's own key) would be in
    the default's place. It is chosen on the same problems, so the figure is a bit too good."""
    ratios: dict[Any, dict[Any, dict[str, float]]] = defaultdict(lambda: defaultdict(dict))
    for problem, rows in some.items():
        for row in rows:
            if "us" in row and row["tier"] != CONFIRMED and row["config"] != FIXED:
                key = row["head"], row["dtype"]
                ratios[key][_key(row["config"])][problem] = row["default_us"] / row["us"]
    chosen: list[float] = []
    for key, by_config in ratios.items():
        problems = {p for of in by_config.values() for p in of}
        whole = {c: of for c, of in by_config.items() if len(of) == len(problems)}
        if not whole:
            continue
        config, of = max(whole.items(), key=lambda item: measuring.geomean([*item[1].values()]))
        gain = measuring.geomean([*of.values()])
        print(f"    one config for {key}: {config}, {gain:.3f}, at worst {min(of.values()):.3f}")
        chosen += of.values() if gain > 1 else [1.0] * len(of)
    _say("one better config for each head size and type", chosen)
    if chosen:
        print(f"    at worst {min(chosen):.3f} of the default's speed")


def _parts(args: argparse.Namespace, count: int) -> list[Path]:
    """Runs the parts, one on each GPU, and waits for them."""
    paths, children = [], []
    for part in range(1, count + 1):
        path = args.json.with_name(f"{args.json.name}.{part}")
        paths.append(path)
        command = [
            sys.executable, __file__, "--part", f"{part}/{count}", "--json", str(path),
            "--minutes", str(args.minutes), "--workers", str(args.workers // count),
            "--seed", str(args.seed),
        ]  # fmt: skip
        environment = {**os.environ, "CUDA_VISIBLE_DEVICES": str(part - 1)}
        children.append(subprocess.Popen(command, env=environment))
    for child in children:
        child.wait()
    return [path for path in paths if path.exists()]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--json", type=Path)
    parser.add_argument("--minutes", type=float, default=6)
    parser.add_argument("--workers", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--seed", type=int, default=0, help="of the problems' order")
    parser.add_argument("--part", default="1/1")
    parser.add_argument("--caches", type=Path, help="compiled kernels, kept from run to run")
    parser.add_argument("--restarts", type=int, default=0, help=argparse.SUPPRESS)
    parser.add_argument("--plan", action="store_true")
    parser.add_argument("--report", type=Path, nargs="+")
    args = parser.parse_args()
    problems = drawn(flex_problems.plan(), args.seed)
    if args.plan:
        for problem in problems:
            print(f"{problem}  {flex_problems.flops(problem) / 1e9:.1f} GFLOP")
        return
    if args.report:
        report(_read(args.report))
        return
    measuring.need_gpu()
    if args.part == "1/1" and args.json is not None and torch.cuda.device_count() > 1:
        report(_read(_parts(args, torch.cuda.device_count())))
        return
    part, parts = map(int, args.part.split("/"))
    families = list(dict.fromkeys(p.family for p in problems))
    own = set(families[part - 1 :: parts])
    caches = args.caches or Path(tempfile.mkdtemp(prefix="flex-"))
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(caches / "inductor")
    os.environ["TRITON_CACHE_DIR"] = str(caches / "triton")
    path = args.json or caches / "rows"
    end = time.monotonic() + 60 * args.minutes
    rows = Rows(path)
    hardware = detect(torch.cuda.current_device())
    compilers = Compilers(args.workers, hardware, caches / "kernels")
    try:
        run([p for p in problems if p.family in own], rows, end, compilers)
    except DeviceBroken as error:
        compilers.close()
        if args.restarts < MAX_RESTARTS:
            print(f"Begins anew, since a kernel broke the device: {error}"[:300], flush=True)
            minutes = (end - time.monotonic()) / 60
            again = {"--json": path, "--caches": caches, "--minutes": minutes, "--part": args.part,
                     "--workers": args.workers, "--seed": args.seed,
                     "--restarts": args.restarts + 1}  # fmt: skip
            words = [str(word) for option in again.items() for word in option]
            os.execv(sys.executable, [sys.executable, __file__, *words])
        print(f"Ends, since kernels broke the device {MAX_RESTARTS} times.", file=sys.stderr)
    except DiodeError as error:  # the compilers cannot be started
        print(error, file=sys.stderr)
    compilers.close()
    if args.caches is None:
        shutil.rmtree(caches, ignore_errors=True)
    if parts == 1:
        report(rows.rows)
    measuring.leave()


def drawn(problems: Sequence[Problem], seed: int) -> list[Problem]:
    """The problems, their families in an order drawn by the seed, and the problems of each."""
    rng = random.Random(seed)
    families = list(dict.fromkeys(p.family for p in problems))
    rng.shuffle(families)
    place = {family: i for i, family in enumerate(families)}
    shuffled = list(problems)
    rng.shuffle(shuffled)
    return sorted(shuffled, key=lambda p: place[p.family])


if __name__ == "__main__":
    main()
