"""diode-engine predict."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

from diode_engine.cli import predict as module
from diode_engine.core.candidate import Candidate
from diode_engine.core.problem import Problem
from diode_engine.models.predictor import Predictor
from diode_engine.store import read_dataset

pytestmark = pytest.mark.usefixtures("nothing_shipped")


H200 = {"hardware": "NVIDIA H200"}
PROBLEMS = [
    {"op": "mm", "M": 64, "N": 128, "K": 256, "dtype": "bfloat16"},
    {"op": "mm", "M": 8, "N": 4096, "K": 512, "dtype": "bfloat16", "b_layout": "col"},
    {"op": "bmm", "B": 3, "M": 8, "N": 64, "K": 512, "dtype": "float16"},  # never trained on
]
KWARGS = {"BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": 64, "num_stages": 3, "num_warps": 4}
CANDIDATES = [
    {"template": "triton::mm", "kwargs": KWARGS},
    {"template": "aten::mm"},
    {"template": "somebody::mm"},
    {"template": "triton::mm", "kwargs": {**KWARGS, "BLOCK_N": 128}},
]


def write(path, *groups, environments=None):
    document = {
        "format": "diode-dataset", "version": 1, "environments": environments or [H200],
        "problems": PROBLEMS, "candidates": CANDIDATES, "timings": list(groups),
    }  # fmt: skip
    path.write_text(json.dumps(document))
    return path


@pytest.mark.parametrize("rows_at_once", [1 << 15, 1, 4])
def test_a_line_a_group_in_the_files_order(run, model, tmp_path, monkeypatch, rows_at_once):
    monkeypatch.setattr(module, "_ROWS", rows_at_once)
    groups: list[dict[str, Any]] = [
        {"problem": 1, "candidate": [3, 1, 2, 0]},
        {"problem": 0, "candidate": [0, 0], "min_us": [4.0, None], "failure": [None, "timeout"]},
        {"problem": 0, "candidate": []},
        {"problem": 0, "candidate": [1]},
        {"problem": 2, "candidate": [1, 3]},
        {"problem": 1, "candidate": [0]},
    ]
    ran = run("predict", write(tmp_path / "a.json", *groups), "--model", model)
    assert ran.code == 0
    found = ran.json_lines()
    predictor = Predictor.load(model)
    assert len(found) == len(groups)
    for line, group in zip(found, groups, strict=True):
        problem = Problem.from_dict(line["problem"])
        assert problem == Problem.from_dict(PROBLEMS[group["problem"]])
        wanted = predictor.predict_us(
            problem, [Candidate.from_dict(CANDIDATES[i]) for i in group["candidate"]]
        ).tolist()
        for us, expected in zip(line["predicted_us"], wanted, strict=True):
            assert us is None if expected != expected else us == pytest.approx(expected, rel=1e-5)
        assert line["model"] == "tripled@0"
    assert found[0]["predicted_us"][2] is None
    assert found[4]["predicted_us"] == [None, None]


def test_the_registrys_model_for_each_gpu(run, model, tmp_path):
    unlike = {
        **read_dataset(write(tmp_path / "x.json")).environments[0].hardware.to_dict(),
        "name": "Old GPU",
        "arch": "7.0",
    }
    groups = [{"problem": 0, "environment": i, "candidate": [0, 1]} for i in (1, 0)]
    file = write(tmp_path / "a.json", *groups, environments=[H200, {"hardware": unlike}])
    nothing = run("predict", file)
    assert nothing.code == 3
    assert [(at["model"], at["predicted_us"]) for at in nothing.json_lines()] == [
        (None, [None, None])
    ] * 2
    assert "so nothing was predicted" in nothing.err
    run("models", "register", model)
    ran = run("predict", file)
    assert ran.code == 0
    assert "no model for Old GPU" in ran.err
    first, second = ran.json_lines()
    assert (first["model"], first["predicted_us"]) == (None, [None, None])
    assert second["model"] == "tripled@1"
    assert None not in second["predicted_us"]
    for name in ("NVIDIA H200", "nvidia-h200"):
        for line in run("predict", file, "--hardware", name).json_lines():
            assert line["predicted_us"] == second["predicted_us"]
    run("predict", file, "--hardware", "GTX 1080").says(3, "NVIDIA H200, Old GPU")
    assert run("predict", file, "--hardware", "NVIDIA H200", "--model", "tripled").code == 2


def test_a_gpu_much_like_the_models(run, model, tmp_path):
    run("models", "register", model)
    h200 = read_dataset(write(tmp_path / "x.json")).environments[0].hardware
    for name, clock, said in (("NVIDIA H200", 1900, False), ("NVIDIA H200 NVL", 1980, True)):
        device = {**h200.to_dict(), "name": name, "clock_mhz": clock}
        group = {"problem": 0, "candidate": [0]}
        file = write(tmp_path / "a.json", group, environments=[{"hardware": device}])
        ran = run("predict", file)
        assert ran.json_lines()[0]["model"] == "tripled@1"
        assert ("trained on NVIDIA H200, is taken" in ran.err) == said


@pytest.mark.parametrize("words", ["predict a.json", "explain mm 64 64 512 --json"])
def test_neither_torch_nor_xgboost_is_needed(model, tmp_path, words):
    write(tmp_path / "a.json", {"problem": 0, "candidate": [0, 1]})
    code = (
        "import sys; from diode_engine.cli import main; code = main(sys.argv[1:]);"
        "assert not {'torch', 'xgboost'} & set(sys.modules); sys.exit(code)"
    )
    command = [sys.executable, "-c", code, *words.split(), "--model", str(model)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)
