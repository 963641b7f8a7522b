"""PyTorch's own tests of autotuning, with Diode installed and without: which pass.

    python benchmarks/pytorch_tests.py FILE … [--json FILE] [--seconds N]

The files are test/inductor/test_max_autotune.py and test_select_algorithm.py of the installed
torch's release (git tag v<version>), which are not part of Diode. Each is run by pytest, in a
process of its own without Diode and then with it (`-p diode_engine`); a run that reaches the time
limit counts as far as it came. Exits with 1 where a test passes only without Diode.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import threading
import time
from pathlib import Path

import torch

_LINE = re.compile(r"^(\S+::\S+) (PASSED|FAILED|ERROR|SKIPPED|XFAIL|XPASS)\b")


def outcomes(file: Path, *, diode: bool, seconds: float) -> dict[str, str]:
    """By test how it ended, as far as they came in that time."""
    plugin = ["-p", "diode_engine"] if diode else []
    command = [sys.executable, "-u", "-m", "pytest", "-v", "--tb=no", "-p", "no:cacheprovider",
               *plugin, str(file)]  # fmt: skip
    environment = {**os.environ, "DIODE_DISABLE": "0" if diode else "1", "COLUMNS": "500"}
    found: dict[str, str] = {}
    with subprocess.Popen(
        command, cwd=file.parent, env=environment, text=True, stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    ) as process:  # fmt: skip
        timer = threading.Timer(seconds, process.kill)
        timer.start()
        try:
            assert process.stdout is not None
            for line in process.stdout:
                if match := _LINE.match(line):
                    found[match[1].partition("::")[2]] = match[2]
        finally:
            timer.cancel()
            process.kill()
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])  # type: ignore[union-attr]
    parser.add_argument("files", type=Path, nargs="*")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--seconds", type=float, default=3600, help="of each run")
    args = parser.parse_args()
    if not args.files:
        print("Name PyTorch's test files; see --help.", file=sys.stderr)
        return
    document: dict[str, object] = {"torch": str(torch.__version__)}
    lost_any = False
    for file in args.files:
        start = time.monotonic()
        without = outcomes(file.resolve(), diode=False, seconds=args.seconds)
        with_diode = outcomes(file.resolve(), diode=True, seconds=args.seconds)
        passed = {test for test, how in without.items() if how == "PASSED"}
        lost = sorted(t for t in passed if with_diode.get(t, "not reached") != "PASSED")
        gained = sum(how == "PASSED" for t, how in with_diode.items() if t not in passed)
        lost_any |= bool(lost)
        ours = sum(how == "PASSED" for how in with_diode.values())
        print(f"{file.name}: {len(passed)} of {len(without)} pass without Diode, {ours} of "
              f"{len(with_diode)} with it ({time.monotonic() - start:.0f} s)")  # fmt: skip
        for test in lost:
            print(f"  only without Diode: {test} ({with_diode.get(test, 'not reached')})")
        document[file.name] = {"without": without, "with": with_diode, "lost": lost,
                               "gained": gained}  # fmt: skip
        if args.json is not None:
            args.json.write_text(json.dumps(document, indent=1))
    sys.exit(int(lost_any))


if __name__ == "__main__":
    main()
