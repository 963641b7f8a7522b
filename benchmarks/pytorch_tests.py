"""PyTorch's own tests of autotuning, with Diode installed and without: which pass, and why the
others do not.

    python benchmarks/pytorch_tests.py FILE … [-k EXPRESSION] [--workers N] [--seconds N]
        [--repeats N] [--json FILE]

The files are test/inductor/test_max_autotune.py and test_select_algorithm.py of the installed
torch's release (git tag v<version>), which are not part of Diode. They need the package expecttest.
pytest runs each file without Diode and with it (`-p diode_engine`) at the same time, in processes
and with caches of their own, with `--workers` processes each (by pytest-xdist; 1: without it). A
run that reaches the time limit counts as far as it came. Tests that only one of them reached are
not compared.

A test that passes only without Diode is then run alone, each time in a new process: `--repeats`
times without Diode, with it, and with Diode leaving the products that it is not sure of to the
search. A Markdown table says how often each test passed, and what follows:

- by its process: alone it passes each time, with Diode too;
- flaky: alone it sometimes fails without Diode, or sometimes passes with it;
- asserts a search: it passes each time where the choice is left to the search. Such a test reads
  the code of candidates or counts them, but Diode renders and times none;
- by Diode: none of these.

Exits with 1 where there is one of the last two kinds.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

import torch

_HOW = "(PASSED|FAILED|ERROR|SKIPPED|XFAIL|XPASS)"
_ALONE = re.compile(rf"^(?P<test>\S+::\S+) (?P<how>{_HOW})\b")
_SHARED = re.compile(rf"^\[gw\d+\] (?:\[ *\d+%\] )?(?P<how>{_HOW}) (?P<test>\S+::\S+)")
_WHY = re.compile(r"^(?:FAILED|ERROR) (?P<test>\S+::\S+) - (?P<why>.*)")


_SECONDS_ALONE = 150.0  # a process's start, its compiles and their benchmarks
_LOST = ("asserts a search", "by Diode")
# With Diode in place, and every choice that it is not certain of left to the search.
LEFT_TO_SEARCH = {"DIODE_FALLBACK_TO_AUTOTUNE": "1", "DIODE_CONFIDENCE_THRESHOLD": "1"}


def outcomes(
    file: Path,
    *,
    diode: bool,
    select: str,
    workers: int,
    seconds: float,
    options: Mapping[str, str] | None = None,
    tests: Sequence[str] = (),
) -> tuple[dict[str, str], dict[str, str]]:
    """The outcome of each test, as far as the run came in that time; and the error of those that
    failed, where the run came to its end. `tests` are some of the file's tests, `options` more
    environment variables. Exits where pytest ends without a test."""
    what = [f"{file}::{test}" for test in tests] or [str(file)]
    command = [
        sys.executable, "-u", "-m", "pytest", "-v", "--tb=line", "-rfE", "-p", "no:cacheprovider",
        "-c", os.devnull, "--rootdir", str(file.parent), "-k", select,
        *(["-n", str(workers)] if workers > 1 else []),
        *(["-p", "diode_engine"] if diode else []), *what,
    ]  # fmt: skip
    found: dict[str, str] = {}
    why: dict[str, str] = {}
    said: deque[str] = deque(maxlen=6)
    with tempfile.TemporaryDirectory() as caches:
        environment = {
            **os.environ, **(options or {}), "COLUMNS": "500",
            "DIODE_DISABLE": "0" if diode else "1",
            "TORCHINDUCTOR_CACHE_DIR": caches, "TRITON_CACHE_DIR": f"{caches}/triton",
        }  # fmt: skip
        with subprocess.Popen(
            command, cwd=file.parent, env=environment, text=True, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, start_new_session=True,
        ) as process:  # fmt: skip
            timer = threading.Timer(seconds, _end, [process])
            timer.start()
            try:
                assert process.stdout is not None
                for line in process.stdout:
                    if match := _ALONE.match(line) or _SHARED.match(line):
                        found[_name(match["test"])] = match["how"]
                    elif match := _WHY.match(line):
                        why[_name(match["test"])] = match["why"][:200]
                    elif line.strip("=!\n "):
                        said.append(line[:300])
            finally:
                in_time = timer.is_alive()
                timer.cancel()
                _end(process)
    if in_time and not found:
        sys.exit(f"{file.name}: pytest ended without a test:\n{''.join(said)}")
    return found, why


@dataclass(frozen=True)
class Alone:
    """How often a test passed when it was run alone, `repeats` times in each way, and how it
    failed with Diode."""

    repeats: int
    without: int
    with_diode: int
    left_to_search: int
    why: str

    @property
    def reason(self) -> str:
        if self.with_diode == self.without == self.repeats:
            return "by its process"
        if self.without < self.repeats or self.with_diode:
            return "flaky"
        return "asserts a search" if self.left_to_search == self.repeats else "by Diode"


_WAYS: dict[str, tuple[bool, Mapping[str, str]]] = {
    "without": (False, {}), "with_diode": (True, {}), "left_to_search": (True, LEFT_TO_SEARCH),
}  # fmt: skip


def alone(
    file: Path, tests: Sequence[str], *, repeats: int, at_once: int, seconds: float
) -> Iterator[tuple[str, Alone]]:
    """Runs each of the tests in a process of its own, in every way, `at_once` processes at a time.
    A test that takes longer than `seconds` has not passed."""

    def run(job: tuple[str, str]) -> tuple[bool, str]:
        test, way = job
        diode, options = _WAYS[way]
        ends, why = outcomes(
            file, diode=diode, select="", workers=1, seconds=seconds, options=options, tests=[test]
        )
        return ends.get(test) == "PASSED", why.get(test, "")

    with ThreadPoolExecutor(at_once) as pool:
        started = {
            test: {way: [pool.submit(run, (test, way)) for _ in range(repeats)] for way in _WAYS}
            for test in tests
        }
        for test, ways in started.items():
            found = {way: [each.result() for each in runs] for way, runs in ways.items()}
            counts = {way: sum(passed for passed, _ in runs) for way, runs in found.items()}
            why = next((why for _, why in found["with_diode"] if why), "")
            yield test, Alone(repeats, **counts, why=why)


_HEAD = """\
| test | reason | alone without | with | left to the search | how it fails |
|---|---|---|---|---|---|"""


def row(test: str, each: Alone) -> str:
    """One row of a table in Markdown."""
    counts = " | ".join(
        f"{n}/{each.repeats}" for n in (each.without, each.with_diode, each.left_to_search)
    )
    why = each.why.replace("|", "\\|")[:120]
    return f"| `{test}` | {each.reason} | {counts} | {why} |"


def _name(test: str) -> str:
    return test.partition("::")[2]


def _end(process: subprocess.Popen[str]) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)  # its workers as well


def write(path: Path | None, document: object) -> None:
    if path is not None:
        path.write_text(json.dumps(document, indent=1))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])  # type: ignore[union-attr]
    parser.add_argument("files", type=Path, nargs="*")
    parser.add_argument("-k", dest="select", default="", help="these tests only, as for pytest")
    parser.add_argument("--workers", type=int, default=6)
    parser.add_argument("--json", type=Path)
    parser.add_argument(
        "--seconds", type=float, default=3600, help="of each of the two runs of a whole file"
    )
    parser.add_argument(
        "--repeats", type=int, default=3, help="how often a lost test is run alone in each way"
    )
    args = parser.parse_args()
    if not args.files:
        print("Name PyTorch's test files; see --help.", file=sys.stderr)
        return
    document: dict[str, object] = {"torch": str(torch.__version__)}
    lost_any = False
    for file in args.files:
        start = time.monotonic()

        def run(diode: bool, file: Path = file) -> tuple[dict[str, str], dict[str, str]]:
            return outcomes(
                file.resolve(), diode=diode, select=args.select, workers=args.workers,
                seconds=args.seconds,
            )  # fmt: skip

        with ThreadPoolExecutor() as pool:
            (without, _), (ours, why) = pool.map(run, (False, True))
        both = without.keys() & ours.keys()
        passed = {test for test in both if without[test] == "PASSED"}
        lost = sorted(test for test in passed if ours[test] != "PASSED")
        gained = sorted(t for t in both if ours[t] == "PASSED" and t not in passed)
        skipped = sum(without[test] == "SKIPPED" for test in both)
        print(
            f"{file.name}: of {len(both)} tests that both reached ({len(without)} without Diode, "
            f"{len(ours)} with it) {len(passed)} pass without, "
            f"{len(passed) - len(lost) + len(gained)} with; {skipped} skipped "
            f"({time.monotonic() - start:.0f} s)"
        )
        for test in lost:
            print(f"  only without Diode: {test} ({ours[test]}) {why.get(test, '')}")
        for test in gained:
            print(f"  only with Diode: {test}")
        sys.stdout.flush()
        found = {"without": without, "with": ours, "lost": lost, "gained": gained, "why": why}
        document[file.name] = found
        write(args.json, document)
        if lost:
            print(_HEAD)
        by_itself: dict[str, object] = {}
        for test, each in alone(
            file.resolve(), lost, repeats=args.repeats, at_once=2 * args.workers,
            seconds=_SECONDS_ALONE,
        ):  # fmt: skip
            print(row(test, each), flush=True)
            by_itself[test] = {**asdict(each), "reason": each.reason}
            lost_any |= each.reason in _LOST
            write(args.json, {**document, file.name: {**found, "alone": by_itself}})
        document[file.name] = {**found, "alone": by_itself}
    sys.exit(int(lost_any))


if __name__ == "__main__":
    main()
