"""PyTorch's own tests of autotuning, with Diode installed and without: which pass.

    python benchmarks/pytorch_tests.py FILE … [-k EXPRESSION] [--workers N] [--seconds N]
        [--json FILE]

The files are test/inductor/test_max_autotune.py and test_select_algorithm.py of the installed
torch's release (git tag v<version>), which are not part of Diode. Each is run by pytest twice at a
time, in processes and caches of their own, without Diode and with it (`-p diode_engine`), by
`--workers` each (with pytest-xdist; 1: without). They need the package expecttest. A
run that reaches the time limit counts as far as it came, and what only one of them reached is not
compared. What passes only without Diode is run once more with it, without the file's other
tests: one that depends on what its process ran before may pass then. What is left is run with
Diode leaving what it is not certain of to the search: a test that asserts that candidates were
benchmarked passes then (one that a choice of Diode's breaks may, too). Exits with 1 where a test
passes only without Diode, also when only such tests are run.
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
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import torch

_HOW = "(PASSED|FAILED|ERROR|SKIPPED|XFAIL|XPASS)"
_ALONE = re.compile(rf"^(?P<test>\S+::\S+) (?P<how>{_HOW})\b")
_SHARED = re.compile(rf"^\[gw\d+\] (?:\[ *\d+%\] )?(?P<how>{_HOW}) (?P<test>\S+::\S+)")
_WHY = re.compile(r"^(?:FAILED|ERROR) (?P<test>\S+::\S+) - (?P<why>.*)")


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
    """By test how it ended, as far as they came in that time; and why, of those that failed in
    a run that came to its end. `tests` are some of the file's, `options` more of the environment.
    Exits where pytest ends without a test."""
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


def again(
    file: Path,
    tests: Sequence[str],
    what: str,
    *,
    workers: int,
    seconds: float,
    options: Mapping[str, str] | None = None,
) -> tuple[dict[str, str], list[str]]:
    """How these tests end with Diode, without the file's others, and which still fail; tells how
    many pass, `what` being what that says of them."""
    ends, _ = outcomes(
        file.resolve(), diode=True, select="", workers=workers, seconds=seconds, options=options,
        tests=tests,
    )  # fmt: skip
    still = [test for test in tests if ends.get(test) != "PASSED"]
    print(f"  {len(tests) - len(still)} of these {len(tests)} {what}")
    for test in still:
        print(f"  not then either: {test} ({ends.get(test, 'not reached')})")
    sys.stdout.flush()
    return ends, still


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
        "--seconds", type=float, default=3600, help="of each of up to three runs of a file"
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
        how = {"workers": args.workers, "seconds": args.seconds}
        if lost:
            found["again"], lost = again(file, lost, "pass when only these are run", **how)
            write(args.json, document)
        if lost:
            lost_any = True
            what = "pass where Diode leaves the choice to the search"
            found["left_to_search"], _ = again(file, lost, what, options=LEFT_TO_SEARCH, **how)
            write(args.json, document)
    sys.exit(int(lost_any))


if __name__ == "__main__":
    main()
