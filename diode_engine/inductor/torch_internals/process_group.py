"""The store of torch.distributed: keys and values that the processes of a program share."""

from __future__ import annotations

import sys
from typing import Any


def default_store() -> Any:
    """Return the store of the default process group; None where this process has none."""
    distributed = sys.modules.get("torch.distributed")
    if distributed is None or not distributed.is_available() or not distributed.is_initialized():
        return None
    return distributed.distributed_c10d._get_default_store()
