"""Many random products, in processes of their own: without a GPU a test pretends that there is one,
which changes torch for the whole process."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).parents[2]
TESTS = "tests/inductor_nogpu/test_random_products.py"


def test_random_products(tries: Callable[..., int]) -> None:
    count = tries(quick=10, full=2000)
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-n", "auto", TESTS, "--tries", str(count)],
        cwd=ROOT,
        env={**os.environ, "CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stdout[-10_000:]
