"""Kept spaces are what Inductor would have offered."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import diode_engine
from diode_engine.inductor.space import Spaces
from diode_engine.inductor.without_gpu import lower


def test_a_kept_space_is_what_inductor_offers(
    predictor: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    find, hits = Spaces.find, 0

    def compared(
        self: Any, op: str, inputs: Any, uids: Any, overrides: str, sizes: Any, offered: Any
    ) -> Any:
        nonlocal hits
        asked: list[str] = []

        def noted(uid: str) -> Any:
            asked.append(uid)
            return offered(uid)

        found = find(self, op, inputs, uids, overrides, sizes, noted)
        for uid in set(uids) - set(asked):  # its generator was not consumed
            hits += 1
            fresh = Spaces().of(offered(uid))
            places = [place for place, of in enumerate(found.uids) if of == uid]
            assert fresh.candidates == tuple(found.candidates[place] for place in places)
            assert [p.to_kwargs() for p in fresh.params] == [
                found.params[place].to_kwargs() for place in places
            ]
        return found

    monkeypatch.setattr(Spaces, "find", compared)
    rng = np.random.default_rng(0)
    around = (17, 40, 64, 100, 128, 200, 256, 300, 512, 777, 1024, 4096)
    for dtype in (torch.bfloat16, torch.float32):
        for _ in range(14):
            m, n, k = (int(rng.choice(around)) for _ in "mnk")

            def gemm(m: int = m, n: int = n, k: int = k, dtype: torch.dtype = dtype) -> Any:
                def empty(*shape: int) -> torch.Tensor:
                    return torch.empty(shape, dtype=dtype, device="cuda")

                return torch.mm, (empty(m, k), empty(k, n))

            lower(gemm)
    assert hits > 4
    assert diode_engine.get_stats()["fallbacks"] == 0
