"""Inductor's caches in fresh processes: hit when nothing has changed, else never."""

from __future__ import annotations

import json

from tests.inductor_nogpu.conftest import run_python

# A process for each of the cases compiles a product on the processor, under choices that are
# installed for a pretended GPU, and tells what the FX-graph and AOTAutograd caches did.
PROGRAM = """
import json, os
import numpy as np, torch
import diode_engine
from diode_engine.inductor.choosing import product_chooser
from diode_engine.inductor.without_gpu import pretend
from torch._dynamo.utils import counters
pretend()

def compile_product(asked):
    product_chooser.__version__ = asked.get("diode", product_chooser.__version__)
    product_chooser.RULES = asked.get("rules", product_chooser.RULES)

    class Model:
        identity = asked.get("model", "a")
        def predict_us(self, problem, candidates):
            return np.ones(len(candidates))

    diode_engine.install_diode_choices(predictor=Model(), top_k_configs=1)
    if not asked.get("chooses", True):
        diode_engine.uninstall_diode_choices()
    function = torch.compile(lambda a, b: a @ b, options=asked.get("options"))
    function(torch.ones(8, 8), torch.ones(8, 8))
    hits = counters["aot_autograd"]["autograd_cache_hit"]
    print(json.dumps([counters["inductor"]["fxgraph_cache_hit"], hits]), flush=True)

for asked in json.loads(os.environ["CASES"]):
    if os.fork() == 0:
        try:
            compile_product(asked)
        finally:
            os._exit(0)
    os.wait()
"""
CASES = (
    ({}, [0, 0]),
    ({}, [1, 1]),
    ({"options": {"diode_confidence_threshold": 0.5}}, [0, 0]),
    ({"model": "b"}, [0, 0]),
    ({"diode": "99.0"}, [0, 0]),
    ({"rules": "others"}, [0, 0]),
    ({"chooses": False}, [0, 0]),
    ({}, [1, 1]),
)


def test_a_kernel_is_served_to_whom_it_was_chosen_for(tmp_path):
    cases = json.dumps([asked for asked, _ in CASES])
    said = run_python(PROGRAM, CASES=cases, TORCHINDUCTOR_CACHE_DIR=str(tmp_path))
    found = [json.loads(line) for line in said.splitlines()[: len(CASES)]]
    assert found == [hits for _, hits in CASES], said
