"""What Diode uses of torch's dispatcher that is private."""

from __future__ import annotations

import os
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch.utils import _python_dispatch

# The library's product with a bias and ReLU or GELU by tanh.
PRODUCT_WITH_ACTIVATION = torch.ops.aten._addmm_activation.default


def without_modes() -> AbstractContextManager[Any]:
    """Return a context in which no mode of torch's dispatcher is on, so that tensors have data."""
    return _python_dispatch._disable_current_modes()


def calls_cublaslt() -> bool:
    """Return whether torch calls cuBLASLt for a product with a bias, and not cuBLAS, as the
    environment says."""
    return os.environ.get("DISABLE_ADDMM_CUDA_LT") != "1"
