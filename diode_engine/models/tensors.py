"""Tensors from a file that is not trusted."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from diode_engine.documents import shortened
from diode_engine.errors import ModelError
from diode_engine.models.protocol import Matrix

_MAX_HEADER = 1 << 20


class Tensors:
    """The tensors in a safetensors file's bytes, each taken once; `what` names the file in
    messages. Raises ModelError where the bytes are not safetensors."""

    def __init__(self, data: bytes, what: str) -> None:
        from safetensors import SafetensorError
        from safetensors.numpy import load

        self._what = what
        if len(data) < 8 or int.from_bytes(data[:8], "little") > min(_MAX_HEADER, len(data) - 8):
            raise ModelError(f"The {what}'s file is truncated or its header is too long.")
        try:
            self._left = load(data)
        except (SafetensorError, ValueError, TypeError, KeyError) as error:
            raise ModelError(
                f"The {what}'s file is not valid safetensors: {shortened(str(error))}."
            ) from None

    def __contains__(self, name: str) -> bool:
        return name in self._left

    def take(self, name: str, *shape: int | None) -> Matrix:
        """The float32 tensor of this name and shape (None: any length). Raises ModelError where
        there is no such tensor, or a value is not finite."""
        tensor: Matrix = self._fitting(name, shape, np.float32)
        if not np.isfinite(tensor).all():
            raise ModelError(f"The {self._what}'s tensor {name} holds values that are not finite.")
        tensor.flags.writeable = False
        return tensor

    def whole(self, name: str, *shape: int | None) -> Matrix:
        """The int16 tensor of this name and shape (None: any length), as float32. Raises ModelError
        where there is no such tensor."""
        tensor: Matrix = self._fitting(name, shape, np.int16).astype(np.float32)
        tensor.flags.writeable = False
        return tensor

    def _fitting(
        self, name: str, shape: tuple[int | None, ...], dtype: type[np.generic]
    ) -> npt.NDArray[Any]:
        tensor: npt.NDArray[Any] | None = self._left.pop(name, None)
        if tensor is None:
            raise ModelError(f"The {self._what}'s file lacks the tensor {name}.")
        fitting = len(tensor.shape) == len(shape) and all(
            want in (None, have) for want, have in zip(shape, tensor.shape, strict=True)
        )
        if tensor.dtype != dtype or not fitting:
            raise ModelError(
                f"The {self._what}'s tensor {name} is {tensor.dtype}{list(tensor.shape)}, which "
                "does not fit its place."
            )
        return tensor

    def flag(self, name: str) -> bool:
        """The tensor of one uint8, 0 or 1. Raises ModelError where it is not."""
        tensor = self._left.pop(name, None)
        if tensor is None or tensor.dtype != np.uint8 or tensor.tolist() not in ([0], [1]):
            raise ModelError(f"The {self._what}'s tensor {name} must be one 0 or 1.")
        return bool(tensor[0])

    def end(self) -> None:
        """Raises ModelError where a tensor was not taken."""
        if self._left:
            names = shortened(", ".join(self._left))
            raise ModelError(f"The {self._what}'s file holds unknown tensors: {names}.")
