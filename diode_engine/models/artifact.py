"""A model on disk: a folder with manifest.json and one weight file a member, none of which can
hold code::

    {"format": "diode-model", "version": 1, "name": …, "family": …, "purpose": "gemm",
     "created": …, "diode": …, "hardware": {…}, "features": {"version": 1, "names": hash},
     "torch": [versions], "triton": [versions],
     "coverage": {"kernels": […], "types": […], "op_types": […]},
     "data": {"datasets": [content keys], "files": [names], "runs": ["import 1", …],
              "problems": n, "timings": n, "base": identity},
     "everything": bool or null, "held_out_by": ["sizes", …], "metrics": {…}, "notes": …,
     "members": [{"family": …, "file": …, "bytes": n, "sha256": …}],
     "confidence": {"file": …, "bytes": n, "sha256": …} or null}

What is read is believed only after it has been looked at: sizes before they are read, hashes
before they are parsed, names before they are opened.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import json
import os
import re
import shutil
import stat
import tempfile
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from diode_engine import features
from diode_engine.atomic import UNFINISHED
from diode_engine.core.hardware import Hardware
from diode_engine.core.operators import Operator
from diode_engine.core.problem import Problem
from diode_engine.core.resources import many_loads
from diode_engine.core.table import TimingTable
from diode_engine.documents import Limits, Malformed, parse_json, shortened, show
from diode_engine.errors import DiodeError, ModelError
from diode_engine.models.confidence import Confidence
from diode_engine.models.families import FAMILIES
from diode_engine.models.members import family_of
from diode_engine.models.protocol import TimingModel
from diode_engine.version import __version__

FORMAT = "diode-model"
VERSION = 1
MANIFEST = "manifest.json"
MAX_MANIFEST = 1 << 20  # bytes; the shipped ones have 2,500
_MANIFEST = Limits(MAX_MANIFEST)
_MAX_FILE = 256 << 20  # bytes of a member; the shipped trees have 8 million
_MAX_MEMBERS = 64
MAX_MODEL = 512 << 20  # bytes of all files of a model, which are in memory together
_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")
_FILE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}\.(safetensors|ubj)")


MIN_MANY = 300  # problems; a few timings each on a hundred are lost among millions
_MANY = ", many loads"
OF_BEFORE = ("sizes",)  # by what problems were held out before manifests told it


@dataclass(frozen=True)
class Coverage:
    """What occurs in the training timings. The model predicts nothing else."""

    kernels: tuple[str, ...]  # as `kernel` has them
    types: tuple[str, ...]  # as `type_of` has them
    op_types: tuple[str, ...] = ()  # "mm bfloat16"; empty in older models: each op has all types

    @property
    def known_op_types(self) -> frozenset[str]:
        """The ops with each type that was timed on them, as `op_type` has them."""
        if self.op_types:
            return frozenset(self.op_types)
        ops = {name.partition(" ")[0] for name in self.kernels}
        return frozenset(f"{op} {type_}" for op in ops for type_ in self.types)

    def joined(self, other: Coverage) -> Coverage:
        """What either covers."""
        return Coverage(
            tuple(sorted({*self.kernels, *other.kernels})),
            tuple(sorted({*self.types, *other.types})),
            tuple(sorted(self.known_op_types | other.known_op_types)),
        )

    def to_dict(self) -> dict[str, list[str]]:
        """As manifest.json has it: what an older model has not is left out."""
        return {k: list(v) for k, v in asdict(self).items() if v or k != "op_types"}

    @classmethod
    def of(cls, table: TimingTable) -> Coverage:
        """What occurs in the table's successful timings."""
        timed = table.take(table.failure == 0)
        problems = [table.problems[i] for i in set(timed.problem.tolist())]
        many = many_loads(timed.problems, timed.candidates, timed.problem, timed.candidate)
        found: dict[str, set[int]] = defaultdict(set)
        for p, c, m in zip(
            timed.problem.tolist(), timed.candidate.tolist(), many.tolist(), strict=True
        ):
            found[kernel(table.problems[p].op, table.candidates[c].template, many=m)].add(p)
        kernels = {k for k, on in found.items() if len(on) >= MIN_MANY or not _is_many(k)}
        return cls(
            tuple(sorted(kernels)),
            tuple(sorted({type_of(problem) for problem in problems})),
            tuple(sorted({op_type(problem) for problem in problems})),
        )


def kernel(op: Operator, template: str, *, many: bool = False) -> str:
    """How the coverage names a template on an op. The op is part of it: timings of decompose_k on
    mm say nothing of decompose_k on bmm.

    With `many` it means the template's kernels with many loads a thread (resources.many_loads).
    Other kernels say nothing of them, and few timings say too little: timings on MIN_MANY problems
    are needed.
    """
    return f"{op} {template}{_MANY if many else ''}"


def _is_many(name: str) -> bool:
    return name.endswith(_MANY)


def type_of(problem: Problem) -> str:
    """The kind of arithmetic: the operands' type, or "tf32" for a float32 product that may be
    computed so."""
    return "tf32" if problem.allow_tf32 else str(problem.dtype)


def op_type(problem: Problem) -> str:
    """An op with its kind of arithmetic: an op that was timed in bfloat16 only is not known in
    float32, whatever was timed of other ops."""
    return f"{problem.op} {type_of(problem)}"


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
class Manifest:
    """What a model says about itself.

    `metrics` holds numbers (or tables of them) by name, measured on held-out problems.
    `held_out_by` says how these were held out (see problems.splits.HELD_OUT_BY). `everything` says
    whether the model was trained on them too; None: not known. `confidence` is the file of its
    models.confidence.Confidence, None where it has none.
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
    held_out_by: tuple[str, ...] = OF_BEFORE

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
            "notes": self.notes,
            "members": [dict(member) for member in self.members],
            "confidence": None if self.confidence is None else dict(self.confidence),
        }  # fmt: skip

    @classmethod
    def from_dict(cls, given: Any) -> Manifest:
        """Raises ModelError where a field is missing, of another type, too new or foreign."""
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
        made_with = read.mapping("features")
        feature_version, names = made_with.get("version"), made_with.get("names")
        known = {each.version: each.names_hash for each in features.SETS.values()}
        if type(feature_version) is not int or known.get(feature_version) != names:
            raise ModelError(
                f"The model was made with version {show(feature_version)} of the features "
                f"({show(names)}), this Diode has "
                f"{', '.join(f'version {version} ({h!r})' for version, h in known.items())}; train "
                "it again, or use the Diode it was made with."
            )
        try:
            hardware = Hardware.from_dict(read.mapping("hardware"))
        except DiodeError as error:
            raise ModelError(
                f"The model's hardware is impossible: {shortened(str(error))}"
            ) from None
        if not 1 <= len(hardware.slug) <= 100:  # it names a folder
            raise ModelError(
                f"The model's hardware is called {show(hardware.name)}; a name must have 1 to 100 "
                "letters and digits."
            )
        coverage, data = (
            _ManifestReader(read.mapping("coverage")),
            _ManifestReader(read.mapping("data")),
        )
        manifest = cls(
            name=check_name(read.text("name")),
            family=read.text("family"),
            hardware=hardware,
            coverage=Coverage(
                coverage.texts("kernels"),
                coverage.texts("types"),
                # Models of before this was written have none.
                coverage.texts("op_types") if "op_types" in coverage.given else (),
            ),
            data=Data(
                data.texts("datasets"), data.texts("runs"), data.count("problems"),
                data.count("timings"),
                # Models of before these were written have neither.
                data.texts("files") if "files" in data.given else (),
                data.text("base") if "base" in data.given else "",
            ),
            torch=read.texts("torch"),
            triton=read.texts("triton"),
            metrics=read.mapping("metrics"),
            notes=read.text("notes"),
            purpose=check_name(read.text("purpose")),
            created=read.text("created"),
            feature_version=feature_version,
            feature_names=known[feature_version],
            diode=read.text("diode"),
            members=tuple(_member(member) for member in read.items("members")),
            confidence=None if given.get("confidence") is None else _weight_file(
                read.mapping("confidence")),
            everything=None if given.get("everything") is None else read.flag("everything"),
            held_out_by=read.texts("held_out_by") if "held_out_by" in given else OF_BEFORE,
        )  # fmt: skip
        if not 1 <= len(manifest.members) <= _MAX_MEMBERS:
            raise ModelError(f"A model has 1 to {_MAX_MEMBERS} members.")
        files = manifest.files
        if sum(entry["bytes"] for entry in files) > MAX_MODEL:
            raise ModelError(f"The model's files are larger than {MAX_MODEL >> 20} MiB together.")
        if len({entry["file"] for entry in files}) < len(files):
            raise ModelError("The model's manifest names a file twice.")
        return manifest


class _ManifestReader:
    """Reads fields of the expected type; raises ModelError with a sentence otherwise."""

    def __init__(self, given: Mapping[str, Any]) -> None:
        self.given = given

    def _take(self, name: str, kind: type, what: str) -> Any:
        value = self.given.get(name)
        if type(value) is not kind:
            raise ModelError(f"The model's manifest must have {what} as {name}.")
        return value

    def text(self, name: str) -> str:
        value: str = self._take(name, str, "a text")
        return value

    def count(self, name: str) -> int:
        value: int = self._take(name, int, "a whole number")
        if value < 0:
            raise ModelError(f"The model's manifest must have no negative number as {name}.")
        return value

    def flag(self, name: str) -> bool:
        value: bool = self._take(name, bool, "true or false")
        return value

    def mapping(self, name: str) -> dict[str, Any]:
        value: dict[str, Any] = self._take(name, dict, "an object")
        return value

    def items(self, name: str) -> list[Any]:
        value: list[Any] = self._take(name, list, "a list")
        return value

    def texts(self, name: str) -> tuple[str, ...]:
        value = self.items(name)
        if not all(isinstance(item, str) for item in value):
            raise ModelError(f"The model's manifest must have a list of texts as {name}.")
        return tuple(value)


def _member(given: Any) -> dict[str, Any]:
    if not isinstance(given, dict):
        raise ModelError("A member in the model's manifest must be an object.")
    return {"family": _ManifestReader(given).text("family"), **_weight_file(given)}


def _weight_file(given: Mapping[str, Any]) -> dict[str, Any]:
    read = _ManifestReader(given)
    file = read.text("file")
    if not _FILE.fullmatch(file):
        raise ModelError(
            f"The model's manifest names the file {show(file)}, which cannot be a weight file."
        )
    digest = read.text("sha256")
    if not re.fullmatch(r"[0-9a-f]{64}", digest):
        raise ModelError(f"The model's manifest has no valid hash for {file}.")
    size = read.count("bytes")
    if size > _MAX_FILE:
        raise ModelError(f"The model's file {file} is larger than {_MAX_FILE >> 20} MiB.")
    return {"file": file, "bytes": size, "sha256": digest}


def check_name(name: str) -> str:
    """The name, if it can be a model's: lower-case letters, digits, ., _ and -."""
    if not _NAME.fullmatch(name):
        raise ModelError(
            f"{show(name)} cannot name a model; use lower-case letters, digits, '.', '_' and '-', "
            "64 at most, a letter or digit first."
        )
    return name


@dataclass(frozen=True)
class Artifact:
    """A loaded model and what it says about itself."""

    manifest: Manifest
    members: tuple[TimingModel, ...]
    confidence: Confidence | None = None


def save_artifact(
    folder: Path,
    manifest: Manifest,
    members: Sequence[TimingModel],
    confidence: Confidence | None = None,
) -> Artifact:
    """Writes a new model folder, whole or not at all, and returns it as `load_artifact` reads
    it. Family, members, creation time and Diode's version are filled in.

    Raises ModelError where the folder exists or cannot be written, or the model is not one
    that could be loaded again.
    """
    contents: dict[str, bytes] = {}
    entries: list[dict[str, Any]] = []

    def entry(file: str, data: bytes) -> dict[str, Any]:
        contents[file] = data
        digest = hashlib.sha256(data).hexdigest()
        return {"file": file, "bytes": len(data), "sha256": digest}

    for place, member in enumerate(members):
        file = f"{member.family}-{place}{member.suffix}"
        entries.append({"family": member.family, **entry(file, member.to_bytes())})
    now = dt.datetime.now(dt.UTC).isoformat(timespec="seconds")
    described = {
        **manifest.to_dict(),
        "family": family_of(members),
        "created": now,
        "diode": __version__,
        "members": entries,
        "confidence": None
        if confidence is None
        else entry(f"confidence{confidence.suffix}", confidence.to_bytes()),
    }
    try:
        text = json.dumps(described, indent=1, ensure_ascii=False, allow_nan=False) + "\n"
    except (TypeError, ValueError) as error:
        raise ModelError(f"The model's manifest cannot be written as JSON: {error}.") from None
    contents[MANIFEST] = text.encode()
    parse_manifest(contents[MANIFEST], folder)
    write_folder(folder, contents)
    return load_artifact(folder)


def write_folder(folder: Path, contents: Mapping[str, bytes]) -> None:
    """A new folder with these files, whole or not at all. Raises ModelError."""
    if folder.exists():
        raise ModelError(f"{folder} exists already; choose another place for the model.")
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        made = Path(tempfile.mkdtemp(prefix=UNFINISHED, dir=folder.parent))
        try:
            made.chmod(0o755)
            for name, data in contents.items():
                with (made / name).open("xb") as file:
                    file.write(data)
                    file.flush()
                    os.fsync(file.fileno())
            made.rename(folder)
        except BaseException:
            shutil.rmtree(made, ignore_errors=True)
            raise
    except OSError as error:
        raise ModelError(f"The model cannot be written to {folder}: {error.strerror}.") from None


def load_manifest(folder: Path) -> Manifest:
    """The manifest alone; raises ModelError as `load_artifact` does for it."""
    return parse_manifest(_read(folder / MANIFEST, None), folder)


def parse_manifest(data: bytes, where: Path) -> Manifest:
    """A manifest.json's content, which was found at this place; raises ModelError as
    `load_artifact` does for it."""
    try:
        given = parse_json(data, _MANIFEST)
    except Malformed as error:
        raise ModelError(f"The model's manifest in {where} cannot be read. {error}") from None
    return Manifest.from_dict(given)


def read_folder(folder: Path) -> tuple[Manifest, dict[str, bytes]]:
    """The manifest and the files that it names, by name, their hashes checked but nothing of
    them parsed. Raises ModelError as `load_artifact` does for it."""
    manifest = load_manifest(folder)
    return manifest, {entry["file"]: read_member(folder, entry) for entry in manifest.files}


def load_artifact(folder: Path) -> Artifact:
    """The model in this folder.

    Raises ModelError where a file is missing, a link, too large, of another size or hash than
    the manifest says, or not what its family writes; where the manifest is malformed or too
    new; and where the model was made with other features than this Diode's.
    """
    return load_files(*read_folder(folder))


def load_files(manifest: Manifest, contents: Mapping[str, bytes]) -> Artifact:
    """The model of a manifest and its checked files, by name. Raises ModelError where one is
    not what its family writes."""
    sure = manifest.confidence
    return Artifact(
        manifest,
        tuple(
            load_member(e["family"], contents[e["file"]], manifest.feature_set)
            for e in manifest.members
        ),
        None if sure is None else Confidence.from_bytes(contents[sure["file"]]),
    )


def load_member(
    family: str, data: bytes, feature_set: features.FeatureSet = features.CURRENT
) -> TimingModel:
    """The model of this family from these bytes, for rows of this feature set. Raises ModelError
    where there is no such family or the bytes are not such a model."""
    if family not in FAMILIES:
        raise ModelError(
            f"The model has a member of the family {show(family)}, which this Diode does not "
            "know; update Diode."
        )
    return FAMILIES[family].model_class().from_bytes(data, feature_set)


def read_member(folder: Path, entry: Mapping[str, Any]) -> bytes:
    """The weight file of one of a manifest's `files`; raises ModelError where it is not the
    file that the manifest describes."""
    return check_member(_read(folder / entry["file"], entry["bytes"]), entry, folder)


def check_member(data: bytes, entry: Mapping[str, Any], where: Path) -> bytes:
    """The content of one of a manifest's `files`, which was found at this place; raises
    ModelError where its hash is not the one that the manifest says."""
    if hashlib.sha256(data).hexdigest() != entry["sha256"]:
        raise ModelError(
            f"The model's file {entry['file']} in {where} is not the one the manifest "
            "describes: its hash differs. Copy or train the model again."
        )
    return data


def _read(path: Path, size: int | None) -> bytes:
    """The content of a regular file of exactly this size, or at most of a manifest's size. Links
    are not followed."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        why = "is a link" if path.is_symlink() else f"cannot be read: {error.strerror}"
        raise ModelError(f"The model's file {path} {why}.") from None
    try:
        found = os.fstat(handle)
        if not stat.S_ISREG(found.st_mode):
            raise ModelError(f"The model's file {path} is not a regular file.")
        if size is None and found.st_size > MAX_MANIFEST:
            raise ModelError(f"The model's file {path} is too large for a manifest.")
        if size is not None and found.st_size != size:
            raise ModelError(
                f"The model's file {path} has {found.st_size} bytes, its manifest says {size}; "
                "copy or train the model again."
            )
        with os.fdopen(handle, "rb", closefd=False) as file:
            return file.read(found.st_size)
    finally:
        os.close(handle)
