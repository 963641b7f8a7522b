"""A model's manifest.json, which says what the model is and which files it has::

    {"format": "diode-model", "version": 1, "name": …, "family": …, "purpose": "gemm",
     "created": …, "diode": …, "hardware": {…}, "features": {"version": 1, "names": hash},
     "torch": [versions], "triton": [versions],
     "coverage": {"kernels": […], "types": […], "op_types": […]},
     "data": {"datasets": [content keys], "files": [names], "runs": ["import 1", …],
              "problems": n, "timings": n, "base": identity},
     "everything": bool or null, "held_out_by": ["sizes", …], "metrics": {…}, "notes": …,
     "gpus": [{"hardware": {…}, "problems": n, "timings": n, "metrics": {…}}],
     "members": [{"family": …, "file": …, "bytes": n, "sha256": …}],
     "confidence": {"file": …, "bytes": n, "sha256": …} or null}

Types, sizes, names and the form of hashes are checked when it is read.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from diode_engine import features
from diode_engine.core.hardware import Hardware
from diode_engine.documents import Limits, Malformed, parse_json, shortened, show
from diode_engine.errors import DiodeError, ModelError
from diode_engine.models.coverage import Coverage

FORMAT = "diode-model"
VERSION = 1
MANIFEST = "manifest.json"
MAX_MANIFEST = 1 << 20  # bytes; the shipped ones have 2,500
_MANIFEST = Limits(MAX_MANIFEST)
_MAX_FILE = 256 << 20  # bytes of a member; the shipped trees have 8 million
_MAX_MEMBERS = 64
MAX_MODEL = 512 << 20  # bytes of all files of a model, which are in memory together
_DIGEST = re.compile(r"[0-9a-f]{64}")
_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")
_FILE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}\.(safetensors|ubj)")
T = TypeVar("T")
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


@dataclass(frozen=True)
class GpuRecord:
    """What a model has of one GPU: the number of problems and timings it learned from there, and
    its metrics on the held-out problems that were timed there."""

    hardware: Hardware
    problems: int = 0
    timings: int = 0
    metrics: Mapping[str, Any] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """As manifest.json has it."""
        return {
            "hardware": self.hardware.to_dict(), "problems": self.problems,
            "timings": self.timings, "metrics": dict(self.metrics),
        }  # fmt: skip


@dataclass(frozen=True)
class Manifest:
    """What a model says about itself.

    `metrics` holds numbers (or tables of them) by name, measured on held-out problems.
    `held_out_by` says how these were held out (see problems.splits.HELD_OUT_BY). `everything` says
    whether the model was afterwards trained on them too; None: not known. `confidence` is the entry
    of the file with its models.confidence.Confidence; None where it has none. A model of several
    GPUs has a record of each in `gpus`; `hardware` is then the one with the most timings.
    """

    name: str
    family: str
    hardware: Hardware
    coverage: Coverage
    data: Data
    torch: tuple[str, ...] = ()
    triton: tuple[str, ...] = ()
    metrics: Mapping[str, Any] = field(default_factory=dict)
    notes: str = ""
    purpose: str = "gemm"
    created: str = ""  # UTC, ISO 8601; when it was saved
    diode: str = ""
    feature_version: int = features.VERSION
    feature_names: str = features.NAMES_HASH
    members: tuple[Mapping[str, Any], ...] = ()  # family, file, bytes, sha256
    confidence: Mapping[str, Any] | None = None  # file, bytes, sha256
    everything: bool | None = None
    held_out_by: tuple[str, ...] = EARLIER_HELD_OUT_BY
    gpus: tuple[GpuRecord, ...] = ()  # empty: the model is of `hardware` alone

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

    def likeness(self, hardware: Hardware) -> float:
        """The Hardware.likeness of this GPU to the most alike of the model's GPUs."""
        return hardware.likeness(self.record_for(hardware).hardware)

    @property
    def feature_set(self) -> features.FeatureSet:
        """The feature set that the model was trained on."""
        return features.SETS[self.feature_version]

    @property
    def files(self) -> tuple[Mapping[str, Any], ...]:
        """The entries (file, bytes, sha256) of all files beside the manifest."""
        return self.members if self.confidence is None else (*self.members, self.confidence)

    @property
    def identity(self) -> str:
        """32 hex digits, equal for models that predict the same, whatever they are called."""
        parts = [
            f"{FORMAT} {VERSION} {self.feature_version} {self.feature_names} {self.hardware.key}",
            json.dumps(self.coverage.to_dict(), sort_keys=True),
            *(f"{member['family']} {member['sha256']}" for member in self.members),
            *(f"gpu {record.hardware.key}" for record in self.gpus),
        ]
        if self.confidence is not None:
            parts.append(f"confidence {self.confidence['sha256']}")
        return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:32]

    def to_dict(self) -> dict[str, Any]:
        """As manifest.json has it."""
        return {
            "format": FORMAT,
            "version": VERSION,
            "name": self.name,
            "family": self.family,
            "purpose": self.purpose,
            "created": self.created,
            "diode": self.diode,
            "hardware": self.hardware.to_dict(),
            "features": {"version": self.feature_version, "names": self.feature_names},
            "torch": list(self.torch),
            "triton": list(self.triton),
            "coverage": self.coverage.to_dict(),
            "data": {k: list(v) if isinstance(v, tuple) else v
                     for k, v in asdict(self.data).items()},
            "everything": self.everything,
            "held_out_by": list(self.held_out_by),
            "metrics": dict(self.metrics),
            **({"gpus": [record.to_dict() for record in self.gpus]} if self.gpus else {}),
            "notes": self.notes,
            "members": [dict(member) for member in self.members],
            "confidence": None if self.confidence is None else dict(self.confidence),
        }  # fmt: skip

    @classmethod
    def from_dict(cls, given: Any) -> Manifest:
        """The inverse of `to_dict`. Raises ModelError where a field is missing, of another type or
        impossible, or where the format or the features are not known to this Diode."""
        if not isinstance(given, dict) or given.get("format") != FORMAT:
            raise ModelError("This is not the manifest of a Diode model.")
        version = given.get("version")
        if type(version) is not int or version < 1:
            raise ModelError("The model's manifest has no version.")
        if version > VERSION:
            raise ModelError(
                f"The model is of format version {show(version)}, this Diode reads up to "
                f"{VERSION}; update Diode."
            )
        read = _ManifestReader(given)
        made_with = read.read("features", dict)
        feature_version, names = made_with.get("version"), made_with.get("names")
        known = {each.version: each.names_hash for each in features.SETS.values()}
        if type(feature_version) is not int or known.get(feature_version) != names:
            raise ModelError(
                f"The model was made with version {show(feature_version)} of the features "
                f"({show(names)}), this Diode has "
                f"{', '.join(f'version {version} ({h!r})' for version, h in known.items())}; train "
                "it again, or use the Diode it was made with."
            )
        hardware = _hardware(read)
        coverage, data = (
            _ManifestReader(read.read("coverage", dict)),
            _ManifestReader(read.read("data", dict)),
        )
        manifest = cls(
            name=check_name(read.read("name", str)),
            family=read.read("family", str),
            hardware=hardware,
            coverage=Coverage(
                coverage.texts("kernels"),
                coverage.texts("types"),
                # Models that were made before this field existed lack it.
                coverage.texts("op_types") if "op_types" in coverage.given else (),
            ),
            data=Data(
                data.texts("datasets"), data.texts("runs"), data.count("problems"),
                data.count("timings"),
                # Models that were made before these fields existed lack them.
                data.texts("files") if "files" in data.given else (),
                data.read("base", str) if "base" in data.given else "",
            ),
            torch=read.texts("torch"),
            triton=read.texts("triton"),
            metrics=read.read("metrics", dict),
            notes=read.read("notes", str),
            purpose=check_name(read.read("purpose", str)),
            created=read.read("created", str),
            feature_version=feature_version,
            feature_names=known[feature_version],
            diode=read.read("diode", str),
            members=tuple(_member(member) for member in read.read("members", list)),
            confidence=None if given.get("confidence") is None else _weight_file(
                read.read("confidence", dict)),
            everything=None if given.get("everything") is None else read.read("everything", bool),
            held_out_by=EARLIER_HELD_OUT_BY if "held_out_by" not in given
            else read.texts("held_out_by"),
            gpus=tuple(map(_gpu_record, read.read("gpus", list))) if "gpus" in given else (),
        )  # fmt: skip
        if not 1 <= len(manifest.members) <= _MAX_MEMBERS:
            raise ModelError(
                f"The model's manifest lists {len(manifest.members)} members; a model has 1 to "
                f"{_MAX_MEMBERS}."
            )
        files = manifest.files
        if sum(entry["bytes"] for entry in files) > MAX_MODEL:
            raise ModelError(f"The model's files are larger than {MAX_MODEL >> 20} MiB together.")
        if len({entry["file"] for entry in files}) < len(files):
            raise ModelError("The model's manifest names a file twice.")
        return manifest


_KINDS = {str: "a text", int: "a whole number", bool: "true or false", dict: "an object",
          list: "a list"}  # fmt: skip


class _ManifestReader:
    """Reads fields of the expected type; raises ModelError with a sentence otherwise."""

    def __init__(self, given: Mapping[str, Any]) -> None:
        self.given = given

    def read(self, name: str, kind: type[T]) -> T:
        """Return the field of this name and type."""
        value = self.given.get(name)
        if type(value) is not kind:
            raise ModelError(f"The model's manifest must have {_KINDS[kind]} as {name}.")
        return value

    def count(self, name: str) -> int:
        """Return a whole number that is not negative."""
        value = self.read(name, int)
        if value < 0:
            raise ModelError(f"The model's manifest must have no negative number as {name}.")
        return value

    def texts(self, name: str) -> tuple[str, ...]:
        """Return a list of texts."""
        value = self.read(name, list)
        if not all(isinstance(item, str) for item in value):
            raise ModelError(f"The model's manifest must have a list of texts as {name}.")
        return tuple(value)


def _hardware(read: _ManifestReader) -> Hardware:
    try:
        hardware = Hardware.from_dict(read.read("hardware", dict))
    except DiodeError as error:
        raise ModelError(f"The model's hardware is impossible: {shortened(str(error))}") from None
    if not 1 <= len(hardware.slug) <= 100:  # it names a folder
        raise ModelError(
            f"The model's hardware is called {show(hardware.name)}; a name must have 1 to 100 "
            "letters and digits."
        )
    return hardware


def _gpu_record(given: Any) -> GpuRecord:
    if not isinstance(given, dict):
        raise ModelError("A GPU in the model's manifest must be an object.")
    read = _ManifestReader(given)
    counts = read.count("problems"), read.count("timings")
    return GpuRecord(_hardware(read), *counts, read.read("metrics", dict))


def _member(given: Any) -> dict[str, Any]:
    if not isinstance(given, dict):
        raise ModelError("A member in the model's manifest must be an object.")
    return {"family": _ManifestReader(given).read("family", str), **_weight_file(given)}


def _weight_file(given: Mapping[str, Any]) -> dict[str, Any]:
    read = _ManifestReader(given)
    file = read.read("file", str)
    if not _FILE.fullmatch(file):
        raise ModelError(
            f"The model's manifest names the file {show(file)}, which cannot be a weight file."
        )
    digest = read.read("sha256", str)
    if not _DIGEST.fullmatch(digest):
        raise ModelError(f"The model's manifest has no valid hash for {file}.")
    size = read.count("bytes")
    if size > _MAX_FILE:
        raise ModelError(f"The model's file {file} is larger than {_MAX_FILE >> 20} MiB.")
    return {"file": file, "bytes": size, "sha256": digest}


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
