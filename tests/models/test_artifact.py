"""Model folders: what is saved is what is loaded, and nothing else is."""

from __future__ import annotations

import hashlib
import json
import os
import struct
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.numpy import load as load_tensors
from safetensors.numpy import save as save_tensors

from diode_engine import features
from diode_engine.core.candidate import Candidate
from diode_engine.core.hardware import H200, Environment
from diode_engine.core.problem import Problem
from diode_engine.core.resources import many_loads
from diode_engine.core.table import TimingTable
from diode_engine.core.timing import Failure, Timing
from diode_engine.errors import ModelError
from diode_engine.models.artifact import load_artifact
from diode_engine.models.confidence import INPUTS, MAX_K, Confidence
from diode_engine.models.coverage import MIN_PROBLEMS, Coverage
from diode_engine.models.fit_trees import TreesSettings, fit_trees
from diode_engine.models.fitting import Examples
from diode_engine.models.neighbours import places
from diode_engine.models.network import Network
from diode_engine.models.predictor import Predictor
from diode_engine.models.protocol import prediction_of
from diode_engine.models.tensors import Tensors
from tests.models.conftest import network
from tests.samples import tile, weighing


@pytest.fixture(scope="module")
def trees(table):
    examples = Examples.make(table, H200)
    return fit_trees(examples, examples, TreesSettings(rounds=6, max_depth=4, threads=1))


def edit(folder: Path, change: Callable[[dict[str, Any]], None]) -> None:
    path = folder / "manifest.json"
    manifest = json.loads(path.read_text())
    change(manifest)
    path.write_text(json.dumps(manifest))


def replace_weights(folder: Path, data: bytes) -> None:
    """Puts other bytes into the first member's file, with a manifest that vouches for them."""

    def vouch(manifest: dict[str, Any]) -> None:
        member = manifest["members"][0]
        (folder / member["file"]).write_bytes(data)
        member["bytes"] = len(data)
        member["sha256"] = hashlib.sha256(data).hexdigest()

    edit(folder, vouch)


def test_a_round_trip_predicts_the_same_bits(save, trees, table, tmp_path):
    members = (network(1), network(2, residual=False), trees)
    saved = save(tmp_path / "m", members, metrics={"rmse": 0.1}, torch=("2.11.0",), notes="ü")
    loaded = load_artifact(tmp_path / "m")
    assert loaded.manifest == saved.manifest
    assert loaded.manifest.family == "ensemble"
    assert loaded.manifest.metrics == {"rmse": 0.1}
    x = Examples.make(table, H200).x
    want = sum(member.predict(x) for member in members) / np.float32(3)
    np.testing.assert_array_equal(prediction_of(loaded.members, x), want)
    assert not list(tmp_path.glob(".unfinished*"))


def test_the_identity_is_that_of_the_predictions(save, tmp_path):
    one = save(tmp_path / "a").manifest
    other_name = save(tmp_path / "b", name="other", notes="another").manifest
    other_weights = save(tmp_path / "c", (network(5),)).manifest
    assert one.identity == other_name.identity
    assert one.identity != other_weights.identity


def test_saving_does_not_write_over_a_model(save, tmp_path):
    save(tmp_path / "m")
    before = (tmp_path / "m" / "manifest.json").read_bytes()
    with pytest.raises(ModelError, match="exists already"):
        save(tmp_path / "m", (network(4),))
    assert (tmp_path / "m" / "manifest.json").read_bytes() == before


@pytest.mark.parametrize("metrics", [{"rmse": float("nan")}, {"rmse": object()}])
def test_what_cannot_be_loaded_again_is_not_saved(save, tmp_path, metrics):
    with pytest.raises(ModelError, match="JSON"):
        save(tmp_path / "m", metrics=metrics)
    assert list(tmp_path.glob("m*")) == []


def test_a_failing_write_leaves_nothing(save, tmp_path, monkeypatch):
    def full(handle: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(ModelError, match="No space left"):
        save(tmp_path / "models" / "m")
    assert list((tmp_path / "models").iterdir()) == []


LARGE = {"family": "trees", "bytes": 200 << 20, "sha256": "0" * 64}


def put(*path: Any, value: Any) -> Callable[[dict[str, Any]], None]:
    def change(manifest: dict[str, Any]) -> None:
        place: Any = manifest
        for step in path[:-1]:
            place = place[step]
        place[path[-1]] = value

    return change


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (put("format", value="other"), "not the manifest"),
        (put("version", value=2), "update Diode"),
        (put("version", value=True), "no version"),
        (put("features", "version", value=features.VERSION + 1), "train it again"),
        (put("features", "names", value="0" * 16), "train it again"),
        (put("features", value=None), "features"),
        (put("hardware", "multiprocessors", value=-1), "field: hardware: "),
        (put("hardware", value={}), "field: hardware: "),
        (put("name", value="../../etc"), "cannot name a model"),
        (put("purpose", value=7), "purpose"),
        (put("coverage", "kernels", value="mm aten::mm"), "coverage: kernels: .* must be a list"),
        (put("coverage", "types", value=[1]), r"types: \[0\]: 1 must be a text"),
        (put("coverage", "op_types", value=7), "op_types: 7 must be a list"),
        (put("everything", value=1), "everything: 1 must be true or false"),
        (put("confidence", value=[]), r"confidence: \[\] must be an object"),
        (put("confidence", value={"file": "../x.safetensors"}), "cannot be a weight file"),
        (put("data", "problems", value=-3), "negative"),
        (put("members", value=[]), "1 to 64"),
        (put("members", value=[3]), r"members: \[0\]: 3 must be an object"),
        (put("members", 0, "file", value="../x.safetensors"), "cannot be a weight file"),
        (put("members", 0, "file", value="/etc/x.safetensors"), "cannot be a weight file"),
        (put("members", 0, "file", value="trees-0.ubj"), "Diode 0.2.0; train it again"),
        (put("members", 0, "file", value="weights.pkl"), "cannot be a weight file"),
        (put("members", 0, "file", value="missing.safetensors"), "cannot be read"),
        (put("members", 0, "bytes", value=1 << 40), "larger than"),
        (put("members", 0, "bytes", value=5), "bytes, its manifest says 5"),
        (
            put("members", value=[{**LARGE, "file": f"t-{i}.safetensors"} for i in "012"]),
            "than 512 MiB",
        ),
        (lambda manifest: manifest["members"].append(manifest["members"][0]), "twice"),
        (put("metrics", value={"a": 10**30}), "more than 64 bits"),
        (put("hardware", "name", value="日本"), "1 to 100 letters and digits"),
        (put("hardware", "name", value="x" * 101), "1 to 100 letters and digits"),
        (put("notes", value="\ud800"), "not valid Unicode"),
        (put("members", 0, "sha256", value="0" * 64), "hash differs"),
        (put("members", 0, "sha256", value="x"), "no valid hash"),
        (put("members", 0, "family", value="oracle"), "does not know"),
    ],
)
def test_a_manifest_that_lies_is_refused(model, change, sentence):
    edit(model, change)
    with pytest.raises(ModelError, match=sentence):
        load_artifact(model)


@pytest.mark.parametrize(
    "data",
    [
        b"", b"\xff\xfe", b"{", b"[]", b"null", b"[" * 100_000, b'{"format": NaN}',
        b'{"format": "diode-model", "metrics": ' + b'{"a":' * 300 + b"1" + b"}" * 301,
        b"[" + b"{}," * 300_000 + b"{}]",
        b'{"format": "diode-model", "format": "diode-model"}', b" " * (2 << 20),
    ],
)  # fmt: skip
def test_a_manifest_that_is_none_is_refused(model, data):
    (model / "manifest.json").write_bytes(data)
    with pytest.raises(ModelError):
        load_artifact(model)


@pytest.mark.parametrize("what", ["link", "pipe", "folder", "nothing"])
@pytest.mark.parametrize("name", ["manifest.json", "network-0.safetensors"])
def test_only_regular_files_are_read(model, tmp_path, what, name):
    path = model / name
    kept = path.rename(tmp_path / "kept")
    if what == "link":
        path.symlink_to(kept)
    elif what == "pipe":
        os.mkfifo(path)
    elif what == "folder":
        path.mkdir()
    with pytest.raises(ModelError):
        load_artifact(model)


WIDTH = len(features.NAMES)


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        (b"", "not valid safetensors"),
        (b"\x80\x04\x95 a pickle", "too long"),
        (struct.pack("<Q", 1 << 62) + b"{}", "too long"),
        (struct.pack("<Q", 2) + b"{}", "residual"),
        (struct.pack("<Q", 200) + b"{" * 200, "not valid safetensors"),
        ({"mean": None}, "lacks the tensor mean"),
        ({"mean": np.zeros(3, np.float32)}, "does not fit"),
        ({"mean": np.zeros(WIDTH, np.float64)}, "does not fit"),
        ({"mean": np.full(WIDTH, np.nan, np.float32)}, "not finite"),
        ({"weight.0": np.full((WIDTH, 8), np.inf, np.float32)}, "not finite"),
        ({"weight.1": np.zeros((9, 1), np.float32)}, "does not fit"),
        ({"weight.1": np.zeros((8, 2), np.float32)}, "does not fit"),
        ({"weight.1": None}, "one output"),
        ({"weight.0": None}, "one output"),
        ({"residual": np.array([2], np.uint8)}, "residual"),
        ({"extra": np.zeros(1, np.float32)}, "unknown tensors"),
        ({"weight.1": np.full((8, 1), 3e38, np.float32)}, "so large that it predicts no times"),
        ({"scale": np.full(WIDTH, 3e38, np.float32)}, "so large that it predicts no times"),
    ],
)
def test_a_hostile_network_is_refused(model, data, sentence):
    if isinstance(data, dict):
        tensors = {**load_tensors(network().to_bytes()), **data}
        data = save_tensors({k: v for k, v in tensors.items() if v is not None})
    replace_weights(model, data)
    with pytest.raises(ModelError, match=sentence):
        load_artifact(model)


@pytest.mark.parametrize(
    "changed",
    [
        {"mean": {"dtype": "F32", "shape": [WIDTH]}},
        {"mean": {"dtype": "F32", "shape": "x", "data_offsets": [0, 4 * WIDTH]}},
        {"mean": {"dtype": "F32", "shape": [WIDTH], "data_offsets": [0, -4]}},
        {"mean": {"dtype": "F32", "shape": [WIDTH], "data_offsets": [0, 4.0 * WIDTH]}},
        {"mean": {"dtype": "F32", "shape": [WIDTH], "data_offsets": [0, 1 << 40]}},
        {"extra": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}},
        {"mean": None},
        [1, 2],
    ],
)
def test_a_header_that_does_not_describe_the_tensors_is_refused(changed):
    data = network().to_bytes()
    size = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + size])
    text = json.dumps({**header, **changed} if isinstance(changed, dict) else changed).encode()
    with pytest.raises(ModelError, match=r"not valid safetensors: .*\.$"):
        Network.from_bytes(struct.pack("<Q", len(text)) + text + data[8 + size :])
    with pytest.raises(ModelError, match=r"not valid safetensors: .*\.$"):
        Network.from_bytes(data + b"1234")


@pytest.mark.parametrize("shape", [[0, 1 << 63], [1 << 63, 0], [0, 1 << 62]])
def test_a_shape_that_no_array_can_have_is_refused(shape):
    header = {"a": {"dtype": "F32", "shape": shape, "data_offsets": [0, 0]}}
    text = json.dumps(header).encode()
    tensors = Tensors(struct.pack("<Q", len(text)) + text, "network")
    with pytest.raises(ModelError, match="a shape that is too large"):
        tensors.take("a", None, None)


def test_a_header_may_hold_metadata():
    tensors = load_tensors(network().to_bytes())
    again = Network.from_bytes(save_tensors(tensors, {"made": "by hand"}))
    assert again.to_bytes() == network().to_bytes()


@pytest.mark.parametrize(
    ("name", "place", "value", "sentence"),
    [
        ("left", 0, 1_000_000, "do not form trees"),
        ("left", 0, 0, "do not form trees"),
        ("left", 0, -7, "do not form trees"),
        ("left", 1, 2, "do not form trees"),
        ("right", 0, -1, "do not form trees"),
        ("right", 0, 1, "do not form trees"),
        ("feature", 0, 5000, "does not exist"),
        ("feature", 0, -1, "does not exist"),
        ("value", 0, np.nan, "not finite"),
        ("value", "leaf", 2e38, "so large that they predict no times"),
        ("base", 0, -np.inf, "not finite"),
        ("nodes", 0, 0, "of one node at least"),
        ("nodes", 0, 1 << 30, "at most 20,000 trees of 4,000,000 nodes"),
        ("nodes", 1, 2, "does not fit its place"),
    ],
)
def test_hostile_trees_are_refused(save, trees, tmp_path, name, place, value, sentence):
    save(tmp_path / "m", (trees,))
    tensors = load_tensors(trees.to_bytes())
    leaf = int(np.flatnonzero(tensors["left"] == -1)[0])
    tensors[name][leaf if place == "leaf" else place] = value
    replace_weights(tmp_path / "m", save_tensors(tensors))
    with pytest.raises(ModelError, match=sentence):
        load_artifact(tmp_path / "m")


@pytest.mark.parametrize(
    ("count", "levels", "sentence"),
    [(20_001, 0, "20,001 trees of"), (2, 65, "deeper than 64 levels"), (2, 64, None)],
)
def test_trees_that_take_too_much_are_refused(trees, count, levels, sentence):
    """Each tree is a chain of nodes whose left child is a leaf."""
    size = 2 * levels + 1
    place = np.tile(np.arange(size, dtype=np.int32), count)
    inner = (place % 2 == 0) & (place < size - 1)
    left, right = (np.where(inner, place + step, -1).astype(np.int32) for step in (1, 2))
    tensors = load_tensors(trees.to_bytes()) | {
        "nodes": np.full(count, size, np.int32), "left": left, "right": right,
        "feature": np.zeros_like(place), "value": np.zeros(len(place), np.float32),
    }  # fmt: skip
    with pytest.raises(ModelError, match=sentence) if sentence else nullcontext():
        type(trees).from_bytes(save_tensors(tensors))


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("log_us", [800.0, -800.0, 1e30, -1e30])
def test_what_is_not_finite_is_no_prediction(save, table, log_us):
    """A network whose weights are finite and sums too, and whose times are not."""
    sure = Confidence(
        np.ones((MAX_K, len(INPUTS)), np.float32), np.zeros(MAX_K, np.float32),
        places(table.problems) * np.float32(1e37),
    )  # fmt: skip
    made = save(None, (weighing({"aten": log_us}, residual=True),), sure)
    predictor = Predictor(made)
    problem, candidates = table.problems[0], table.candidates
    ranking = predictor.predict(problem, candidates)
    library = np.array([c.is_extern for c in candidates])
    assert np.isnan(ranking.predicted_us).tolist() == library.tolist()
    assert sorted(ranking.order.tolist()) == np.flatnonzero(~library).tolist()
    assert ranking.confidence is not None
    assert 0 <= ranking.confidence <= 1
    few = table.take(table.problem == 0)
    assert np.isnan(predictor.predict_table(few)).tolist() == library.tolist()
    assert np.isfinite(predictor.predict_members_us(problem, candidates)[:, ~library]).all()
    none = predictor.predict(problem, [c for c in candidates if c.is_extern])
    assert (len(none.order), none.confidence) == (0, None)


@settings(
    deadline=None, max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.data())
def test_changed_bytes_give_a_model_or_a_sentence(trees, table, data):
    """Whatever bytes change, loading raises ModelError, or what is loaded can be asked."""
    kind = data.draw(st.sampled_from([trees, network()]))
    raw = bytearray(kind.to_bytes())
    for _ in range(data.draw(st.integers(1, 3))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    del raw[data.draw(st.sampled_from([len(raw), len(raw) // 2])) :]
    try:
        model = type(kind).from_bytes(bytes(raw))
    except ModelError:
        return
    x = features.matrix(table.problems, table.candidates, np.arange(5), np.arange(5), H200)
    assert model.predict(x).shape == (5,)


@pytest.fixture
def covering(save):
    """Predictors of one model that covers something else."""
    saved = save()
    return lambda coverage: Predictor(
        replace(saved, manifest=replace(saved.manifest, coverage=coverage))
    )


def test_predicting(save, table):
    predictor = Predictor(save())
    assert predictor.hardware == H200
    bulk = predictor.predict_table(table)
    few = ~many_loads(table.problems, table.candidates, table.problem, table.candidate)
    assert np.isfinite(bulk[few]).all()
    for index, rows in list(table.groups())[:5]:
        asked = [table.candidates[c] for c in table.candidate[rows]]
        single = predictor.predict_us(table.problems[index], asked)
        np.testing.assert_allclose(single, bulk[rows], rtol=1e-5)


def test_of_what_it_was_not_trained_on_a_predictor_says_nothing(save, candidates):
    predictor = Predictor(save())
    asked = (
        Candidate.make("cutlass::gemm"),
        candidates[0],
        Candidate.make("triton::bmm", BLOCK_M=16, BLOCK_N=16, BLOCK_K=16),
        Candidate.make("triton::mm"),
    )
    known = Problem.make("mm", 64, 64, 64, "float16")
    assert np.isnan(predictor.predict_us(known, asked)).tolist() == [True, False, True, True]
    for unknown in (
        Problem.make("addmm", 64, 64, 64, "float16"),
        Problem.make("mm", 64, 64, 64, "float32", allow_tf32=True),
        Problem.make("mm", 64, 64, 64, "int8"),
    ):
        assert np.isnan(predictor.predict_us(unknown, asked)).all()
    assert predictor.predict_us(known, ()).shape == (0,)


def test_a_template_is_known_on_the_ops_it_was_trained_on(covering):
    op_types = ("bmm float16", "mm float16")
    kernels = ("bmm aten::bmm", "mm aten::mm", "mm decompose_k")
    predictor = covering(Coverage(kernels, ("float16",), op_types))
    asked = (Candidate.make("decompose_k", k_split=4), Candidate.make("aten::bmm"))
    mm = Problem.make("mm", 64, 64, 64, "float16")
    bmm = Problem.make("bmm", 64, 64, 64, "float16", B=2)
    assert np.isnan(predictor.predict_us(mm, asked)).tolist() == [False, True]
    assert np.isnan(predictor.predict_us(bmm, asked)).tolist() == [True, False]


def test_a_type_is_known_on_the_ops_it_was_timed_on(covering):
    timed = Coverage(
        ("bmm aten::bmm", "mm aten::mm"), ("float16", "float32"), ("bmm float32", "mm float16")
    )
    everything = {(op, dtype) for op in ("mm", "bmm") for dtype in ("float16", "float32")}

    def known(coverage: Coverage) -> set[tuple[str, str]]:
        predictor = covering(coverage)
        us = {
            (op, dtype): predictor.predict_us(
                Problem.make(op, 64, 64, 64, dtype), (Candidate.make(f"aten::{op}"),)
            )
            for op, dtype in everything
        }
        return {pair for pair, predicted in us.items() if np.isfinite(predicted).all()}

    assert known(timed) == {("mm", "float16"), ("bmm", "float32")}
    other = Coverage(("mm aten::mm",), ("float32",), ("mm float32",))
    assert known(timed.joined(other)) == everything - {("bmm", "float16")}


FEW, MANY = tile(16, 128, 128, 4, 4), tile(16, 128, 128, 4, 2)
TIMED, FAILED = Timing(median_us=9.0), Timing(failure=Failure.WRONG_RESULT)


def test_an_innermost_batch_is_known_where_it_was_timed(covering):
    aten, usual, inner = Candidate.make("aten::bmm"), "bmm float16", "bmm float16, inner batch"
    problems = [
        Problem.make("bmm", 64, 64, 64, "float16", B=4, a_batch=where)
        for where in ("outer", "inner")
    ]
    for op_types, known in (((usual,), [0]), ((inner,), [1]), ((inner, usual), [0, 1])):
        predictor = covering(Coverage(("bmm aten::bmm",), ("float16",), op_types))
        us = [predictor.predict_us(problem, (aten,))[0] for problem in problems]
        assert np.flatnonzero(np.isfinite(us)).tolist() == known


LARGE = tile(128, 128, 128, 4, 4)  # many loads, but wgmma in 16 bits
ALIGNED = Problem.make("mm", 8, 4096, 4096, "float16", b_layout="col")
ODD = Problem.make("mm", 8, 4096, 4097, "float16", b_layout="col")


@pytest.mark.parametrize(
    ("problem", "timed", "known"),
    [
        (ALIGNED, (TIMED,), [True, False, True]),
        (ALIGNED, (TIMED, TIMED), [True, True, True]),
        (ALIGNED, (TIMED, FAILED), [True, False, True]),
        (ODD, (TIMED, TIMED), [True, False, True]),  # nothing that tells of aligned operands
    ],
)
@pytest.mark.parametrize("enough", [True, False])
def test_of_many_loads_a_thread_only_timings_of_such_kernels_tell(
    save, problem, timed, known, enough
):
    here = Environment(H200, "", "", "")

    def timings(*rows: tuple[Problem, Candidate, Timing]) -> TimingTable:
        return TimingTable.from_records([(p, c, here, timing) for p, c, timing in rows])

    sizes = range(1, 1 + (MIN_PROBLEMS if enough else MIN_PROBLEMS - 1))
    problems = [replace(problem, M=size) for size in sizes]
    others = [tile(16, 128, 128, 5, 2), tile(16, 256, 128, 4, 2)]  # of many loads, too
    learned = timings(
        *((p, c, t) for p in problems for c, t in zip((FEW, MANY), timed, strict=False)),
        *((problems[0], c, t) for c in others for t in timed[1:]),
    )
    known = known if enough else [True, False, True]
    predictor = Predictor(save(coverage=Coverage.make(learned)))
    asked = (FEW, MANY, LARGE)
    assert np.isfinite(predictor.predict_us(ALIGNED, asked)).tolist() == known
    assert np.isfinite(predictor.predict_us(ODD, asked)).all()
    both = timings(*((p, c, TIMED) for p in (ODD, ALIGNED) for c in asked))
    assert np.isfinite(predictor.predict_table(both)).tolist() == [True] * 3 + known
    ranked = predictor.predict(ALIGNED, asked).order
    assert sorted(ranked) == np.flatnonzero(known).tolist()


def test_a_network_is_evaluated_as_written(table):
    model = network(3)
    x = Examples.make(table, H200).x[:50].astype(np.float64)
    h = (np.clip(x, model.low, model.high) - model.mean) * model.scale
    (w0, b0), (w1, b1) = model.layers
    want = (np.maximum(h @ w0 + b0, 0) @ w1 + b1)[:, 0] + x[:, features.BASE] * np.log(2)
    np.testing.assert_allclose(model.predict(x.astype(np.float32)), want, rtol=1e-4)
