"""What was chosen stands where Inductor's users look for it."""

from __future__ import annotations

import json

from tests.inductor_nogpu.conftest import run_python

PROGRAM = """
import torch
import diode_engine
from diode_engine.core.hardware import H200
from diode_engine.inductor import without_gpu

without_gpu.pretend(H200)
without_gpu.lower(
    lambda: (torch.mm, [torch.empty(8192, 8192, dtype=torch.bfloat16, device="cuda")] * 2)
)
"""


def test_torch_s_logs_have_each_product_where_they_are_asked_for(tmp_path):
    """A line in TORCH_LOGS (test_install.py has a program without it), and in TORCH_TRACE an
    artifact for tlparse."""
    said = run_python(PROGRAM, TORCH_LOGS="autotuning", TORCH_TRACE=str(tmp_path))
    (line,) = [line for line in said.splitlines() if "Diode:" in line]
    assert "mm 8192×8192×8192 bfloat16" in line
    assert "µs" in line
    assert "confidence" in line
    (log,) = tmp_path.glob("*.log")
    lines = log.read_text().splitlines()
    (place,) = [i for i, line in enumerate(lines) if '"name": "diode_choice"' in line]
    record = json.loads(lines[place + 1])
    assert record["problem"]["M"] == 8192
    assert record["kernels"][0]["predicted_us"] > 0
    assert record["library_us"] > 0
    assert record["why"]
