"""diode-engine train, from the command line to its exit code."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from diode_engine import paths, registry
from diode_engine.cli import ExitCode, main
from diode_engine.core.candidate import Candidate
from diode_engine.core.hardware import H200, Environment
from diode_engine.core.problem import Problem
from diode_engine.core.table import TimingTable
from diode_engine.core.timing import Timing
from diode_engine.store import RunState, Store, write_dataset

TILES = (16, 32, 64, 128)
QUICK = ["--rounds=60", "--depth=3", "--epochs=4", "--hidden=16", "--layers=1", "--batch-size=64"]


@pytest.fixture(autouse=True)
def _nothing_shipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The registry is empty, whatever Diode ships."""
    monkeypatch.setattr(paths, "shipped_dir", lambda: tmp_path / "shipped")


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """Sixty problems, faster with larger tiles."""
    environment = Environment(H200, "570", "2.13.0", "3.7.1")
    path = tmp_path / "diode.db"
    table = TimingTable.from_records(
        (
            Problem.make("mm", 128 * i, 512, 256, "bfloat16"),
            Candidate.make("triton::mm", BLOCK_M=m, BLOCK_N=64, BLOCK_K=32, num_warps=4),
            environment,
            Timing(min_us=i * (1 + 64 / m)),
        )
        for i in range(1, 61)
        for m in TILES
    )
    with Store.open(path) as opened:
        opened.import_table(table, key="made up", spec={})
    return path


def test_stdout_is_the_summary_and_the_model_is_registered(
    store: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert (
        main(["train", "--store", str(store), "--name", "mine", "--seed", "3", *QUICK])
        == ExitCode.OK
    )
    out, err = capsys.readouterr()
    summary = json.loads(out)
    assert summary["model"] == "mine@1"
    assert summary["family"] == "ensemble"
    assert summary["hardware"] == "NVIDIA H200"
    assert summary["timings"] == len(TILES) * summary["problems"]
    assert summary["problems"] + summary["held_out_problems"] == 60
    assert summary["metrics"]["efficiency"] > 0.9
    assert registry.resolve("mine@1").manifest.identity == summary["identity"]
    assert "Registered mine@1" in err
    with Store.open(store) as opened:
        (run,) = [run for run in opened.runs() if run.kind == "train"]
    assert (run.state, run.spec["seed"]) == (RunState.DONE, 3)


def test_all_trains_on_the_held_out_problems_too(
    store: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["train", "--store", str(store), "--all", *QUICK]) == ExitCode.OK
    summary = json.loads(capsys.readouterr().out)
    assert summary["problems"] == 60
    assert summary["metrics"]["problems"] == summary["held_out_problems"] > 0
    assert "has seen all problems" in summary["notes"]


@pytest.mark.parametrize(
    ("arguments", "code", "sentence"),
    [
        (
            ["--hardware", "A100"],
            ExitCode.FAILURE,
            "no timings of a GPU named 'A100'; there are some of: NVIDIA H200.",
        ),
        (["--name", "Not/A/Name"], ExitCode.FAILURE, "cannot name a model"),
        (["--family", "forest"], ExitCode.USAGE, "forest"),
    ],
)
def test_what_is_impossible_is_refused_in_a_sentence(
    arguments: list[str],
    code: ExitCode,
    sentence: str,
    store: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["train", "--store", str(store), *arguments]) == code
    out, err = capsys.readouterr()
    assert out == ""
    assert sentence in err
    assert "Traceback" not in err
    assert registry.list_models() == []


def test_an_empty_store_is_a_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Store.open(tmp_path / "new.db").close()
    assert main(["train", "--store", str(tmp_path / "new.db")]) == ExitCode.FAILURE
    assert "There are no timings to learn from" in capsys.readouterr().err


def test_a_store_that_there_is_not_is_not_made(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["train", "--store", str(tmp_path / "typo.db")]) == ExitCode.NOTHING
    assert "There is no store at" in capsys.readouterr().err
    assert not list(tmp_path.glob("typo.db*"))


def files_of(store: Path, folder: Path) -> None:
    """The store's timings in two files, of which one problem is in both, and a third file that
    is no dataset."""
    (folder / "below").mkdir(parents=True)
    with Store.open(store) as opened:
        table = opened.read()
    write_dataset(table.take(table.problem < 31), folder / "first.msgpack")
    write_dataset(table.take(table.problem >= 30), folder / "below" / "second.msgpack")
    (folder / "solution.json").write_text('{"config": []}')


def test_a_folder_is_learned_from_whole(
    store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files_of(store, tmp_path / "data")
    asked = ["train", "--store", str(tmp_path / "runs.db"), "--data-dir", str(tmp_path / "data")]
    trees = ["--model-type", "boosted", "--rounds=20", "--depth=3"]
    assert main([*asked, *trees, "--file-extensions", "json"]) == ExitCode.NOTHING
    assert "is a dataset that ends in .json, .json.zst" in capsys.readouterr().err
    assert main([*asked, *trees, "--file-extensions", "json", "msgpack"]) == ExitCode.OK
    said = capsys.readouterr()
    (skipped,) = [line for line in said.err.splitlines() if line.startswith("Skipped:")]
    assert "solution.json" in skipped
    summary = json.loads(said.out)
    assert summary["problems"] + summary["held_out_problems"] == 60
    assert summary["timings"] == len(TILES) * summary["problems"]
    with Store.open(tmp_path / "runs.db") as opened:
        run = opened.runs()[-1]
    assert (run.kind, run.state) == ("train", RunState.DONE)
    assert str(run.spec["dataset"]).endswith("first.msgpack")
    files = registry.resolve(summary["model"]).manifest.data.files
    assert files == ("second.msgpack", "first.msgpack")


def test_an_extension_stands_for_its_compressed_form_too(
    store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with Store.open(store) as opened:
        write_dataset(opened.read(), tmp_path / "one.msgpack.zst")
    asked = ["train", "--store", str(tmp_path / "runs.db"), "--data-dir", str(tmp_path)]
    trees = ["--model-type", "boosted", "--rounds=20", "--depth=3"]
    assert main([*asked, *trees, "--file-extensions", "msgpack"]) == ExitCode.OK
    assert json.loads(capsys.readouterr().out)["held_out_problems"] > 0


def test_a_model_is_written_to_a_file_too(
    store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "My Model.pt"
    asked = ["train", "--store", str(store), "--model", str(file), "--model-type", "boosted"]
    assert main([*asked, "--rounds=20", "--depth=3", "--log-dir", "logs"]) == ExitCode.OK
    said = capsys.readouterr()
    summary = json.loads(said.out)
    assert (summary["model"], summary["file"]) == ("my-model@1", str(file))
    assert "--log-dir changes nothing: the store keeps the curves" in said.err
    assert registry.resolve(str(file)).manifest.identity == summary["identity"]
    for other, sentence in ((store, "it is a store"), ("no/such.pt", "there is no folder")):
        assert main(["train", "--store", str(store), "--model", str(other)]) == ExitCode.FAILURE
        assert sentence in capsys.readouterr().err
    assert main([*asked, "--rounds=10", "--depth=2"]) == ExitCode.OK  # it replaces a model
    again = json.loads(capsys.readouterr().out)
    assert registry.resolve(str(file)).manifest.identity == again["identity"]
    assert again["identity"] != summary["identity"]


def test_a_file_is_asked_by_op_and_gpu(
    store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files_of(store, tmp_path / "data")
    asked = ["train", "--store", str(tmp_path / "runs.db"), "--dataset",
             str(tmp_path / "data" / "first.msgpack"), "--family=trees"]  # fmt: skip
    assert main([*asked, "--op-name", "bmm"]) == ExitCode.NOTHING
    assert "finds no problem in these files" in capsys.readouterr().err
    assert main([*asked, "--hardware-name", "A100"]) == ExitCode.FAILURE
    assert "no timings of a GPU named 'A100'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "code", "sentence"),
    [
        (["--file-extensions", "json"], ExitCode.USAGE, "goes with --data-dir"),
        (["--data-dir", ".", "--file-extensions", "csv"], ExitCode.USAGE, "ends in .csv"),
        (["--data-dir", "."], ExitCode.NOTHING, "No file in . is a dataset"),
        (["--resume", "--seed=3"], ExitCode.USAGE, "--resume uses the options"),
        (["--resume"], ExitCode.NOTHING, "has no training to continue"),
        (["--fine-tune", "gemm", "--ray", "auto"], ExitCode.USAGE, "leave out --ray"),
    ],
)
def test_a_folder_and_resume_are_refused_with_a_sentence(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str], arguments: list[str], code: ExitCode, sentence: str,
) -> None:  # fmt: skip
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path / "empty")
    assert main(["train", "--store", str(store), *arguments]) == code
    out, err = capsys.readouterr()
    assert (out, sentence in err) == ("", True), err


def test_resume_goes_on_with_the_last_training(
    store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["diode-engine", "train", "--family=trees", "--rounds=20", "--depth=3",
             "--name=again", f"--store={store}"]  # fmt: skip
    with Store.open(store) as opened:
        cut = opened.queue_run("train", {}, command=words, directory=str(tmp_path), logs=tmp_path)
        opened.finish_run(cut.id, "cancelled")
    asked = ["train", "--resume", "--store", str(store)]
    assert main(asked) == ExitCode.OK
    out, err = capsys.readouterr()
    assert json.loads(out)["model"] == "again@1"
    assert "Registered again@1" in err
    with Store.open(store) as opened:
        assert opened.runs()[-1].resumes == cut.id
    assert main(asked) == ExitCode.NOTHING
    assert "is done" in capsys.readouterr().err
