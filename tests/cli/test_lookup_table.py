"""diode-engine export-lookup-table, with the model that Diode ships and the real Inductor."""

import json

import pytest

from diode_engine.cli import lookup_table
from diode_engine.cli.models import looking
from diode_engine.core.problem import Problem

PROBLEMS = [
    Problem.make("mm", 64, 1024, 1024, "bfloat16", b_layout="col"),
    Problem.make("bmm", 64, 64, 128, "bfloat16", B=8),
    Problem.make("mm", 64, 1024, 1024, "int8"),  # nobody was trained on it
]


@pytest.fixture
def shapes(shapeset, tmp_path, monkeypatch):
    monkeypatch.setattr(looking, "_NVIDIA", tmp_path / "none")
    return shapeset(*PROBLEMS)


def test_a_key_for_each_problem_that_the_model_knows(run, shapes, tmp_path):
    file = tmp_path / "table.json"
    ran = run(
        "export-lookup-table", file, "--file", shapes, "--top-k", "2", "--hardware", "NVIDIA H200",
        "--json",
    )  # fmt: skip
    done = ran.json()
    assert (done["problems"], done["keys"], done["unknown"]) == (3, 2, 1)
    assert "has no prediction for 1 problems" in ran.err
    table = json.loads(file.read_text())
    (mm,) = (key for key in table if key.endswith("+mm"))
    assert mm.startswith("NVIDIA H200+((torch.bfloat16, [64, 1024], [1024, 1])")
    for entries in table.values():
        assert len(entries) == 2
        assert all("template_id" in entry for entry in entries)


def test_problems_that_share_a_key_and_differ_are_left_out():
    one, other = {"template_id": "aten::mm"}, {"template_id": "triton::mm", "BLOCK_M": 64}
    answers = [{"a": [one]}, {"b": [one]}, {"a": [other]}, {}, {"b": [one]}]
    assert lookup_table._table(answers) == ({"b": [one]}, 1, 1)


@pytest.mark.parametrize("where", ["file", "store"])
def test_the_gpu_is_that_of_the_timings_where_none_is_named(
    run, shapes, dataset, store, tmp_path, where, monkeypatch
):
    monkeypatch.setattr(lookup_table, "_answers", lambda question, total: [{}] * total)
    named = ["--file", dataset] if where == "file" else ["--store", store, "--query", "op:mm"]
    ran = run("export-lookup-table", tmp_path / "table.json", *named, "--json")
    assert ran.json()["hardware"] == "NVIDIA H200"
    # A shapeset names no GPU, and models ship for two.
    run("export-lookup-table", tmp_path / "table.json", "--file", shapes).says(3, "--hardware")


def test_what_is_missing(run, shapes, tmp_path):
    file = tmp_path / "table.json"
    assert run("export-lookup-table", file).code == 2
    none = run("export-lookup-table", file, "--file", shapes, "--model", "nobody")
    assert (none.code, none.out) == (3, "")
    store = run("export-lookup-table", file, "--query", "op:mm", "--store", tmp_path / "no.db")
    assert store.code == 3
    assert not file.exists()
