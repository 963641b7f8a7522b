"""cuBLASLt's algorithms for a product of torch's tensors, through ctypes.

Numbers and structures are those of cublasLt.h (cuBLAS 12 and 13). cuBLASLt's matrices are
column-major: it is given the transposes, out.T = b.T @ a.T, so its tiles and clusters are N × M.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from ctypes import (
    byref,
    c_float,
    c_int,
    c_int32,
    c_int64,
    c_size_t,
    c_uint16,
    c_uint32,
    c_uint64,
    c_void_p,
)
from pathlib import Path
from typing import Any

import torch

from diode_engine.inductor.torch_internals.device import current_stream
from diode_engine.models.library_algorithms import Config

WORKSPACE = 32 << 20  # bytes: as much as torch gives cuBLAS on Hopper
TYPES = {torch.float32: 0, torch.float16: 2, torch.bfloat16: 14}  # cudaDataType
COMPUTE_32F, COMPUTE_32F_FAST_TF32 = 68, 77
NO_EPILOGUE, BIAS = 1, 4
SOME_ADDRESS = 256  # of a bias that is not there yet
SUCCESS = 0


class Algorithm(ctypes.Structure):
    _fields_ = (("data", c_uint64 * 8),)


class Result(ctypes.Structure):
    """What the heuristic, or a check, says of an algorithm: the bytes of workspace that it needs,
    and how often its blocks fill the GPU."""

    _fields_ = (
        ("algorithm", Algorithm), ("workspace", c_size_t), ("state", c_int), ("waves", c_float),
        ("reserved", c_int * 4),
    )  # fmt: skip


# cublasLtMatmulAlgoConfigAttributes_t: the attribute and its type, in the order of Config
ATTRIBUTES = (
    (0, c_int32), (1, c_uint32), (6, c_uint32), (2, c_int32), (3, c_uint32), (4, c_uint32),
    (5, c_uint32), (7, c_uint16), (8, c_uint16),
)  # fmt: skip


class CublasError(Exception):
    """A call of cuBLASLt failed."""


class Library:
    """cuBLASLt as torch has loaded it, with a handle, which needs a GPU."""

    def __init__(self) -> None:
        self.calls = ctypes.CDLL(loaded_path())
        self.calls.cublasLtGetVersion.restype = c_size_t
        self.calls.cublasLtMatmul.argtypes = [c_void_p] * 14 + [c_size_t, c_void_p]
        self.version = int(self.calls.cublasLtGetVersion())
        self.handle, self.device = c_void_p(), torch.cuda.current_device()
        self.call("Create", byref(self.handle))

    def status(self, name: str, *args: Any) -> int:
        return int(getattr(self.calls, f"cublasLt{name}")(*args))

    def call(self, name: str, *args: Any) -> None:
        """Raises CublasError where the call fails."""
        if status := self.status(name, *args):
            raise CublasError(f"cublasLt{name} failed with status {status}.")

    def config(self, algorithm: Algorithm) -> Config:
        values = []
        for attribute, kind in ATTRIBUTES:
            value, written = kind(), c_size_t()
            self.call(
                "MatmulAlgoConfigGetAttribute", byref(algorithm), c_int(attribute), byref(value),
                c_size_t(ctypes.sizeof(value)), byref(written),
            )  # fmt: skip
            values.append(int(value.value))
        return Config(*values)

    def changed(
        self, algorithm: Algorithm, config: Config, before: Config | None = None
    ) -> Algorithm | None:
        """A copy of the algorithm with the attributes of the config; None where one is refused.
        `before` are the algorithm's own, if they are known."""
        copy = Algorithm.from_buffer_copy(algorithm)
        before = before or self.config(algorithm)
        for (attribute, kind), value, old in zip(ATTRIBUTES, config, before, strict=True):
            if attribute and value != old:
                new = kind(value)
                if self.status(
                    "MatmulAlgoConfigSetAttribute", byref(copy), c_int(attribute), byref(new),
                    c_size_t(ctypes.sizeof(new)),
                ):  # fmt: skip
                    return None
        return copy


def loaded_path() -> str:
    """The library that this process has loaded, as torch's builds for CUDA do. Raises CublasError
    where there is none."""
    with Path("/proc/self/maps").open() as maps:
        for line in maps:
            if "libcublasLt" in line:
                return line.split()[-1]
    raise CublasError("torch has loaded no libcublasLt.")


def is_vector(bias: torch.Tensor) -> bool:
    """Return whether the bias has one row, which may be expanded to the output's rows."""
    return bias.dim() == 1 or bias.stride(-2) == 0


class Product:
    """One product as cuBLASLt describes it: out = a @ b + bias. The bias is None, a vector (an
    epilogue) or a matrix. The tensors may be on the meta device. Raises CublasError where cuBLASLt
    has no description of the product."""

    def __init__(
        self, library: Library, a: torch.Tensor, b: torch.Tensor, out: torch.Tensor, *,
        bias: torch.Tensor | None = None, tf32: bool = False,
    ) -> None:  # fmt: skip
        self.library, self.kept = library, bias
        self.vector = bias is not None and is_vector(bias)
        self.added = None if self.vector else bias
        self.bias_address = SOME_ADDRESS if bias is None else bias.data_ptr() or SOME_ADDRESS
        self.types = (
            COMPUTE_32F_FAST_TF32 if tf32 else COMPUTE_32F, 0, *[TYPES[a.dtype]] * 2,
            *[TYPES[out.dtype]] * 2,
        )  # fmt: skip
        self.alpha, self.beta = c_float(1), c_float(0 if self.added is None else 1)
        self.descriptor = c_void_p()
        self.a = self.b = self.c = self.d = c_void_p()
        library.call(
            "MatmulDescCreate", byref(self.descriptor), c_int(self.types[0]), c_int(self.types[1])
        )
        self.a, self.b = self._layout(b, 3), self._layout(a, 4)
        self.d = self._layout(out)
        self.c = self.d if self.added is None else self._layout(self.added)
        self._set("MatmulDesc", self.descriptor, 7, c_uint32(BIAS if self.vector else NO_EPILOGUE))
        if self.vector:
            self._set_bias(self.bias_address)

    def _set(self, what: str, descriptor: c_void_p, attribute: int, value: Any) -> None:
        name, size = f"{what}SetAttribute", c_size_t(ctypes.sizeof(value))
        self.library.call(name, descriptor, c_int(attribute), byref(value), size)

    def _set_bias(self, address: int) -> None:
        self._set("MatmulDesc", self.descriptor, 8, c_void_p(address))
        self.bias_address = address

    def _layout(self, x: torch.Tensor, transposes: int | None = None) -> c_void_p:
        """The column-major layout of x.T, or of x, which the attribute `transposes` then turns."""
        rows, columns, row, column = *x.shape[-2:], *x.stride()[-2:]
        turned = not (column == 1 and row >= columns)
        size, leading = ((rows, columns), column) if turned else ((columns, rows), row)
        layout = c_void_p()
        self.library.call(
            "MatrixLayoutCreate", byref(layout), c_int(TYPES[x.dtype]), c_uint64(size[0]),
            c_uint64(size[1]), c_int64(max(leading, size[0])),
        )  # fmt: skip
        if x.dim() == 3:
            self._set("MatrixLayout", layout, 5, c_int32(x.shape[0]))
            self._set("MatrixLayout", layout, 6, c_int64(x.stride(0)))
        if transposes:
            self._set("MatmulDesc", self.descriptor, transposes, c_int32(turned))
        elif turned:
            raise CublasError("cuBLASLt's output must be row-major.")
        return layout

    def __del__(self) -> None:
        for layout in {each.value for each in (self.a, self.b, self.c, self.d)}:
            self.library.status("MatrixLayoutDestroy", c_void_p(layout))
        self.library.status("MatmulDescDestroy", self.descriptor)

    @property
    def described(self) -> tuple[c_void_p, ...]:
        return self.library.handle, self.descriptor, self.a, self.b, self.c, self.d

    def list_algorithms(self, most: int) -> list[Result]:
        """The algorithms that the heuristic lists, the best first."""
        preference, found = c_void_p(), c_int()
        self.library.call("MatmulPreferenceCreate", byref(preference))
        self._set("MatmulPreference", preference, 1, c_uint64(WORKSPACE))
        results = (Result * most)()
        status = self.library.status(
            "MatmulAlgoGetHeuristic", *self.described, preference, c_int(most), results,
            byref(found),
        )  # fmt: skip
        self.library.call("MatmulPreferenceDestroy", preference)
        if status:
            return []
        return [result for result in results[: found.value] if result.state == SUCCESS]

    def ids(self) -> list[int]:
        """The numbers of all algorithms for these types."""
        ids, found = (c_int * 512)(), c_int()
        types = map(c_int, self.types)
        self.library.call(
            "MatmulAlgoGetIds", self.library.handle, *types, c_int(512), ids, byref(found)
        )
        return list(ids[: found.value])

    def initial(self, number: int) -> Algorithm:
        """The algorithm of this number without attributes. Raises CublasError."""
        made = Algorithm()
        types = map(c_int, self.types)
        self.library.call("MatmulAlgoInit", self.library.handle, *types, c_int(number), byref(made))
        return made

    def check(self, algorithm: Algorithm) -> Result | None:
        """What cuBLASLt says of the algorithm for this product; None where it cannot run."""
        result = Result()
        status = self.library.status(
            "MatmulAlgoCheck", *self.described, byref(algorithm), byref(result)
        )
        if status or result.state or result.workspace > WORKSPACE:
            return None
        result.algorithm = algorithm
        return result

    def launcher(self, found: Result) -> Callable[[int, int, int, int], int]:
        """Return a function that launches an algorithm that was listed or checked: of the addresses
        of a, b, out and the bias (any where there is none), which returns cuBLASLt's status."""
        call, device = self.library.calls.cublasLtMatmul, self.library.device
        handle, descriptor, b_layout, a_layout, c_layout, d_layout = (
            each.value for each in self.described
        )
        alpha, beta, algorithm = map(byref, (self.alpha, self.beta, found.algorithm))
        vector, added, size = self.vector, self.added is not None, found.workspace

        def launch(a: int, b: int, out: int, bias: int) -> int:
            if vector and bias != self.bias_address:
                self._set_bias(bias)
            workspace = torch.empty(size, dtype=torch.uint8, device=device) if size else None
            status: int = call(
                handle, descriptor, alpha, b, b_layout, a, a_layout, beta, bias if added else out,
                c_layout, out, d_layout, algorithm,
                None if workspace is None else workspace.data_ptr(), size, current_stream(device),
            )  # fmt: skip
            return status

        return launch
