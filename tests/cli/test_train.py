"""diode-engine train, from the command line to its exit code."""

from pathlib import Path

import pytest

from diode_engine import registry
from diode_engine.core.hardware import H200, Environment
from diode_engine.core.problem import Problem
from diode_engine.store import RunState, Store, write_dataset
from tests.samples import table_of, tile

TILES = (16, 32, 64, 128)
QUICK = ["--rounds=60", "--depth=3", "--epochs=4", "--hidden=16", "--layers=1", "--batch-size=64"]


TREES = ("--model-type", "boosted", "--rounds=20", "--depth=3")

pytestmark = pytest.mark.usefixtures("nothing_shipped")


@pytest.fixture
def store(tmp_path):
    """Sixty problems, faster with larger tiles."""
    environment = Environment(H200, "570", "2.13.0", "3.7.1")
    path = tmp_path / "diode.db"
    size = range(1, 61)
    problems = [Problem.make("mm", 128 * i, 512, 256, "bfloat16") for i in size]
    us = [i * (1 + 64 / m) for i in size for m in TILES]
    table = table_of(problems, [tile(m, 64, 32) for m in TILES], us, environment)
    with Store.open(path) as opened:
        opened.import_table(table, key="made up", spec={})
    return path


def test_stdout_is_the_summary_and_the_model_is_registered(run, store):
    ran = run("train", "--store", store, "--name", "mine", "--seed", "3", *QUICK)
    summary = ran.json()
    assert (summary["model"], summary["family"]) == ("mine@1", "ensemble")
    assert summary["hardware"] == "NVIDIA H200"
    assert summary["timings"] == len(TILES) * summary["problems"]
    assert summary["problems"] + summary["held_out_problems"] == 60
    assert summary["metrics"]["efficiency"] > 0.9
    assert registry.resolve("mine@1").manifest.identity == summary["identity"]
    assert "Registered mine@1" in ran.err
    with Store.open(store) as opened:
        (trained,) = [each for each in opened.runs() if each.kind == "train"]
    assert (trained.state, trained.spec["seed"]) == (RunState.DONE, 3)


def test_all_trains_on_the_held_out_problems_too(run, store):
    summary = run("train", "--store", store, "--all", *QUICK).json()
    assert summary["problems"] == 60
    assert summary["metrics"]["problems"] == summary["held_out_problems"] > 0
    assert "has seen all problems" in summary["notes"]


@pytest.mark.parametrize(
    ("words", "code", "sentence"),
    [
        ("--hardware A100", 3, "named 'A100'; there are some of: NVIDIA H200."),
        ("--name Not/A/Name", 1, "cannot name a model"),
        ("--name default", 1, "default is an alias"),
        ("--family trees --epochs 3", 2, "trees has no use for --epochs: leave it out"),
        ("--model-type deep --depth 3", 2, "network has no use for --depth"),
        ("--fine-tune gemm --search 3", 2, "--fine-tune has no use for --search"),
        ("--family network --model-type boosted", 2, "boosted is not of --family network"),
        ("--file-extensions json", 2, "goes with --data-dir"),
        ("--data-dir . --file-extensions csv", 2, "ends in .csv"),
        ("--data-dir .", 3, "No file in . is a dataset"),
        ("--learning-rate nan", 2, "nan is not a finite number"),
        ("--resume --seed=3", 2, "--resume uses the options"),
        ("--resume", 3, "has no training to continue"),
        ("--fine-tune gemm --ray auto", 2, "leave out --ray"),
        ("--fine-tune gemm --family trees", 2, "leave out --family"),
        ("--fine-tune gemm --model-type boosted", 2, "and --model-type."),
        ("--store new.db", 1, "There are no timings to learn from"),
    ],
)
def test_what_is_impossible_is_refused_in_a_sentence(
    run, store, tmp_path, monkeypatch, words, code, sentence
):
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path / "empty")
    if "new.db" in words:
        Store.open(Path("new.db")).close()
    run("train", "--store", store, *words.split()).says(code, sentence)
    assert registry.list_models() == []
    assert run("runs", "list", "kind:train", "--store", store, "--json").out == "[]\n"


def files_of(store, folder):
    """The store's timings in two files, of which one problem is in both, and a third file that
    is not a dataset."""
    (folder / "below").mkdir(parents=True)
    with Store.open(store) as opened:
        table = opened.read()
    write_dataset(table.take(table.problem < 31), folder / "first.msgpack")
    write_dataset(table.take(table.problem >= 30), folder / "below" / "second.msgpack.zst")
    (folder / "solution.json").write_text('{"config": []}')


def test_a_folder_is_learned_from_whole(run, store, tmp_path):
    """An extension stands for its compressed form too."""
    files_of(store, tmp_path / "data")
    asked = ("train", "--store", tmp_path / "runs.db", "--data-dir", tmp_path / "data", *TREES)
    ran = run(*asked, "--file-extensions", "json")
    ran.says(3, "is a dataset that ends in .json, .json.zst")
    ran = run(*asked, "--file-extensions", "json", "msgpack")
    (skipped,) = [line for line in ran.err.splitlines() if line.startswith("Skipped:")]
    assert "solution.json" in skipped
    summary = ran.json()
    assert summary["problems"] + summary["held_out_problems"] == 60
    assert summary["timings"] == len(TILES) * summary["problems"]
    with Store.open(tmp_path / "runs.db") as opened:
        trained = opened.runs()[-1]
    assert (trained.kind, trained.state) == ("train", RunState.DONE)
    assert str(trained.spec["dataset"]).endswith("first.msgpack")
    files = registry.resolve(summary["model"]).manifest.data.files
    assert files == ("second.msgpack.zst", "first.msgpack")


def test_a_model_is_written_to_a_file_too(run, store, tmp_path):
    file = tmp_path / "My Model.pt"
    asked = ("train", "--store", store, "--model", file, *TREES)
    ran = run(*asked, "--log-dir", "logs")
    summary = ran.json()
    assert (summary["model"], summary["file"]) == ("my-model@1", str(file))
    assert "--log-dir changes nothing: the store keeps the curves" in ran.err
    assert registry.resolve(str(file)).manifest.identity == summary["identity"]
    again = run(*asked, "--rounds=10").json()  # it replaces a model
    assert registry.resolve(str(file)).manifest.identity == again["identity"]
    assert again["identity"] != summary["identity"]


def test_resume_goes_on_with_the_last_training(run, store, tmp_path):
    words = ["diode-engine", "train", "--family=trees", "--rounds=20", "--depth=3",
             "--name=again", f"--store={store}"]  # fmt: skip
    with Store.open(store) as opened:
        cut = opened.queue_run("train", {}, command=words, directory=str(tmp_path), logs=tmp_path)
        opened.finish_run(cut.id, "cancelled")
    ran = run("train", "--resume", "--store", store)
    assert ran.json()["model"] == "again@1"
    assert "Registered again@1" in ran.err
    with Store.open(store) as opened:
        assert opened.runs()[-1].resumes == cut.id
    ran = run("train", "--resume", "--store", store)
    assert (ran.code, "is done" in ran.err) == (3, True)
