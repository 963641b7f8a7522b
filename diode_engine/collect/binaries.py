"""A folder of compiled kernels, which are found by the key of their kernel class."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgpack

from diode_engine.atomic import write_whole
from diode_engine.core.checks import decode, encode_fields
from diode_engine.core.content_key import content_key
from diode_engine.core.hardware import Environment
from diode_engine.core.timing import Failure
from diode_engine.documents import Limits, Malformed, read_bytes
from diode_engine.inductor.lowering.binary import Binary
from diode_engine.inductor.lowering.kernel_class import KernelClass

FORMAT = 2
_LIMITS = Limits(bytes=16 << 20)  # of a file with one kernel; a cubin has some 100 KB


@dataclass(frozen=True)
class Unbuilt:
    """Why a class has no binary. Where `failure` is None, the kernel itself is not at fault: it has
    to be compiled and timed as Inductor does it."""

    failure: Failure | None
    reason: str


class Binaries:
    """The binaries for one device, torch and Triton, below the folder `root`.

    There is one file for each class, named by the class's key, in a folder named by the
    environment's torch, triton and hardware. Files are written whole or not at all, and a file that
    cannot be read counts as missing. So any number of processes may read and write at once, and end
    at any moment.
    """

    def __init__(self, root: Path, environment: Environment) -> None:
        toolchain = {
            "format": FORMAT,
            "torch": environment.torch,
            "triton": environment.triton,
            "hardware": environment.hardware.key,
        }
        self.root = root
        self.environment = environment
        self.folder = root / content_key("toolchain", toolchain)

    def _path(self, key: str) -> Path:
        return self.folder / key[:2] / f"{key}.msgpack"

    def get(self, cls: KernelClass) -> Binary | Unbuilt | None:
        """The binary of the class, or why there is none; None where it was never compiled."""
        try:
            found: Any = msgpack.unpackb(read_bytes(self._path(cls.key), _LIMITS))
            built: Binary | Unbuilt = (
                decode(Binary, found["binary"]) if "binary" in found else decode(Unbuilt, found)
            )
            return built
        except (OSError, ValueError, KeyError, TypeError, Malformed, msgpack.UnpackException):
            return None

    def missing(self, classes: Iterable[KernelClass]) -> list[KernelClass]:
        """The classes that were never compiled, each once."""
        return [cls for cls in dict.fromkeys(classes) if not self._path(cls.key).exists()]

    def keys(self) -> set[str]:
        """The keys of all classes that were ever compiled."""
        return {path.stem for path in self.folder.glob("??/*.msgpack")}

    def put(self, cls: KernelClass, result: Binary | Unbuilt) -> None:
        """Stores the binary of the class, or why there is none."""
        fields: dict[str, Any] = {"class": cls.to_dict()}
        packed = encode_fields(result)
        fields |= {"binary": packed} if isinstance(result, Binary) else packed
        self.put_packed(cls.key, msgpack.packb(fields))

    def put_packed(self, key: str, content: bytes) -> None:
        """Stores the content of the file of this key, which another machine has."""
        path = self._path(key)
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, content, durable=False)

    def get_packed(self, key: str) -> bytes | None:
        """The content of the file of this key; None where the class was never compiled."""
        try:
            return read_bytes(self._path(key), _LIMITS)
        except (OSError, Malformed):
            return None
