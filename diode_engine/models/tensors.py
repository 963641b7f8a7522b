"""Tensors from a file that is not trusted, in the safetensors format."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from safetensors import SafetensorError, deserialize

from diode_engine.documents import shortened, show
from diode_engine.errors import ModelError
from diode_engine.models.protocol import Matrix

_LENGTH = 8  # bytes, at the beginning, with the length of the header
_MAX_HEADER = 1 << 20


class Tensors:
    """The tensors in a safetensors file's bytes, each taken once; `what` names the file in
    messages. Raises ModelError where the bytes are not safetensors."""

    def __init__(self, data: bytes, what: str) -> None:
        self._what = what
        if int.from_bytes(data[:_LENGTH], "little") > min(len(data), _MAX_HEADER):
            raise ModelError(f"The {what}'s file is truncated or its header is too long.")
        try:
            self._left: dict[str, Any] = dict(deserialize(data))  # type: ignore[no-untyped-call]
        except SafetensorError as error:
            raise ModelError(
                f"The {what}'s file is not valid safetensors: {shortened(str(error))}."
            ) from None

    def __contains__(self, name: str) -> bool:
        return name in self._left

    def take(self, name: str, *shape: int | None) -> Matrix:
        """The float32 tensor of this name and shape (None: any length). Raises ModelError where
        there is no such tensor, or a value is not finite."""
        tensor: Matrix = self._fitting(name, shape, "F32", "<f4")
        if not np.isfinite(tensor).all():
            raise ModelError(f"The {self._what}'s tensor {name} holds values that are not finite.")
        return tensor

    def whole(self, name: str, *shape: int | None) -> Matrix:
        """The int16 tensor of this name and shape (None: any length), as float32. Raises ModelError
        where there is no such tensor."""
        tensor: Matrix = self._fitting(name, shape, "I16", "<i2").astype(np.float32)
        tensor.flags.writeable = False
        return tensor

    def integers(self, name: str, *shape: int | None) -> npt.NDArray[np.int32]:
        """The int32 tensor of this name and shape (None: any length). Raises ModelError where there
        is no such tensor."""
        tensor: npt.NDArray[np.int32] = self._fitting(name, shape, "I32", "<i4")
        return tensor

    def flag(self, name: str) -> bool:
        """The tensor of one uint8, 0 or 1. Raises ModelError where it is not."""
        tensor = self._fitting(name, (1,), "U8", "u1")
        if tensor[0] > 1:
            raise ModelError(f"The {self._what}'s tensor {name} must be one 0 or 1.")
        return bool(tensor[0])

    def end(self) -> None:
        """Raises ModelError where a tensor was not taken."""
        if self._left:
            names = shortened(", ".join(self._left))
            raise ModelError(f"The {self._what}'s file holds unknown tensors: {names}.")

    def _fitting(
        self, name: str, shape: tuple[int | None, ...], type_: str, dtype: str
    ) -> npt.NDArray[Any]:
        entry = self._left.pop(name, None)
        if entry is None:
            raise ModelError(f"The {self._what}'s file lacks the tensor {name}.")
        found = entry["shape"]
        fitting = len(found) == len(shape) and all(
            want in (None, have) for want, have in zip(shape, found, strict=True)
        )
        if entry["dtype"] != type_ or not fitting:
            raise ModelError(
                f"The {self._what}'s tensor {name} is {show(entry['dtype'])} {show(found)}, which "
                "does not fit its place."
            )
        try:
            # A view of bytes, which cannot be written to.
            return np.ndarray(found, dtype, memoryview(entry["data"]).toreadonly())
        except ValueError:  # no values, and a length that NumPy cannot have
            raise ModelError(
                f"The {self._what}'s tensor {name} has a shape that is too large: {show(found)}."
            ) from None
