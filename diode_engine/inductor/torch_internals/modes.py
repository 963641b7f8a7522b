"""Work on real tensors while torch traces or compiles."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

from torch.utils import _python_dispatch


def without_modes() -> AbstractContextManager[Any]:
    """Return a context in which no mode of torch's dispatcher is on, so that tensors have data."""
    return _python_dispatch._disable_current_modes()
