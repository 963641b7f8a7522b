"""A model's manifest.json, which says what the model is and which files it has: its `format` and
`version`, and the fields of Manifest.

Types, sizes, names and the form of hashes are checked when it is read.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from diode_engine import features
from diode_engine.core.checks import check_not_negative, decode_fields, encode_fields
from diode_engine.core.hardware import Hardware
from diode_engine.documents import Limits, Malformed, check_format, parse_json, shortened, show
from diode_engine.errors import ModelError, RecordError
from diode_engine.models.coverage import Coverage

FORMAT = "diode-model"
VERSION = 1
MANIFEST = "manifest.json"
MAX_MANIFEST = 1 << 20  # bytes; the shipped ones have 2,500
FEATURES = {"version": features.VERSION, "names": features.NAMES_HASH}
_MANIFEST = Limits(MAX_MANIFEST)
MAX_FILE = 256 << 20  # bytes of a member; the shipped trees have 8 million
_MAX_MEMBERS = 64
MAX_MODEL = 512 << 20  # bytes of all files of a model, which are in memory together
_DIGEST = re.compile(r"[0-9a-f]{64}")
_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")
_FILE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}\.safetensors")
EARLIER_HELD_OUT_BY = ("sizes",)  # of models that were made before manifests had `held_out_by`


@dataclass(frozen=True)
class Data:
    """What a model was trained on."""

    datasets: tuple[str, ...] = ()  # content keys: of the timings learned from, then of files
    runs: tuple[str, ...] = ()  # of the store that the timings were in: "import 1", "collect 7"
    problems: int = 0
    timings: int = 0
    files: tuple[str, ...] = ()  # names of the dataset files among those that they came from
    base: str = ""  # the identity of the model that was tuned to these timings

    def __post_init__(self) -> None:
        check_not_negative(self)


@dataclass(frozen=True)
class GpuRecord:
    """What a model has of one GPU: the number of problems and timings it learned from there,
    its metrics on the held-out problems that were timed there, and the `op_types` (as in Coverage)
    of what it learned."""

    hardware: Hardware
    problems: int = 0
    timings: int = 0
    metrics: Mapping[str, Any] = field(default_factory=dict)
    op_types: tuple[str, ...] = ()  # empty: all of the coverage

    def __post_init__(self) -> None:
        check_not_negative(self)


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """What a model says about itself.

    `metrics` holds numbers (or tables of them) by name, measured on held-out problems.
    `held_out_by` says how these were held out (see problems.splits.HELD_OUT_BY). `everything` says
    whether the model was afterwards trained on them too; None: not known. `confidence` is the entry
    of the file with its models.confidence.Confidence; None where it has none. A model of several
    GPUs has a record of each in `gpus`; `hardware` is then the one with the most timings.
    """

    # In the order of the file.
    name: str
    family: str
    purpose: str = "gemm"
    created: str = ""  # UTC, ISO 8601; when it was saved
    diode: str = ""
    hardware: Hardware
    features: Mapping[str, Any] = field(default_factory=FEATURES.copy)
    torch: tuple[str, ...] = ()
    triton: tuple[str, ...] = ()
    coverage: Coverage
    data: Data
    everything: bool | None = None
    held_out_by: tuple[str, ...] = EARLIER_HELD_OUT_BY
    metrics: Mapping[str, Any] = field(default_factory=dict)
    gpus: tuple[GpuRecord, ...] = ()  # empty: the model is of `hardware` alone
    notes: str = ""
    members: tuple[Mapping[str, Any], ...] = ()  # family, file, bytes, sha256
    confidence: Mapping[str, Any] | None = None  # file, bytes, sha256

    @property
    def records(self) -> tuple[GpuRecord, ...]:
        """What the model has of each of its GPUs."""
        data = self.data
        own = GpuRecord(self.hardware, data.problems, data.timings, self.metrics)
        return self.gpus or (own,)

    @property
    def gpu_names(self) -> tuple[str, ...]:
        """The names of its GPUs."""
        return tuple(dict.fromkeys(record.hardware.name for record in self.records))

    def record_for(self, hardware: Hardware) -> GpuRecord:
        """The record of the GPU that is the most alike to this one, which is the GPU's own where
        the model has one."""
        return max(self.records, key=lambda record: hardware.likeness(record.hardware))

    def likeness(self, hardware: Hardware, op_type: str | None = None) -> float:
        """The Hardware.likeness of this GPU to the most alike of the model's GPUs; with `op_type`
        (as in Coverage), of those of which it learned such problems."""
        found = [
            hardware.likeness(record.hardware)
            for record in self.records
            if op_type is None or not record.op_types or op_type in record.op_types
        ]
        return max(found, default=0.0)

    @property
    def files(self) -> tuple[Mapping[str, Any], ...]:
        """The entries (file, bytes, sha256) of all files beside the manifest."""
        return self.members if self.confidence is None else (*self.members, self.confidence)

    @property
    def identity(self) -> str:
        """32 hex digits, equal for models that predict the same, whatever they are called."""
        parts = [
            f"{FORMAT} {VERSION} {' '.join(map(str, FEATURES.values()))} {self.hardware.key}",
            json.dumps(encode_fields(self.coverage), sort_keys=True),
            *(f"{member['family']} {member['sha256']}" for member in self.members),
            *(" ".join(("gpu", record.hardware.key, *record.op_types)) for record in self.gpus),
        ]
        if self.confidence is not None:
            parts.append(f"confidence {self.confidence['sha256']}")
        return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:32]

    def to_dict(self) -> dict[str, Any]:
        """As manifest.json has it."""
        made = {"format": FORMAT, "version": VERSION, **encode_fields(self)}
        if not self.gpus:
            del made["gpus"]
        return made

    @classmethod
    def from_dict(cls, given: Any) -> Manifest:
        """The inverse of `to_dict`. Raises ModelError where a field is missing, of another type or
        impossible, or where the format or the features are not known to this Diode."""
        try:
            check_format(given, FORMAT, VERSION)
        except Malformed as error:
            raise ModelError(f"This is not the manifest of a model. {error}") from None
        if given.get("features") != FEATURES:
            raise ModelError(
                f"The model was made with the features {show(given.get('features'))}, this Diode "
                f"has {FEATURES}; train it again, or use the Diode it was made with."
            )
        try:
            # Models that were made before a field existed lack it, and have its default.
            manifest: Manifest = decode_fields(cls, {**given, "features": FEATURES})
        except RecordError as error:
            why = shortened(str(error).rstrip("."))
            raise ModelError(f"The model's manifest has an impossible field: {why}.") from None
        manifest._check()
        return manifest

    def _check(self) -> None:
        """Raises ModelError where a name, a size or a hash is impossible."""
        check_name(self.name)
        check_name(self.purpose)
        for record in self.records:
            if not 1 <= len(record.hardware.slug) <= 100:  # it names a folder
                raise ModelError(
                    f"The model's hardware is called {show(record.hardware.name)}; a name must "
                    "have 1 to 100 letters and digits."
                )
        if not 1 <= len(self.members) <= _MAX_MEMBERS:
            raise ModelError(
                f"The model's manifest lists {len(self.members)} members; a model has 1 to "
                f"{_MAX_MEMBERS}."
            )
        for entry in self.files:
            _check_weight_file(entry)
        if any(type(member.get("family")) is not str for member in self.members):
            raise ModelError("A member in the model's manifest must have a text as family.")
        if sum(entry["bytes"] for entry in self.files) > MAX_MODEL:
            raise ModelError(f"The model's files are larger than {MAX_MODEL >> 20} MiB together.")
        if len({entry["file"] for entry in self.files}) < len(self.files):
            raise ModelError("The model's manifest names a file twice.")


def _check_weight_file(entry: Mapping[str, Any]) -> None:
    file, size, digest = (entry.get(name) for name in ("file", "bytes", "sha256"))
    if isinstance(file, str) and file.endswith(".ubj"):
        raise ModelError("The model has trees in the form of Diode 0.2.0; train it again.")
    if not isinstance(file, str) or not _FILE.fullmatch(file):
        raise ModelError(
            f"The model's manifest names the file {show(file)}, which cannot be a weight file."
        )
    if not isinstance(digest, str) or not _DIGEST.fullmatch(digest):
        raise ModelError(f"The model's manifest has no valid hash for {file}.")
    if type(size) is not int or not 0 <= size <= MAX_FILE:
        raise ModelError(
            f"The model's file {file} has no size, or is larger than {MAX_FILE >> 20} MiB."
        )


def check_name(name: str) -> str:
    """The name, if a model can have it: lower-case letters, digits, '.', '_' and '-'. Raises
    ModelError otherwise."""
    if not _NAME.fullmatch(name):
        raise ModelError(
            f"{show(name)} cannot name a model; use lower-case letters, digits, '.', '_' and '-', "
            "64 at most, a letter or digit first."
        )
    return name


def parse_manifest(data: bytes, where: Path) -> Manifest:
    """A manifest.json's content, which was found at this place; raises ModelError as
    `load_artifact` does for it."""
    try:
        given = parse_json(data, _MANIFEST)
    except Malformed as error:
        raise ModelError(f"The model's manifest in {where} cannot be read. {error}") from None
    return Manifest.from_dict(given)
