"""What is known for which GPU, by the models that Diode ships."""

from __future__ import annotations

from dataclasses import replace

from diode_engine import registry
from diode_engine.core.hardware import H200, KNOWN


def test_data_transfer_or_nothing() -> None:
    own = registry.known_for(H200)
    assert own.basis is registry.Basis.DATA
    assert "timings of this GPU" in str(own)
    unlike = replace(H200, name="NVIDIA GH200 made up", memory_gb_s=4000)
    transferred = registry.known_for(unlike)
    assert transferred.basis is registry.Basis.TRANSFER
    assert "by transfer from NVIDIA H200" in str(transferred)
    assert "not measured" in str(transferred)
    assert registry.known_for(KNOWN["NVIDIA A100-SXM4-80GB"]).basis is registry.Basis.NOTHING
