"""Tensors from a file that is not trusted, in the safetensors format: eight bytes with the length
of a header, the header in JSON, and the tensors' bytes one after the other.

The format is read here and not by the library of that name, which copies each tensor and which a
compile would import for this alone: a load takes half the time.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from diode_engine.documents import Limits, Malformed, parse_json, shortened, show
from diode_engine.errors import ModelError
from diode_engine.models.protocol import Matrix

_LENGTH = 8  # bytes of the header's length
_HEADER = Limits(1 << 20)
_METADATA = "__metadata__"  # the one entry of a header that is no tensor


class Tensors:
    """The tensors in a safetensors file's bytes, each taken once; `what` names the file in
    messages. Raises ModelError where the bytes are not safetensors."""

    def __init__(self, data: bytes, what: str) -> None:
        self._what = what
        start = _LENGTH + int.from_bytes(data[:_LENGTH], "little")
        if len(data) < _LENGTH or start > len(data):
            raise ModelError(f"The {what}'s file is truncated or its header is too long.")
        self._body = memoryview(data)[start:]
        try:
            header = parse_json(data[_LENGTH:start], _HEADER)
            if not isinstance(header, dict):
                raise Malformed("Its header is no object.")
            self._left: dict[str, _TensorEntry] = {
                name: _TensorEntry(entry) for name, entry in header.items() if name != _METADATA
            }
            self._check_places()
        except Malformed as error:
            raise ModelError(
                f"The {what}'s file is not valid safetensors: {shortened(str(error))}"
            ) from None

    def _check_places(self) -> None:
        """Raises Malformed where the tensors do not fill the body, one after the other."""
        end = 0
        for entry in sorted(self._left.values(), key=lambda entry: (entry.start, entry.end)):
            if entry.start != end or entry.end < end:
                raise Malformed("Its tensors do not lie one after the other.")
            end = entry.end
        if end != len(self._body):
            raise Malformed("Its tensors do not fill the file.")

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

    def _fitting(
        self, name: str, shape: tuple[int | None, ...], type_: str, dtype: str
    ) -> npt.NDArray[Any]:
        entry = self._left.pop(name, None)
        if entry is None:
            raise ModelError(f"The {self._what}'s file lacks the tensor {name}.")
        fitting = len(entry.shape) == len(shape) and all(
            want in (None, have) for want, have in zip(shape, entry.shape, strict=True)
        )
        size = math.prod(entry.shape) * np.dtype(dtype).itemsize
        if entry.type != type_ or not fitting or entry.end - entry.start != size:
            raise ModelError(
                f"The {self._what}'s tensor {name} is {show(entry.type)} {show(entry.shape)}, "
                "which does not fit its place."
            )
        # A view of bytes, which cannot be written to.
        return np.ndarray(entry.shape, dtype, self._body, entry.start)

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


class _TensorEntry:
    """What the header says of a tensor: its type and shape, and where its bytes are in the body.
    Raises Malformed where it is not an entry."""

    def __init__(self, given: Any) -> None:
        try:
            self.type, self.shape, (self.start, self.end) = (
                given["dtype"], given["shape"], given["data_offsets"],
            )  # fmt: skip
        except (KeyError, TypeError, ValueError):
            raise Malformed(f"An entry of its header is {show(given)}.") from None
        numbers = [*self.shape, self.start, self.end] if isinstance(self.shape, list) else [None]
        if not all(type(number) is int and number >= 0 for number in numbers):
            raise Malformed(f"An entry of its header is {show(given)}.")
