"""diode-engine validate-max-autotune."""

import json

import numpy as np
import pytest

from diode_engine.store import read_dataset
from tests.cli.conftest import TILE

pytestmark = pytest.mark.usefixtures("nothing_shipped")


@pytest.fixture(autouse=True)
def _in_a_folder(tmp_path, monkeypatch):
    """Where the statistics are written."""
    monkeypatch.chdir(tmp_path)


def asked(run, dataset, model, file, *more):
    return run(
        "validate-max-autotune", "--max-autotune-solution", file, "--dataset", dataset,
        "--model", model, "--all", *more,
    )  # fmt: skip


def test_against_one_config_for_all(run, dataset, model, solution):
    ran = asked(run, dataset, model, solution(TILE), "--json", "--top-n", "1", "--top-n", "4")
    found = ran.json()
    table = read_dataset(dataset)
    mine = np.array([c.config.get("BLOCK_M") == 64 for c in table.candidates])
    us = table.time_us.reshape(12, 4)
    theirs = us[:, mine].ravel()
    timed = ~np.isnan(theirs)
    best = np.nanmin(us, axis=1)
    group = found["by_op"]["mm"]
    assert (group["problems"], group["compared"]) == (12, timed.sum())
    expected = np.exp(np.mean(np.log(best[timed] / theirs[timed])))
    assert group["efficiency"] == pytest.approx(expected)
    assert group["top"]["4"]["efficiency"] == pytest.approx(1)
    assert group["top"]["4"]["speed"] == pytest.approx(1 / expected)
    assert group["top"]["4"]["no_slower"] == 1
    assert found["all"] == group
    words = asked(run, dataset, model, solution(TILE)).out
    assert "tripled@0 against found (1 configs)" in words
    assert "first 10" in words


def test_a_config_is_for_its_sizes_and_op_alone(run, dataset, model, solution):
    p = read_dataset(dataset).problems[2]
    mine = {**TILE, "M": p.M, "N": p.N, "K": p.K, "num_warps": 4, "num_stages": 3, "op": "mm"}
    found = asked(run, dataset, model, solution(mine), "--json").json()
    assert found["all"]["compared"] == 1
    for other in ({"op": "bmm"}, {"num_warps": 8}):
        ran = asked(run, dataset, model, solution({**mine, **other}))
        ran.says(1, "None of these problems has timings")


def test_sizes_that_were_not_timed_are_left_out_with_a_word(
    run, dataset, model, solution, tmp_path
):
    unknown = {**TILE, "M": 1376, "N": 80, "K": 216}
    ran = asked(run, dataset, model, solution(unknown), "--json")
    assert "None of the sizes in" in ran.err
    assert "compared on all problems" in ran.err
    found = ran.json()
    mine = asked(run, dataset, model, solution(TILE), "--json").json()
    assert (found["sizes_left_out"], mine["sizes_left_out"]) == (True, False)
    assert found["by_op"] == mine["by_op"]


def test_of_an_operator_or_a_gpu_and_of_a_folder(run, dataset, model, solution, tmp_path):
    every = asked(run, dataset, model, solution(TILE), "--json").json()
    named = ("--op-name", "mm", "--hardware-name", "NVIDIA H200", "--query", "m<9999")
    assert asked(run, dataset, model, solution(TILE), "--json", *named).json() == every
    none = asked(run, dataset, model, solution(TILE), "--op-name", "bmm")
    none.says(3, "finds no problem in these files")
    (tmp_path / "data").mkdir()
    moved = dataset.rename(tmp_path / "data" / dataset.name).parent
    (moved / "notes.json").write_text("{}")
    of_folder = asked(run, moved, model, solution(TILE), "--json", "--batch-size", "64")
    assert of_folder.json() == every
    assert "--batch-size changes nothing: all predictions are made at once." in of_folder.err


def test_a_solution_of_torch_diode_is_for_all_problems(run, dataset, model, solution, tmp_path):
    theirs = {**TILE, "name": "triton_mm", "grid": 1, "ACC_TYPE": "tl.float16", "version": 1,
              "group_m": 8, "num_stages": 3, "num_warps": 4}  # fmt: skip
    written = tmp_path / "exhaustive.json"
    written.write_text(json.dumps({"config": [theirs], "version": 1}))
    found = asked(run, dataset, model, written, "--json").json()
    mine = asked(run, dataset, model, solution(TILE), "--json").json()
    assert found == {**mine, "solution": "exhaustive"}
    written.write_text(json.dumps({"config": [{"block_m": 64}]}))
    assert "configs[0] lacks block_n" in asked(run, dataset, model, written).err


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({"block_m": 64, "block_n": 64}, "lacks block_k"),
        ({**TILE, "M": 3}, "all of M, N and K"),
        ({**TILE, "tile": 3}, "has 'tile'"),
        ({**TILE, "block_m": 0}, "block_m is 0"),
        ({**TILE, "op": "conv"}, "op is 'conv'"),
        ([], "must be an object"),
    ],
)
def test_a_malformed_solution_is_one_sentence(run, dataset, model, solution, config, said):
    ran = asked(run, dataset, model, solution(config))
    ran.says(1, said, "configs[0]")
