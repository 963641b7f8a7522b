"""The versions of what is installed."""

from __future__ import annotations

import sys
from importlib import metadata

from diode_engine.version import triton_version


def test_triton_of_a_nightly_torch_is_found(monkeypatch):
    def version(name: str) -> str:
        if name == "pytorch-triton":
            return "3.7.0+git1234"
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "version", version)
    monkeypatch.delitem(sys.modules, "triton", raising=False)
    assert triton_version() == "3.7.0+git1234"
