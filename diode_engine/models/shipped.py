"""Files that ship with Diode for a GPU, besides the models of the registry. They are read as a part
of Diode: nothing is expected of them but that they may have been damaged."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from diode_engine import paths
from diode_engine.core.hardware import Hardware
from diode_engine.documents import shortened
from diode_engine.errors import ModelError

T = TypeVar("T")


def shipped_path(hardware: Hardware, name: str) -> Path:
    """Return where the file of this name for a GPU would be; not every GPU has one."""
    return paths.shipped_dir() / "trained_models" / hardware.slug / name


def read_shipped(path: Path, read: Callable[[bytes], T]) -> T | None:
    """Return what `read` makes of the file's bytes; None where there is no file. Raises ModelError
    where it is damaged."""
    try:
        return read(path.read_bytes())
    except FileNotFoundError:
        return None
    except (
        ModelError, OSError, LookupError, TypeError, ValueError, OverflowError, RecursionError
    ) as error:  # fmt: skip
        raise ModelError(
            f"{path} cannot be read ({shortened(str(error))}); install Diode again."
        ) from None
