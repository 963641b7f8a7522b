"""The kinds of file that a stranger may hand over: how a file of each is made from a random number,
and what Diode does with it.

A reader returns where it read the file as a valid object, which is then used, and raises a
DiodeError, or click's UsageError for what a person writes by hand, where it did not.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import random
import shutil
import sqlite3
import tempfile
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

import click
import msgpack
import numpy as np
import zstandard

from diode_app import settings as dashboard
from diode_app.data.reports import case_rows, figure_rows, group_rows, report_of
from diode_engine.cli import settings, workflow
from diode_engine.cli.group import COMMANDS, HELP_NAMES
from diode_engine.collect.binaries import Binaries
from diode_engine.collect.planning.plan import read_candidates
from diode_engine.core.candidate import Candidate
from diode_engine.core.hardware import H200, Environment
from diode_engine.core.problem import Problem
from diode_engine.core.table import TimingTable
from diode_engine.errors import DatasetError, ModelError
from diode_engine.models.artifact import load_artifact, load_files, load_manifest, save_artifact
from diode_engine.models.cascade import Cascade
from diode_engine.models.confidence import INPUTS, MAX_K, Confidence
from diode_engine.models.coverage import Coverage
from diode_engine.models.distilled import quantize
from diode_engine.models.fit_trees import TreesSettings, fit_trees
from diode_engine.models.fitting import Examples
from diode_engine.models.manifest import Data, Manifest
from diode_engine.models.neighbours import places
from diode_engine.models.predictor import Predictor
from diode_engine.problems.sources import problems_in
from diode_engine.registry import ModelFacts, facts
from diode_engine.registry.aliases import aliases_in
from diode_engine.registry.archive import read_archive
from diode_engine.registry.card import card, lineage
from diode_engine.registry.index import offered, read_index
from diode_engine.registry.sources import Kind as SourceKind
from diode_engine.registry.sources import ModelSource, ModelVersion
from diode_engine.store import Store, dataset_key, read_dataset, read_groups, write_dataset
from diode_engine.validation import evaluate
from diode_engine.validation.solution import read_solution
from tests.models.conftest import network_on
from tests.samples import table_of, tile
from tests.soak import mutations
from tests.store.conftest import FOREIGN as ELSEWHERE

ROOT = Path(__file__).parents[2]
FOREIGN: dict[str, Any] = {
    **ELSEWHERE,
    "problems": [
        *ELSEWHERE["problems"],
        {"op": "scaled_mm", "M": 16, "N": 64, "K": 128, "dtype": "float8_e4m3fn",
         "scaling": "1x128_128x128", "fast_accum": True, "b_dtype": "float8_e5m2"},
        {"op": "mm_plus_mm", "M": 8, "N": 16, "K": 32, "dtype": "bfloat16", "d_layout": "col"},
        {"op": "grouped_mm_rows", "B": 8, "M": 64, "N": 16, "K": 32, "dtype": "bfloat16"},
    ],
    "timings": [
        *ELSEWHERE["timings"],
        {"problem": 2, "environment": 1, "candidate": [1, 0], "median_us": [3, 4],
         "registers": [128, None], "spill_stores": [0, None], "spill_loads": [8, None],
         "shared_bytes": [65536, None], "instructions": [900, None]},
        *({"problem": i, "environment": 1, "candidate": [1], "median_us": [i]} for i in (3, 4)),
    ],
}  # fmt: skip
_SHAPE = {
    "version": 1, "B": 1, "M": 64, "M_dtype": "bfloat16", "N": 128, "K": 256, "K_dtype": "bfloat16",
    "out_dtype": "bfloat16", "out_size": [1, 64, 128], "out_stride": [8192, 128, 1],
}  # fmt: skip
_CONFIG = {"ALLOW_TF32": False, "block_k": 32, "block_m": 64, "block_n": 16, "group_m": 8,
           "num_stages": 3, "num_warps": 4}  # fmt: skip
TORCH_DIODE = {"hardware": {"NVIDIA H100": {"operation": {"mm": {"solution": {
    json.dumps(_SHAPE): {"timed_configs": [
        {"config": _CONFIG, "time": 0.025}, {"config": json.dumps(_CONFIG), "time": 0.5}]}
}}}}}}  # fmt: skip
_SHAPESET = {
    "source": "a program",
    "columns": ["op", "B", "M", "N", "K", "dtype", "a_layout", "scaling"],
    "shapes": [["mm", 1, 64, 128, 32, "float16", "row", None],
               ["bmm", 8, 5, 7, 9, "float32", "col", None],
               ["scaled_mm", 1, 16, 64, 128, "float8_e4m3fn", "row", "row"],
               ["grouped_mm_rows", 8, 64, 16, 32, "bfloat16", "row", None]],
}  # fmt: skip
_SHAPES = {"operations": {"mm": {"shapes": [_SHAPE, _SHAPE]}, "bmm": {"shapes": [_SHAPE]}}}
_SOLUTION = {"name": "h200-mm", "configs": [
    {"op": "mm", "M": 64, "N": 4096, "K": 4096, "block_m": 64, "block_n": 128, "block_k": 64,
     "num_stages": 4, "num_warps": 4, "group_m": 8}, {"block_m": 1, "block_n": 2, "block_k": 3},
]}  # fmt: skip
_CANDIDATES = [
    {"template": "aten::mm"},
    {"template": "triton::mm", "kwargs": {"BLOCK_M": 128, "BLOCK_N": 128, "num_stages": 4}},
]
_INDEX = {"format": "diode-model-index", "version": 1, "models": [
    {"name": "gemm", "version": 2, "hardware": "nvidia-h200", "archive": "gemm-2.diode.zip",
     "sha256": "0" * 64, "bytes": 77, "about": "For tests."},
    {"name": "gemm", "version": 3, "hardware": "nvidia-h200", "sha256": "1" * 64, "bytes": 1,
     "archive": "https://example.invalid/gemm.zip"},
]}  # fmt: skip
_REGISTRY = {
    "format": "diode-registry", "version": 1,
    "aliases": {"default": "mine@2", "candidate": "mine@3"},
    "models": {"mine@2": {"status": "validated", "tags": ["h200"], "note": "x",
                          "gate": {"model": "mine@2", "against": "gemm@1", "checks": []},
                          "origin": {"archive": "a", "sha256": "b"}}},
    "history": [{"at": "2026-11-21T04:36:18+00:00", "event": "promote", "model": "mine@2",
                 "alias": "default", "before": "gemm@1", "reason": "", "forced": False}],
}  # fmt: skip
_WORKFLOW = """store = "h200.db"
[[step]]
run = "collect --problems 300 --budget 60"
[[step]]
name = "report"
run = "validate --json"
inputs = ["notes.toml"]
output = "report.json"
"""
_SETTINGS = """store = "/data/timings.db"
[collect]
budget = 60
source = ["transformers", "attention:share=2"]
[data.problems]
rows = 50
"""
_DASHBOARD = """# mine
theme = "okabe-ito-dark"
rows = 50
run_columns = ["run", "kind", "state"]
problem_columns = ["problem", "op"]
[keys]
"runs.cancel" = "x"
"""


@dataclass(frozen=True)
class Kind:
    """`make` gives a file's bytes, `read` reads them from the path, whose name is `file`."""

    file: str
    make: Callable[[random.Random], bytes]
    read: Callable[[Path], Any]


# Datasets, and other problems and candidates


def _dataset(path: Path) -> None:
    try:
        table = read_dataset(path)
    finally:
        _groups(path)
    if len(table) < 1000:
        again = path.with_name("again.msgpack")
        write_dataset(table, again)
        assert dataset_key(read_dataset(again)) == dataset_key(table)


def _groups(path: Path) -> None:
    """What `predict` reads."""
    try:
        table, groups = read_groups(path)
    except DatasetError:
        return
    assert sum(g.rows.stop - g.rows.start for g in groups) == len(table)


def _packed(rng: random.Random) -> bytes:
    return mutations.compressed(rng, mutations.msgpack_file(rng, _packed_document()))


@cache
def _packed_document() -> Any:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "a.json").write_text(json.dumps(FOREIGN))
        write_dataset(read_dataset(folder / "a.json"), folder / "a.packed.zst")
        data = zstandard.decompress((folder / "a.packed.zst").read_bytes())
    return msgpack.unpackb(data)


def _shapeset(path: Path) -> None:
    for problem in problems_in(path, 0):
        assert problem.key


def _solution(path: Path) -> None:
    found = read_solution(path)
    problem = Problem.make("mm", 64, 64, 64, "float16")
    for config in found.configs:
        config.is_for(problem)


def _candidates(path: Path) -> None:
    for candidate in read_candidates(path):
        assert candidate.key
        str(candidate)


# Models


def _kernels() -> list[Candidate]:
    tiles = [tile(m, n, 32, s) for m in (16, 64, 128) for n in (32, 128) for s in (2, 4)]
    return [Candidate.make("aten::mm"), *tiles]


@cache
def _table() -> TimingTable:
    problems = [Problem.make("mm", 2**i, 64 * i, 512, "float16") for i in range(4, 12)]
    us = np.add.outer(np.arange(8), np.arange(13)) + 1.0
    return table_of(problems, _kernels(), us)


@cache
def _models() -> dict[str, dict[str, bytes]]:
    """The files of a model of each family, by name."""
    table = _table()
    examples = Examples.make(table, H200)
    rng = np.random.default_rng(2)
    sure = Confidence(
        rng.standard_normal((MAX_K, len(INPUTS))).astype(np.float32),
        rng.standard_normal(MAX_K).astype(np.float32), places(table.problems),
    )  # fmt: skip
    network, heads = (network_on(examples.x, 1, (6,), heads) for heads in (1, 3))
    one, several = (quantize(each, examples.x) for each in (network, heads))
    families = {
        "network": (network,),
        "distilled": (several,),
        "cascade": (Cascade(several, {1: one}, one),),
        "trees": (fit_trees(examples, examples, TreesSettings(rounds=3, max_depth=3, threads=1)),),
    }
    found = {}
    for family, members in families.items():
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            manifest = Manifest(
                name="small", family="", hardware=H200, data=Data((), (), 8, 96),
                coverage=Coverage(("mm aten::mm", "mm triton::mm"), ("float16",), ("mm float16",)),
                metrics={"efficiency": 0.9, "by_op": {"mm": 0.9}},
            )  # fmt: skip
            save_artifact(folder / "model", manifest, members, sure)
            found[family] = {p.name: p.read_bytes() for p in (folder / "model").iterdir()}
    return found


def _vouched(files: dict[str, bytes]) -> dict[str, bytes]:
    """With a manifest whose sizes and hashes are those of the files."""
    manifest = json.loads(files["manifest.json"])
    for entry in (*manifest["members"], manifest["confidence"]):
        data = files[entry["file"]]
        entry["bytes"], entry["sha256"] = len(data), hashlib.sha256(data).hexdigest()
    return {**files, "manifest.json": json.dumps(manifest).encode()}


def _changed_model(rng: random.Random, family: str) -> dict[str, bytes]:
    files = dict(_models()[family])
    name = rng.choice([n for n in files if n != "manifest.json"])
    files[name] = mutations.safetensors_file(rng, files[name])
    return _vouched(files)


def _model(rng: random.Random, family: str) -> bytes:
    return _zip(_changed_model(rng, family))


def _zip(files: dict[str, bytes]) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for name in sorted(files, key=lambda n: n != "manifest.json"):
            archive.writestr(zipfile.ZipInfo(name), files[name])
    return out.getvalue()


def _folder(path: Path) -> None:
    """The model of a zip as a folder, loaded and asked."""
    folder = path.with_name("model")
    shutil.rmtree(folder, ignore_errors=True)
    with zipfile.ZipFile(path) as archive:
        archive.extractall(folder)
    _asked(Predictor(load_artifact(folder)))


def _asked(predictor: Predictor) -> None:
    problem, candidates = _table().problems[3], _kernels()
    ranking = predictor.predict(problem, candidates)
    us = ranking.predicted_us
    assert np.all(np.isnan(us) | (np.isfinite(us) & (us > 0)))
    assert not np.isnan(us[ranking.order]).any()
    assert ranking.confidence is None or 0 <= ranking.confidence <= 1
    whole = predictor.predict_us(problem, candidates)
    assert np.all(np.isfinite(whole) | np.isnan(whole))
    table = predictor.predict_table(_table())
    assert np.all(np.isfinite(table) | np.isnan(table))
    predictor.predict_members_us(problem, candidates)


def _manifest(rng: random.Random) -> bytes:
    return mutations.json_file(rng, json.loads(_models()["network"]["manifest.json"]))


def _described(path: Path) -> None:
    """What is said of a model by its manifest alone."""
    manifest = load_manifest(path.parent)
    assert manifest.identity
    json.dumps(manifest.to_dict(), allow_nan=False)
    model = ModelVersion(manifest.name, 1, path.parent, None, manifest.hardware.slug)
    card(model, ModelFacts()).encode()
    json.dumps(lineage(model, ModelFacts()), allow_nan=False).encode()


def _archive(rng: random.Random) -> bytes:
    """Changed weights, a changed manifest, or changed bytes."""
    kind = rng.randrange(3)
    if kind == 0:
        return _zip(_changed_model(rng, "network"))
    files = _models()["network"]
    if kind == 1:
        return _zip({**files, "manifest.json": _manifest(rng)})
    return mutations.changed_bytes(rng, _zip(files), _zip(files))


def _imported(path: Path) -> None:
    _asked(Predictor(load_files(*read_archive(path.read_bytes(), path))))


# The registry


def _index(path: Path) -> None:
    offers = read_index(path)
    if offers:
        offered(offers, offers[0].reference, offers[0].hardware).archive.encode()


def _aliases(path: Path) -> None:
    source = ModelSource(SourceKind.PACKAGE, path.parent.parent, "theirs")
    assert all(isinstance(name, str) for name in aliases_in(source, path.parent.name).values())


def _registry(path: Path) -> None:
    home = path.parent / "home"
    place = home / "models" / "nvidia-h200"
    place.mkdir(parents=True, exist_ok=True)
    os.environ["DIODE_HOME"] = str(home)
    shutil.copyfile(path, place / facts.FILE)
    json.dumps(facts.read("nvidia-h200").to_dict(), allow_nan=False).encode()


# What a person writes


def _workflow(path: Path) -> None:
    steps, _ = workflow._read(path, path.parent)
    assert steps


def _settings(path: Path) -> None:
    os.environ["DIODE_HOME"] = str(path.parent / "home")
    here = Path.cwd()
    os.chdir(path.parent)
    try:
        said = settings.read("collect", ("collect", "data"))
    finally:
        os.chdir(here)
    for name, words in (("collect", ()), ("data", ("problems",))):
        command = COMMANDS[name].load(name)
        defaults = settings.default_map(said, command, name)
        options = {"default_map": defaults, "help_option_names": HELP_NAMES}
        with command.make_context(name, list(words), **options) as context:
            if isinstance(command, click.Group):
                found, inner, _ = command.resolve_command(context, list(words))
                inner.make_context(found, [], context)


def _dashboard(path: Path) -> None:
    try:
        found = dashboard.load(path)
    except dashboard.SettingsError:
        dashboard.save(path, dashboard.Settings())  # takes its place
        assert dashboard.load(path) == dashboard.Settings()
        raise
    dashboard.save(path, found)
    assert dashboard.load(path) == found


# What Diode keeps


def _binary(path: Path) -> None:
    class Class:
        key = "ab" * 16

    binaries = Binaries(path.parent / "binaries", Environment(H200, "", "", ""))
    place = binaries._path(Class.key)
    place.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(path, place)
    if binaries.get(Class()) is None:  # type: ignore[arg-type]
        raise ModelError("The binary counts as missing.")


_BINARY = {"class": {}, "binary": {
    "name": "k", "cubin": b"x" * 40, "warps": 4, "shared_bytes": 0, "registers": 32,
    "scratch_bytes": 0, "arguments": [["a", "u64"]],
}}  # fmt: skip


@cache
def _judged() -> Any:
    """A report as a run keeps it."""
    with tempfile.TemporaryDirectory() as folder:
        for name, data in _models()["network"].items():
            Path(folder, name).write_bytes(data)
        predictor = Predictor(load_artifact(Path(folder)))
    report = evaluate(_table(), predictor, name="small@1", unseen=True, seen=None)
    return json.loads(json.dumps(report.to_dict()))


def _report(rng: random.Random) -> bytes:
    return mutations.compressed(rng, mutations.json_file(rng, _judged()))


def _shown(path: Path) -> None:
    """The report in the dashboard."""
    place = path.with_name("reports.db")
    if not place.exists():
        with Store.open(place) as store:
            store.set_result(store.start_run("validate", {}), {})
    with sqlite3.connect(place) as connection:
        connection.execute("UPDATE results SET document = ?", (path.read_bytes(),))
    connection.close()
    with Store.open(place, read_only=True) as store:
        report = report_of(store, 1)
    figure_rows(report, None)
    group_rows(report, None)
    case_rows(report, None)


def _json(document: Any) -> Callable[[random.Random], bytes]:
    return partial(mutations.json_file, document=document)


KINDS = {
    "dataset json": Kind("a.json", _json(FOREIGN), _dataset),
    "dataset msgpack": Kind(
        "a.msgpack", partial(mutations.msgpack_file, document=FOREIGN), _dataset
    ),
    "dataset packed.zst": Kind("a.packed.zst", _packed, _dataset),
    "torch-diode json": Kind("a.json", _json(TORCH_DIODE), _dataset),
    "torch-diode msgpack": Kind(
        "a.msgpack", partial(mutations.msgpack_file, document=TORCH_DIODE), _dataset
    ),
    "shapeset": Kind("a.json", _json(_SHAPESET), _shapeset),
    "torch-diode shapeset": Kind("a.json", _json(_SHAPES), _shapeset),
    "solution": Kind("a.json", _json(_SOLUTION), _solution),
    "torch-diode solution": Kind("a.json", _json({"config": [_CONFIG, _CONFIG]}), _solution),
    "candidates": Kind("a.json", _json(_CANDIDATES), _candidates),
    "manifest": Kind("manifest.json", _manifest, _described),
    "network": Kind("a.zip", partial(_model, family="network"), _folder),
    "distilled": Kind("a.zip", partial(_model, family="distilled"), _folder),
    "cascade": Kind("a.zip", partial(_model, family="cascade"), _folder),
    "trees": Kind("a.zip", partial(_model, family="trees"), _folder),
    "archive": Kind("a.diode.zip", _archive, _imported),
    "index": Kind("a.json", _json(_INDEX), _index),
    "aliases": Kind("aliases.json", _json({"default": "gemm@6", "mine": "a@1"}), _aliases),
    "registry": Kind("a.json", _json(_REGISTRY), _registry),
    "workflow": Kind("a.toml", partial(mutations.toml_file, text=_WORKFLOW), _workflow),
    "settings": Kind("diode.toml", partial(mutations.toml_file, text=_SETTINGS), _settings),
    "dashboard": Kind("a.toml", partial(mutations.toml_file, text=_DASHBOARD), _dashboard),
    "binary": Kind("a.msgpack", partial(mutations.msgpack_file, document=_BINARY), _binary),
    "report": Kind("a.zst", _report, _shown),
}
