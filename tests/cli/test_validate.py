"""diode-engine validate."""

import json

import pytest

from diode_engine.problems.splits import is_held_out_by_size, split
from diode_engine.store import RunState, Store, dataset_key, read_dataset, write_dataset
from diode_engine.training.trainable_rows import learnable
from tests.cli.conftest import make_timings

pytestmark = pytest.mark.usefixtures("nothing_shipped")


def test_of_a_file(run, dataset, model, tmp_path):
    ran = run("validate", "--dataset", dataset, "--model", model, "--all")
    for expected in ("tripled@0: 12 problems", "ATen", "max-autotune DEFAULT", "Made by hand."):
        assert expected in ran.out
    report = run("validate", "--dataset", dataset, "--model", model, "--all", "--json").json()
    assert report["problems"] == 12
    assert report["errors"]["rmse_log"] == pytest.approx(0, abs=1e-4)
    # it only ever errs by choosing what failed, or what fits but failed
    assert report["choosers"][0]["top"]["3"]["geomean"] == pytest.approx(1, abs=1e-4)
    assert not (tmp_path / "diode-home" / "diode.db").exists()


def test_only_what_training_holds_out(run, model, tmp_path):
    file = tmp_path / "many.json"
    write_dataset(make_timings(60), file)
    expected = sum(map(is_held_out_by_size, read_dataset(file).problems))
    assert 0 < expected < 60
    report = run("validate", "--dataset", file, "--model", model, "--json").json()
    assert report["problems"] == expected
    write_dataset(make_timings(1), file)
    run("validate", "--dataset", file, "--model", model).says(1, "--all")


def test_of_the_store_is_a_run(run, store, model):
    assert (
        run("validate", "--store", store, "--model", model, "--all", "--top-n-worst", "0").code == 0
    )
    assert run("validate", "--store", store, "--all").code == 3  # nothing is registered
    run("models", "register", model)
    assert "tripled@1" in run("validate", "--store", store, "--all").out
    with Store.open(store, read_only=True) as opened:
        _, done, failed, again = opened.runs()
        kept = opened.result(done.id)
        assert opened.result(failed.id) is None
    assert (done.kind, done.state, failed.state) == ("validate", RunState.DONE, RunState.FAILED)
    assert again.state is RunState.DONE
    assert done.progress["problems"] == 12
    assert (kept["format"], len(kept["cases"])) == ("diode-validation", 12)
    assert done.progress["judged"] == "tripled@0"
    assert "no model for NVIDIA H200" in failed.message


def test_on_the_problems_of_a_query(run, store, model):
    arguments = ("validate", "--store", store, "--model", model, "--all", "--json")
    sizes = sorted(case["problem"]["M"] for case in run(*arguments).json()["cases"])
    some = run(*arguments, "--query", f"m<={sizes[3]}").json()["cases"]
    assert sorted(case["problem"]["M"] for case in some) == [m for m in sizes if m <= sizes[3]]


def test_timings_of_the_models_gpu_and_triton(run, dataset, model, tmp_path):
    store, other, older = (tmp_path / n for n in ("a.db", "other.json", "older.json"))
    write_dataset(make_timings(3, name="Another GPU"), other)
    write_dataset(make_timings(4, triton="3.6.0"), older)
    run("data", "import", dataset, other, older, "--store", store)
    report = run("validate", "--store", store, "--model", model, "--all", "--json").json()
    assert (report["hardware"], report["problems"]) == (["NVIDIA H200"], 12)
    run("validate", "--store", store, "--all").says(1, "--model")
    elsewhere = run("validate", "--dataset", other, "--model", model, "--all")
    assert elsewhere.code == 0
    assert "trained on NVIDIA H200" in elsewhere.err
    assert "Triton 3.7.1" in run("validate", "--dataset", older, "--model", model, "--all").err


@pytest.mark.parametrize(
    ("everything", "warned", "headline"),
    [
        (None, "It is not known whether", "of which it is not known"),
        (True, "was trained on the held-out problems too", "which it has seen in training"),
        (False, "", "which it has not seen in training"),
    ],
)
def test_what_a_model_has_seen_is_not_called_unseen(
    run, model, tmp_path, everything, warned, headline
):
    file, manifest = tmp_path / "many.json", model / "manifest.json"
    write_dataset(make_timings(60), file)
    described = json.loads(manifest.read_text()) | {"everything": everything}
    manifest.write_text(json.dumps(described))
    ran = run("validate", "--dataset", file, "--model", model)
    assert ran.code == 0
    assert headline in ran.out.splitlines()[0]
    assert "nearest problem" in ran.out  # of those that training may use
    assert warned in ran.err
    assert ("held-out problems too" in ran.err) == bool(everything)
    report = run("validate", "--dataset", file, "--model", model, "--json").json()
    assert report["unseen"] is (None if everything is None else not everything)
    on_all = ("validate", "--dataset", file, "--model", model, "--all", "--json")
    report = run(*on_all).json()
    assert report["unseen"] is None  # there may be others of the same problems
    timings = make_timings(60)
    for learned in (timings, split(learnable(timings))[0]):  # all of a file, a part of a store
        described["data"]["datasets"] = ["0" * 32, dataset_key(learned)]
        manifest.write_text(json.dumps(described))
        assert run(*on_all).json()["unseen"] is (None if everything is None else False)
    assert "nearest problem" not in [row["chooser"] for row in report["choosers"]]


def test_a_figure_beside_the_report(run, dataset, model, tmp_path):
    pytest.importorskip("matplotlib")
    arguments = ("validate", "--dataset", dataset, "--model", model, "--all", "--figure")
    ran = run(*arguments, tmp_path / "a.svg")
    assert ran.code == 0
    assert "tripled@0" in (tmp_path / "a.svg").read_text()
    run(*arguments, tmp_path / "a.doc").says(1, ".svg")


@pytest.fixture
def quick_fits(monkeypatch):
    """Trees of few rounds."""
    from diode_engine.models.fit_trees import TreesSettings
    from diode_engine.training import fit_steps

    settings = fit_steps.TrainingSettings({"trees": TreesSettings(rounds=3, threads=1)})
    monkeypatch.setattr(fit_steps, "TrainingSettings", lambda: settings)


@pytest.mark.usefixtures("quick_fits")
def test_cross_validation_judges_models_made_for_it(run, tmp_path, dataset):
    file, store = tmp_path / "many.json", tmp_path / "a.db"
    write_dataset(make_timings(90), file)
    run("data", "import", file, "--store", store)
    problems = read_dataset(file).problems
    learned = sum(not is_held_out_by_size(problem) for problem in problems)
    arguments = ("validate", "--store", store, "--cross-validate", "folds", "--family", "trees")
    ran = run(*arguments)
    assert ran.code == 0
    assert "fold 5 of 5" in ran.out
    assert ["together", str(learned)] == ran.out.splitlines()[-1].split()[:2]
    document = run(*arguments, "--all", "--json").json()
    assert sum(part["problems"] for part in document["parts"].values()) == len(problems)
    assert all(part["unseen"] for part in document["parts"].values())
    with Store.open(store, read_only=True) as opened:
        last = opened.runs()[-1]
        assert opened.result(last.id) == document
    assert last.message.startswith("trees, folds: ")
    run("validate", "--dataset", dataset, "--cross-validate", "llm").says(1, "named transformer")
    sizes = run("validate", "--store", store, "--cross-validate", "sizes", "--family", "trees")
    assert "GFLOP" in sizes.out


def test_mistakes_end_in_one_sentence(run, dataset, model, tmp_path):
    bad = tmp_path / "bad.json"
    bad.write_text('{"format": 1')
    for arguments, code in (
        (("--dataset", bad, "--model", model), 1),
        (("--dataset", dataset, "--model", "nobody"), 3),
        (("--store", bad, "--model", model), 1),
        (("--dataset", dataset, "--family", "trees"), 2),
        (("--dataset", dataset, "--cross-validate", "folds", "--model", model), 2),
        (("--dataset", dataset, "--cross-validate", "folds", "--figure", "a.svg"), 2),
        (("--dataset", dataset, "--ray", "auto"), 2),
    ):
        ran = run("validate", *arguments)
        assert (ran.code, ran.out, ran.err.count("Error: ")) == (code, "", 1)
