"""Diode's version, which pyproject.toml reads from here, and those of torch and Triton."""

from __future__ import annotations

import sys
from functools import cache

__version__ = "0.2.0"

# Triton's distribution has other names in nightly and ROCm builds of torch.
_TRITON = ("triton", "pytorch-triton", "triton-rocm", "pytorch-triton-rocm")


def torch_version() -> str | None:
    """The version of torch; None where it is not installed. It is not imported, which would take
    seconds."""
    return _installed("torch", "torch")


def triton_version() -> str | None:
    """The version of Triton; None where it is not installed. It is not imported."""
    return _installed("triton", *_TRITON)


def without_patch(version: str) -> str:
    """Return the first two numbers of a version: "2.13" of "2.13.0+cpu"."""
    return ".".join(version.split("+")[0].split(".")[:2])


def _installed(module: str, *distributions: str) -> str | None:
    """The version of an imported module, else of the first of these distributions that is
    installed."""
    loaded = getattr(sys.modules.get(module), "__version__", None)
    # It may have been built from source, without metadata.
    return _find(distributions) if loaded is None else str(loaded)


@cache  # one search takes milliseconds
def _find(distributions: tuple[str, ...]) -> str | None:
    from importlib import metadata

    for name in distributions:
        try:
            return metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return None
