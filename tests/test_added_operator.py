"""A new operator is a module of its own and a line in the table (docs/extending.md)."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]


def test_a_module_and_a_line_are_all_that_it_takes():
    """tests/added_operator/paired_mm.py is the module and line.py the line; checks.py checks that
    nothing else is needed."""
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider",
         "-p", "tests.added_operator.line",
         "tests/added_operator/checks.py"],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stdout + ran.stderr
