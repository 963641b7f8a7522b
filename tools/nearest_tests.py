"""Run the tests nearest to the change, within a time: the last step of `make quick`.

python tools/nearest_tests.py [--base main] [--seconds 75] [--list]

The change is what differs from the merge base with `--base`, committed or not. Nearest are, in this
order, the test files that changed, those named after a changed module, those that import one, and
a fixed core. A test that has not begun after `--seconds` is skipped. `make test` runs all tests.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
# Quick tests that hold what may never change: the choices, the records, the packages' imports.
CORE = (
    "tests/test_unchanged.py",
    "tests/test_imports.py",
    "tests/test_records.py",
    "tests/test_features.py",
)
# Not here: they need a GPU, or hours.
LEFT_OUT = ("tests/gpu/", "tests/soak/")
OWN_PROCESS = "tests/inductor_nogpu/"  # these tests change torch for their whole process


def changed_files(base: str) -> list[str]:
    """Return the paths that differ from the merge base with `base`, and the untracked ones."""

    def lines(*command: str) -> list[str]:
        done = subprocess.run(
            ["git", *command], cwd=ROOT, capture_output=True, text=True, check=False
        )
        return done.stdout.splitlines()

    start = next(iter(lines("merge-base", base, "HEAD")), "HEAD")
    untracked = lines("ls-files", "--others", "--exclude-standard")
    return sorted({*lines("diff", "--name-only", start), *untracked})


def nearest_tests(changed: Sequence[str], tests: dict[str, str]) -> list[str]:
    """Return the names of the test files to run, nearest first.

    changed: paths of changed files, from the repository's root.
    tests: the text of each test file, by its path.
    """
    modules = [path.removesuffix(".py").removesuffix("/__init__") for path in changed
               if path.endswith(".py") and not path.startswith("tests/")]  # fmt: skip
    stems = {f"test_{Path(module).name}.py" for module in modules}
    named = [test for test in tests if Path(test).name in stems]
    importing: list[str] = []
    if modules:
        used = re.compile("|".join(_imports(module) for module in modules))
        importing = [test for test, text in tests.items() if used.search(text)]
    pages = ["tests/docs/test_site.py"] if any(path.endswith(".md") for path in changed) else []
    nearest = [*(path for path in changed if path in tests), *named, *importing, *pages, *CORE]
    return [test for test in dict.fromkeys(nearest) if not test.startswith(LEFT_OUT)]


def _imports(module: str) -> str:
    """Return the pattern of the lines that import `module`, a path without its suffix."""
    package, _, name = module.replace("/", ".").rpartition(".")
    package = re.escape(package)
    return rf"\b{package}\.{name}\b(?!\.\w+ import)|\bfrom {package} import .*\b{name}\b"


def read_tests() -> dict[str, str]:
    """Return the text of each test file, by its path from the repository's root."""
    files = sorted((ROOT / "tests").rglob("test_*.py"))
    return {file.relative_to(ROOT).as_posix(): file.read_text(encoding="utf-8") for file in files}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--base", default="main", help="the branch that the change is compared with"
    )
    parser.add_argument("--seconds", type=float, default=75, help="time for all tests, in seconds")
    parser.add_argument("--list", action="store_true", help="print the test files, run none")
    given = parser.parse_args()
    tests = nearest_tests(changed_files(given.base), read_tests())
    if given.list:
        print("\n".join(tests))
        return 0
    end = time.monotonic() + given.seconds
    apart = [test for test in tests if test.startswith(OWN_PROCESS)]
    failed = False
    for files in ([test for test in tests if test not in apart], apart):
        if files and (left := end - time.monotonic()) > 0:
            command = [sys.executable, "-m", "pytest", "-q", "-x", "-r", "fE", "-n", "2",
                       "--dist", "loadfile", "--within", str(left), *files]  # fmt: skip
            failed |= subprocess.run(command, cwd=ROOT, check=False).returncode != 0
    print(f"{len(tests)} test files near the change; `make test` runs all.")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
