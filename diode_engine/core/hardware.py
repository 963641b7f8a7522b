"""The device that kernels run on, with the facts that a model needs, and the software on it."""

from __future__ import annotations

import contextlib
import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from functools import cache, cached_property, partial
from pathlib import Path
from typing import Any

from diode_engine.core.checks import shown
from diode_engine.core.content_key import content_key
from diode_engine.core.operand import DType
from diode_engine.errors import RecordError

# About a hundred times the values of the largest device of today.
MAX_VALUES = {
    "multiprocessors": 100_000,
    "clock_mhz": 1_000_000,
    "memory_gb_s": 10_000_000,
    "l2_bytes": 2**40,
    "shared_bytes_block": 2**32,
    "shared_bytes_multiprocessor": 2**32,
    "registers_multiprocessor": 2**32,
}


@dataclass(frozen=True)
class Hardware:
    """One kind of device. Two devices with equal fields are the same hardware.

    `backend` is cuda, rocm, xpu or cpu; `arch` is the compute capability ("9.0") or the gfx name.
    Clocks are in MHz (boost), bandwidth is in GB/s (computed from clock and bus width, as in the
    data sheet), sizes are in bytes. A number that is not known is 0; the number of multiprocessors
    of an NVIDIA or AMD GPU must be known.

    Raises RecordError where a field is impossible: negative, or beyond any device (MAX_VALUES).
    """

    backend: str
    name: str
    arch: str
    multiprocessors: int
    clock_mhz: int
    memory_gb_s: int
    l2_bytes: int
    shared_bytes_block: int
    shared_bytes_multiprocessor: int
    registers_multiprocessor: int

    def __post_init__(self) -> None:
        for each in fields(self):
            value = getattr(self, each.name)
            if each.type == "str":
                if not isinstance(value, str) or not value:
                    raise RecordError(f"A hardware's {each.name} is {value!r}; it must be a text.")
                continue
            least = int(each.name == "multiprocessors" and self._family.counts_multiprocessors)
            whole = isinstance(value, int) and not isinstance(value, bool)
            if not whole or not least <= value <= MAX_VALUES[each.name]:
                raise RecordError(
                    f"A hardware's {each.name} is {shown(value)}; it must be a whole number from "
                    f"{least} to {MAX_VALUES[each.name]}."
                )
        if not re.fullmatch(self._family.arch, self.arch):
            raise RecordError(
                f"A hardware's arch is {self.arch!r}; on {self.backend} it must be "
                f"{self._family.arch_example}."
            )

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, given: Mapping[str, Any]) -> Hardware:
        """Raises RecordError on a missing, unknown or impossible field."""
        return cls(**_exactly(cls, given, "hardware"))

    @cached_property
    def key(self) -> str:
        """Content key: 32 hex digits."""
        return content_key("hardware", self.to_dict())

    @property
    def slug(self) -> str:
        """The name as a folder has it; see `slug_of`."""
        return slug_of(self.name)

    def is_called(self, name: str) -> bool:
        """Whether the name, as a person writes it, is this hardware's name or slug."""
        return slug_of(name) == self.slug

    @property
    def _family(self) -> DeviceFamily:
        return FAMILIES.get(self.backend, _OTHER)

    @property
    def is_supported(self) -> bool:
        """Whether Diode times kernels on such devices and chooses kernels for them."""
        return self._family.is_supported

    @property
    def has_wgmma(self) -> bool:
        """Whether it has warpgroup matrix instructions (wgmma): NVIDIA's Hopper alone."""
        return self.backend == "cuda" and self.arch.startswith("9.")

    def peak_flops(self, dtype: DType, *, tf32: bool = False) -> float:
        """Dense floating-point operations (or integer ones) a second, at the boost clock; `tf32`
        concerns float32 alone.

        The operations of a multiprocessor in a clock are from NVIDIA's architecture white papers
        (Volta to Blackwell); any other device counts as Ampere.
        """
        flops = self._family.tensor_flops
        known = [arch for arch in flops if float(arch) <= float(self.arch)] if flops else []
        half = flops[max(known, key=float)] if known else _AMPERE_FLOPS
        if dtype is DType.FLOAT32:
            per_clock = half / 2 if tf32 else 256
        elif dtype is DType.FLOAT64:
            per_clock = 128
        else:
            per_clock = half * 2 / dtype.itemsize
        return self.multiprocessors * self.clock_mhz * 1e6 * per_clock

    def likeness(self, other: Hardware) -> float:
        """How well timings on one device describe the other, from 0 (not at all) to 1 (the same).

        Between backends or generations it is 0: they run other kernels. Within a generation it is
        0.99·exp(−d). Here d is the sum of abs(ln(ours / theirs)) over the rates that decide a
        product's time, and 0.5 more where the shared memory of a block differs. Devices of the same
        name have 0.995. The formula is an assumption; docs/notes/transfer.md says what was
        measured.
        """
        if self.key == other.key:
            return 1.0
        if self.backend != other.backend or self.arch.split(".")[0] != other.arch.split(".")[0]:
            return 0.0
        distance = 0.0
        for rate in ("multiprocessors", "clock_mhz", "memory_gb_s", "l2_bytes"):
            ours, theirs = max(1, getattr(self, rate)), max(1, getattr(other, rate))
            distance += abs(math.log(ours / theirs))
        if self.shared_bytes_block != other.shared_bytes_block:
            distance += 0.5
        return 0.99 * math.exp(-distance) if self.name != other.name else 0.995


@dataclass(frozen=True)
class DeviceFamily:
    """The devices of one backend of torch: what differs between vendors (see FAMILIES)."""

    # (torch, index or None): the device of this process, or None where torch has no such device.
    detect: Callable[[Any, int | None], Hardware | None]
    arch: str = r"[\s\S]+"  # a pattern of Hardware.arch, and in words
    arch_example: str = "a text"
    is_supported: bool = False  # has templates, features, and a way to time kernels
    counts_multiprocessors: bool = False  # whether their number must be known
    # Dense 16-bit operations a clock of one multiprocessor, by arch. An arch has those of the
    # newest earlier one.
    tensor_flops: Mapping[str, int] = field(default_factory=dict)


_NO_SLUG = re.compile(r"[^a-z0-9]+")


def slug_of(name: str) -> str:
    """A hardware's name, or its slug, as a folder has it: "NVIDIA H200" is nvidia-h200."""
    return _NO_SLUG.sub("-", name.lower()).strip("-")


def find_name(name: str, names: Iterable[str]) -> str | None:
    """The one of the hardware's `names` (or slugs) that a person means by `name`: the one of the
    same slug, else the one that has these words, in this order: "H100" and "h100-80gb" mean "NVIDIA
    H100 80GB HBM3". Of several the longest, where the others are its beginnings;
    else it is not known which is meant, and the answer is None, as where there is none."""
    by_slug = {slug_of(each): each for each in names}
    wanted = slug_of(name)
    if wanted in by_slug:
        return by_slug[wanted]
    found = sorted((slug for slug in by_slug if f"-{wanted}-" in f"-{slug}-"), key=len)
    if wanted and found and all(f"{found[-1]}-".startswith(f"{slug}-") for slug in found):
        return by_slug[found[-1]]
    return None


@dataclass(frozen=True)
class Environment:
    """What a timing depends on besides the problem and the candidate."""

    hardware: Hardware
    driver: str
    torch: str
    triton: str

    def __post_init__(self) -> None:
        if not isinstance(self.hardware, Hardware):
            raise RecordError("An environment's hardware must be a Hardware.")
        for name in ("driver", "torch", "triton"):
            value = getattr(self, name)
            if not isinstance(value, str):
                raise RecordError(f"An environment's {name} is {value!r}; it must be a text.")

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, given: Mapping[str, Any]) -> Environment:
        """Raises RecordError on a missing, unknown or impossible field."""
        checked = _exactly(cls, given, "environment")
        if not isinstance(checked["hardware"], Mapping):
            raise RecordError("An environment's hardware must be a mapping.")
        return cls(**{**checked, "hardware": Hardware.from_dict(checked["hardware"])})

    @cached_property
    def key(self) -> str:
        """Content key: 32 hex digits."""
        return content_key("environment", self.to_dict())


def _exactly(cls: type, given: Mapping[str, Any], what: str) -> dict[str, Any]:
    names = {field.name for field in fields(cls)}
    if missing := sorted(names - set(given)):
        raise RecordError(f"The {what} lacks the fields {', '.join(missing)}.")
    if unknown := sorted(set(given) - names):
        raise RecordError(f"The {what} has unknown fields: {', '.join(unknown)}.")
    return dict(given)


@cache
def detect(index: int | None = None) -> Hardware:
    """The hardware of this process's device `index` (the current one if None); the CPU where
    there is no other. Imports torch."""
    import torch

    found = (family.detect(torch, index) for family in FAMILIES.values())
    return next(hardware for hardware in found if hardware is not None)


def _detect_cuda(torch: Any, index: int | None, *, rocm: bool = False) -> Hardware | None:
    """An NVIDIA GPU, or with `rocm` one of AMD's: torch has the same functions for both."""
    if not torch.cuda.is_available() or (getattr(torch.version, "hip", None) is not None) != rocm:
        return None
    p = torch.cuda.get_device_properties(torch.cuda.current_device() if index is None else index)
    # The clock rates are in kHz; memory moves twice a clock.
    bandwidth = 2e3 * p.memory_clock_rate * p.memory_bus_width / 8 / 1e9
    return Hardware(
        backend="rocm" if rocm else "cuda",
        name=p.name,
        arch=p.gcnArchName.split(":")[0] if rocm else f"{p.major}.{p.minor}",
        multiprocessors=p.multi_processor_count,
        clock_mhz=round(p.clock_rate / 1e3),
        memory_gb_s=round(bandwidth),
        l2_bytes=p.L2_cache_size,
        shared_bytes_block=getattr(p, "shared_memory_per_block_optin", 0),
        shared_bytes_multiprocessor=getattr(p, "shared_memory_per_multiprocessor", 0),
        registers_multiprocessor=getattr(p, "regs_per_multiprocessor", 0),
    )


def _detect_xpu(torch: Any, index: int | None) -> Hardware | None:
    if not (hasattr(torch, "xpu") and torch.xpu.is_available()):
        return None
    x = torch.xpu.get_device_properties(0 if index is None else index)
    return Hardware(
        backend="xpu",
        name=x.name,
        arch=str(getattr(x, "version", "") or "xpu"),
        multiprocessors=getattr(x, "gpu_subslice_count", 0),
        clock_mhz=0,
        memory_gb_s=0,
        l2_bytes=getattr(x, "last_level_cache_size", 0),
        shared_bytes_block=getattr(x, "local_mem_size", 0),
        shared_bytes_multiprocessor=0,
        registers_multiprocessor=0,
    )


def _detect_cpu(torch: Any, index: int | None) -> Hardware:
    import platform

    name = platform.processor() or platform.machine() or "cpu"
    return Hardware("cpu", name, platform.machine() or "cpu", 0, 0, 0, 0, 0, 0, 0)


_AMPERE_FLOPS = 2048
# By Hardware.backend, in the order in which `detect` looks for a device.
FAMILIES: Mapping[str, DeviceFamily] = {
    "cuda": DeviceFamily(
        _detect_cuda,
        arch=r"\d{1,3}\.\d{1,3}",
        arch_example='like "9.0"',
        is_supported=True,
        counts_multiprocessors=True,
        tensor_flops={
            "7.0": 1024, "8.0": _AMPERE_FLOPS, "8.6": 1024, "9.0": 4096, "10.0": 8192,
        },
    ),
    "rocm": DeviceFamily(partial(_detect_cuda, rocm=True), counts_multiprocessors=True),
    "xpu": DeviceFamily(_detect_xpu),
    "cpu": DeviceFamily(_detect_cpu),
}  # fmt: skip
_OTHER = FAMILIES["cpu"]  # what is known of a backend that is not in the table


# The GPUs that a file may name without their facts (KNOWN). The H200's, which most shipped timings
# were taken on, are from the data sheet and from torch on that machine.
H200 = Hardware(
    backend="cuda",
    name="NVIDIA H200",
    arch="9.0",
    multiprocessors=132,
    clock_mhz=1980,
    memory_gb_s=4814,
    l2_bytes=62914560,
    shared_bytes_block=232448,
    shared_bytes_multiprocessor=233472,
    registers_multiprocessor=65536,
)
# As torch reported them on the H100 of the shipped timings.
_H100 = replace(H200, name="NVIDIA H100 80GB HBM3", memory_gb_s=3352, l2_bytes=52428800)
# From the data sheet alone.
_A100 = replace(
    H200,
    name="NVIDIA A100-SXM4-80GB",
    arch="8.0",
    multiprocessors=108,
    clock_mhz=1410,
    memory_gb_s=2039,
    l2_bytes=41943040,
    shared_bytes_block=166912,
    shared_bytes_multiprocessor=167936,
)
# "NVIDIA H100" is the name in torch-diode's published files.
KNOWN = {
    hardware.name: hardware
    for hardware in (
        H200,
        _H100,
        replace(_H100, name="NVIDIA H100"),
        _A100,
        replace(_A100, name="NVIDIA A100-SXM4-40GB", memory_gb_s=1555),
    )
}


def environment() -> Environment:
    """This process's current GPU and software. Imports torch and triton."""
    import torch
    import triton

    return Environment(
        hardware=detect(),
        driver=_driver_version(),
        torch=str(torch.__version__),
        triton=triton.__version__,
    )


def _driver_version() -> str:
    """The version of the GPU's driver; "" where the system does not say it."""
    with contextlib.suppress(OSError):
        text = Path("/proc/driver/nvidia/version").read_text()
        if found := re.search(r"\b\d{3,}\.\d+(\.\d+)?\b", text):
            return found.group()
    return ""


def get_detected_hardware(device: int | None = None) -> Hardware:
    """The GPU of that index (None: the current one); the processor where torch sees no GPU. GPUs of
    NVIDIA, AMD (ROCm) and Intel (XPU) are described; there are models for NVIDIA's only. Imports
    torch and initialises it for the device. Raises ImportError without torch."""
    return detect(device)
