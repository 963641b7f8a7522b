"""The versions of what is installed."""

from __future__ import annotations

import sys
from importlib import metadata

from diode_engine import version as module


def test_triton_of_a_nightly_torch_is_found(monkeypatch):
    def version(name: str) -> str:
        if name == "pytorch-triton":
            return "3.7.0+git1234"
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "version", version)
    monkeypatch.setattr(module, "_find", module._find.__wrapped__)
    monkeypatch.delitem(sys.modules, "triton", raising=False)
    assert module.triton_version() == "3.7.0+git1234"
