"""Inductor's caches in fresh processes: hit when nothing has changed, else never."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

# Compiles a product on the processor, under choices that are installed for a pretended GPU, and
# tells what the FX-graph and AOTAutograd caches did.
PROGRAM = """
import json, sys
asked = json.load(sys.stdin)
import numpy as np, torch
import diode_engine
import diode_engine.version
diode_engine.version.__version__ = asked.get("diode", diode_engine.version.__version__)
from diode_engine.choosing import policy
policy.RULES = asked.get("rules", policy.RULES)
from diode_engine.inductor.without_gpu import pretend
pretend()

class Model:
    identity = asked.get("model", "a")
    def predict_us(self, problem, candidates):
        return np.ones(len(candidates))

if asked.get("chooses", True):
    diode_engine.install_diode_choices(predictor=Model(), top_k_configs=1)
else:
    diode_engine.uninstall_diode_choices()
from torch._dynamo.utils import counters
torch.compile(lambda a, b: a @ b, options=asked.get("options"))(torch.ones(8, 8), torch.ones(8, 8))
hits = counters["aot_autograd"]["autograd_cache_hit"]
print(json.dumps([counters["inductor"]["fxgraph_cache_hit"], hits]))
"""


Hits = Callable[..., list[int]]


@pytest.fixture
def hits(tmp_path: Path) -> Hits:
    def run(**asked: object) -> list[int]:
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM],
            input=json.dumps(asked),
            env={**os.environ, "TORCHINDUCTOR_CACHE_DIR": str(tmp_path)},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        found: list[int] = json.loads(done.stdout)
        return found

    return run


def test_a_kernel_is_served_to_whom_it_was_chosen_for(hits: Hits) -> None:
    assert hits() == [0, 0]
    assert hits() == [1, 1]
    assert hits(options={"diode_confidence_threshold": 0.5}) == [0, 0]
    assert hits(model="b") == [0, 0]
    assert hits(diode="99.0") == [0, 0]
    assert hits(rules="others") == [0, 0]
    assert hits(chooses=False) == [0, 0]
    assert hits() == [1, 1]
