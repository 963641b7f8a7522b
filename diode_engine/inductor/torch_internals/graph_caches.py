"""Inductor's and AOTAutograd's caches of compiled graphs."""

from __future__ import annotations

import sys
from typing import Any


def count_cached_graphs() -> int:
    """Return how many graphs this process has taken from a cache so far; 0 where it has compiled
    nothing."""
    utils: Any = sys.modules.get("torch._dynamo.utils")
    if utils is None:
        return 0
    counters = utils.counters
    # A graph that AOTAutograd finds may be counted by Inductor too.
    found = counters["inductor"]["fxgraph_cache_hit"]
    return int(max(found, counters["aot_autograd"]["autograd_cache_hit"]))
