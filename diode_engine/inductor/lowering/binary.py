"""A compiled kernel, with what is needed to launch it."""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from diode_engine.core.timing import KernelFacts
from diode_engine.errors import IntegrationError

# What Triton appends to every kernel's arguments.
SCRATCH_ARGUMENTS = ("global_scratch", "profile_scratch")


@dataclass(frozen=True)
class Binary:
    """A cubin and its one kernel.

    `arguments` are (what, type) in the kernel's order. What is "a", "b", "bias", "out", "size_M"
    and the like (see `symbolic.Rendered`), "workspace", "global_scratch" or "profile_scratch"; type
    is PTX's ("u64", "u32"). `scratch_bytes` of each thread block are passed as global scratch.
    """

    name: str
    cubin: bytes
    warps: int
    shared_bytes: int
    registers: int
    scratch_bytes: int
    arguments: tuple[tuple[str, str], ...]

    @cached_property
    def facts(self) -> KernelFacts | None:
        """Return the compiler's facts; None where the cubin has a form that Diode does not know. (A
        timing of the kernel is valid nevertheless.)"""
        try:
            return kernel_facts(self.cubin, self.registers, self.shared_bytes)
        except (IntegrationError, struct.error, IndexError, ValueError):
            return None


def binary_of(kernel: Any, arguments: Sequence[str]) -> Binary:
    """Return the binary of what Triton has compiled (a CompiledKernel); `arguments` say what its
    arguments are. Raises IntegrationError where the compiled kernel takes other arguments."""
    metadata, cubin = kernel.metadata, kernel.asm["cubin"]
    types = parameter_types(kernel.asm["ptx"])
    names = (*arguments, *SCRATCH_ARGUMENTS)
    if len(types) != len(names) or getattr(metadata, "num_ctas", 1) != 1:
        raise IntegrationError(
            f"Triton compiled {metadata.name} with {len(types)} arguments where Diode knows "
            f"{len(names)}, or for a cluster of blocks; this version is not known."
        )
    return Binary(
        name=metadata.name,
        cubin=cubin,
        warps=metadata.num_warps,
        shared_bytes=metadata.shared,
        registers=registers_of(cubin),
        scratch_bytes=metadata.global_scratch_size,
        arguments=tuple(zip(names, types, strict=True)),
    )


def parameter_types(ptx: str) -> tuple[str, ...]:
    """Return the types of the entry's parameters."""
    entry = re.search(r"\.entry\s+\w+\s*\(([^)]*)\)", ptx)
    return tuple(re.findall(r"\.param\s+\.(\w+)", entry.group(1))) if entry else ()


# An attribute of a cubin's section .nv.info, as `cuobjdump -elf` shows it. Its value is a symbol
# and a number: the registers of a thread of that kernel.
_REGISTERS = 0x2F
_WITH_SIZE = 0x04  # the form of an attribute whose value follows, with as many bytes as it says


def registers_of(cubin: bytes) -> int:
    """Return the registers of a thread of the one kernel in a cubin. Raises IntegrationError where
    the cubin does not say it."""
    info = dict(_sections(cubin)).get(".nv.info", b"")
    at = 0
    while at + 4 <= len(info):
        form, attribute, size = struct.unpack_from("<BBH", info, at)
        at += 4
        if form == _WITH_SIZE:
            if attribute == _REGISTERS:
                registers: int = struct.unpack_from("<II", info, at)[1]
                return registers
            at += size
    raise IntegrationError("A compiled kernel does not say how many registers it needs.")


# Machine code of GPUs from Volta on, as `cuobjdump -sass` shows it. An instruction has 16 bytes.
# Its lowest 12 bits are the operation. In loads and stores, bits 9 to 11 of the upper 8 bytes are
# an index of _WIDTH_BYTES, which has the bytes that a thread moves.
_INSTRUCTION = 16
_OPERATION = 0xFFF
_LOAD_LOCAL, _STORE_LOCAL = 0x983, 0x387
_WIDTH_BYTES = np.array([1, 1, 2, 2, 4, 8, 16, 4])
_KNOWN_ARCHITECTURES = range(70, 100)
_SHIFTS = {7: 0, 8: 8}  # of the architecture in the ELF header's flags, by its ABI's version


def kernel_facts(cubin: bytes, registers: int, shared_bytes: int) -> KernelFacts | None:
    """Count a cubin's instructions, and the bytes of accesses to a thread's local memory; None
    where the code is for a GPU whose instructions are not known."""
    sections = list(_sections(cubin))
    code = b"".join(content for name, content in sections if name.startswith(".text"))
    (flags,) = struct.unpack_from("<I", cubin, 0x30)
    shift = _SHIFTS.get(cubin[8])
    if shift is None or (flags >> shift & 0xFF) not in _KNOWN_ARCHITECTURES:
        return None
    if len(code) % _INSTRUCTION:
        return None
    words = np.frombuffer(code, "<u8").reshape(-1, 2)
    operation = words[:, 0] & _OPERATION
    width = _WIDTH_BYTES[(words[:, 1] >> 9) & 7]
    return KernelFacts(
        registers=registers,
        spill_stores=int(width[operation == _STORE_LOCAL].sum()),
        spill_loads=int(width[operation == _LOAD_LOCAL].sum()),
        shared_bytes=shared_bytes,
        instructions=len(words),
    )


def _sections(elf: bytes) -> Iterator[tuple[str, bytes]]:
    """Return (name, content) of a 64-bit little-endian ELF file's sections."""
    if elf[:6] != b"\x7fELF\x02\x01":
        raise IntegrationError("A compiled kernel is not an ELF file for 64 bits.")
    (start,) = struct.unpack_from("<Q", elf, 0x28)
    size, count, names_index = struct.unpack_from("<HHH", elf, 0x3A)
    headers = [struct.unpack_from("<IIQQQQIIQQ", elf, start + i * size) for i in range(count)]
    names = elf[headers[names_index][4] :]
    for name, kind, _, _, offset, length, *_ in headers:
        content = b"" if kind == 8 else elf[offset : offset + length]  # 8: takes no space
        yield names[name : names.index(b"\0", name)].decode(), content
