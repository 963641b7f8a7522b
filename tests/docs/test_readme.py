"""README's snippet prints what is chosen: on a GPU, and what it would be without one. Its report is
that of the example."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
SNIPPET, *_ = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
TABLE, *_ = re.findall(r"```text\n(product .*?)```", README, re.DOTALL)
# A compile for the pretended GPU goes up to the kernels' source: then there is no data.
PRETENDED = """
import contextlib
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from diode_engine.inductor.without_gpu import lowering, pretend, program, without_data

pretend()
compile = torch.compile

def compiled(*args, **kwargs):
    function = compile(*args, **kwargs)

    def call(*inputs):
        with contextlib.suppress(program._DataNeeded):
            function(*inputs)

    return call

def layer(*sizes, device="cuda", **kwargs):
    return without_data(linear(*sizes, device="meta", **kwargs))

torch.compile, torch.randn = compiled, torch.empty
linear, torch.nn.Linear = torch.nn.Linear, layer
with lowering(), FakeTensorMode(allow_non_fake_inputs=True):
    exec(PROGRAM)
"""


def pretended(program: str) -> str:
    """The program, on the pretended GPU."""
    return f"PROGRAM = {program!r}\n{PRETENDED}"


@pytest.mark.parametrize(
    "program", [SNIPPET, pretended(SNIPPET)], ids=["without a GPU", "with a GPU"]
)
def test_the_snippet_prints_the_choice(program):
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False,
        timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert re.fullmatch(
        r"addmm 16×4096×4096 bfloat16 row16/col16 takes \w+::\w+.*: .*\n", done.stdout
    )


@pytest.mark.skipif(
    not version("torch").startswith("2.13"), reason="the page shows what torch 2.13 offers"
)
def test_the_report_is_that_of_the_example(tmp_path):
    program = pretended((ROOT / "examples" / "decode.py").read_text(encoding="utf-8"))
    done = subprocess.run(
        [sys.executable, "-m", "diode_engine", "report", "--", sys.executable, "-c", program],
        env={**os.environ, "DIODE_HOME": str(tmp_path)}, cwd=ROOT,
        capture_output=True, text=True, check=True, timeout=120,
    )  # fmt: skip
    assert TABLE.strip() in done.stdout
