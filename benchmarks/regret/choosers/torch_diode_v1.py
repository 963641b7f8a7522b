"""The model of torch-diode (github.com/exclamaforte/diode), learned from an H100's timings.

ARGUMENT: its v1_model.pt, which is in that repository at
trained_models/matmul_kernel_runtime_prediction; with `pip install torch-diode pandas`. It is asked
as it was trained, with the logarithms of its twelve features, standardised by its own constants,
and ranks kernels of Triton's plain templates alone. It does not know layouts, strides or batches.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

Row = dict[str, Any]
TEMPLATES = ("triton::mm", "triton::bmm")
BITS = {"float16": 16, "bfloat16": 16, "float32": 32}


def chooser(argument: str) -> Callable[[Row, Sequence[Row]], list[int] | None]:
    logging.disable(logging.INFO)
    from torch_diode.model.matmul_model_v1 import MatmulModelV1, ModelWrapper

    constants = ModelWrapper()
    mean = constants.mean_for_standardization.double()
    spread = constants.std_for_standardization.double()
    saved = torch.load(argument, map_location="cpu", weights_only=True)
    weights = saved.pop("model_state_dict")
    model = MatmulModelV1(**saved)
    model.load_state_dict(weights)
    model.eval()

    def choose(problem: Row, candidates: Sequence[Row]) -> list[int] | None:
        places = [i for i, c in enumerate(candidates) if c["template"] in TEMPLATES]
        bits = BITS.get(problem["dtype"])
        if not places or bits is None:
            return None
        m, n, k = (float(problem[size]) for size in "MNK")
        gb = (m * k + k * n + m * n) * bits / 8e9
        gflop = 2 * m * n * k / 1e9
        of_problem = [bits, m, n, k, gb, gflop, gflop / gb]
        names = ("BLOCK_K", "BLOCK_M", "BLOCK_N", "num_stages", "num_warps")
        x = torch.tensor(
            [[*of_problem, *(candidates[i][name] for name in names)] for i in places]
        ).double()
        x = ((x.log() - mean) / spread).float()
        with torch.no_grad():
            us = model(x[:, :7], x[:, 7:]).flatten().numpy()
        return [places[i] for i in np.argsort(us, kind="stable")]

    choose.name = "torch-diode v1"  # type: ignore[attr-defined]
    return choose
