"""diode-engine workflow."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from diode_engine import paths
from diode_engine.cli import workflow as module
from diode_engine.cli.group import COMMANDS, HELP_NAMES
from diode_engine.core.encoding import encode
from diode_engine.core.problem import Problem
from diode_engine.problems.spaces import default_space
from diode_engine.store import read_dataset, write_dataset
from diode_engine.validation.solution import read_solution
from tests.cli.conftest import make_timings

STEPS = """
store = "work.db"

[[step]]
run = "data import timings.json"
inputs = ["timings.json"]

[[step]]
name = "count"
run = "data stats --json"
output = "stats.json"

[[step]]
run = "db check --json"
"""


@pytest.fixture
def file(tmp_path, dataset):
    path = tmp_path / "flow.toml"
    path.write_text(STEPS)
    return path


def states(ran):
    return [line["state"] for line in ran.json_lines()]


def test_steps_whose_inputs_did_not_change_are_skipped(run, file, tmp_path):
    assert states(run("workflow", file, "--plan")) == ["runs"] * 3
    first = run("workflow", file)
    assert (first.code, states(first)) == (0, ["done"] * 3)
    assert json.loads(first.out.splitlines()[0])["result"]["timings"] == 48
    stats = json.loads((tmp_path / "stats.json").read_text())
    assert stats["problems"] == 12
    assert states(run("workflow", file)) == ["skipped"] * 3
    assert states(run("workflow", file, "--again", "--plan")) == ["runs"] * 3

    (tmp_path / "stats.json").write_text("{}")  # not as the step left it
    assert states(run("workflow", file, "--plan")) == ["skipped", "runs", "runs"]
    assert states(run("workflow", file)) == ["skipped", "done", "done"]
    file.write_text(STEPS.replace("db check --json", "db check"))
    assert states(run("workflow", file)) == ["skipped", "skipped", "done"]

    write_dataset(make_timings(14), tmp_path / "timings.json")
    assert states(run("workflow", file)) == ["done"] * 3
    assert json.loads((tmp_path / "stats.json").read_text())["problems"] == 14
    write_dataset(make_timings(16), tmp_path / "more.json")
    run("data", "import", tmp_path / "more.json", "--store", tmp_path / "work.db")
    assert states(run("workflow", file, "--plan")) == ["runs"] * 3


def test_it_ends_at_the_first_failure_and_goes_on_from_there(run, file, tmp_path):
    file.write_text(STEPS.replace("data stats --json", "data show 999"))
    failed = run("workflow", file)
    assert failed.code == 1
    assert states(failed) == ["done", "failed"]
    assert json.loads(failed.out.splitlines()[1])["code"] == 3
    assert not (tmp_path / "stats.json").exists()
    file.write_text(STEPS)
    assert states(run("workflow", file)) == ["skipped", "done", "done"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("step = 3", "step: 3 must be a list"),
        ("", "has no [[step]]"),
        ("[[step]]\nrun = 3", ", step 1: run: 3 must be a text"),
        (
            '[[step]]\nrun = "rm -rf x"',
            "flow.toml, step 1: 'rm' is not a command that a workflow can run",
        ),
        ('[[step]]\nrun = "workflow x"', "not a command that a workflow can run"),
        ('[[step]]\nrun = "data export a.json --nosuch"', "step 1: No such option '--nosuch'"),
        ('[[step]]\nrun = "db check"\nneeds = []', "step 1: it has 'needs'"),
        ("step = [{run = 'db check'}, {run = 'x'}]", "step 2: 'x' is not a command"),
        ("step = [{run = 'db check'}, 3]", "step 2: 3 must be an object"),
        ('[[step]]\nrun = "db check"\n[[step]]\nrun = "db check"', "several steps 'db'"),
        ('[[step]]\nrun = "db check"\ninputs = ["none"]', "an input of the step db"),
        ("[[step", "not valid TOML"),
        ('[[step]]\nrun = "db check"\noutput = "a\\u0000b"', "a null character"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_a_mistake_is_told_before_anything_runs(run, file, text, said):
    file.write_text(text)
    run("workflow", file).says(2, said)


def test_a_programs_own_options_and_the_short_ones_are_no_mistake(run, file):
    file.write_text("step = [{run = 'capture python x.py --nosuch'}, {run = 'train -h'}]")
    assert states(run("workflow", file, "--plan")) == ["runs"] * 2


def test_a_plan_asks_for_no_file_that_a_step_would_make(run, file):
    file.write_text(STEPS + 'inputs = ["stats.json"]\n')
    assert states(run("workflow", file, "--plan")) == ["runs"] * 3
    assert states(run("workflow", file)) == ["done"] * 3
    file.write_text(STEPS + 'inputs = ["typo.json"]\n')
    wrong = run("workflow", file, "--plan")
    assert (wrong.code, states(wrong)) == (2, ["skipped"] * 2)


ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "workflow"


def test_the_example_has_the_five_steps(run, tmp_path):
    folder = tmp_path / "flow"
    shutil.copytree(EXAMPLE, folder)
    file = folder / "five-steps.toml"
    steps, store = module._read(file, folder)
    assert [step.words[0] for step in steps] == [
        "collect", "train", "draw-problems", "collect-shapeset", "validate-model",
        "validate-max-autotune",
    ]  # fmt: skip
    assert store == folder / "timings.db"
    (folder / "unseen.json").touch()
    for step in steps:
        command = COMMANDS[step.words[0]].load(step.words[0])
        words = [str(folder / word) if word.endswith(".json") else word for word in step.words]
        # Raises for an option that there is not.
        command.make_context(step.name, words[1:], help_option_names=HELP_NAMES)
    assert states(run("workflow", file, "--plan")) == ["runs"] * 6


def test_the_examples_solution_is_the_default_space():
    found = read_solution(EXAMPLE / "max-autotune.json")
    space = default_space(Problem.make("mm", 4096, 4096, 4096, "bfloat16"))
    tiled = encode([candidate for candidate in space if candidate.template == "triton::mm"])
    assert len(found.configs) == len(tiled.block_m)
    for i, config in enumerate(found.configs):
        assert all(getattr(tiled, name)[i] == size for name, size in config.kernel.items())
        assert len(config.kernel) == 6


CHAIN = """
store = "work.db"

[[step]]
run = "data import timings.msgpack"
inputs = ["timings.msgpack"]

[[step]]
run = "train --model-type boosted --op-name mm --rounds 30 --depth 4 --name mine"

[[step]]
run = "draw-problems unseen.json --num-shapes 20"

[[step]]
run = "validate-model --model mine --json"
output = "report.json"

[[step]]
run = "validate-max-autotune --max-autotune-solution solution.json --model mine --all --json"
inputs = ["solution.json"]
output = "against.json"
"""


@pytest.fixture
def shipped(tmp_path):
    """Real timings: some of the mm that Diode ships."""
    (file,) = (paths.shipped_dir() / "datasets" / "nvidia-h200").glob("*.msgpack.zst")
    table = read_dataset(file)
    mm = np.array([p.op == "mm" for p in table.problems])
    some = np.flatnonzero(mm)[:60]
    path = tmp_path / "timings.msgpack"
    write_dataset(table.take(np.isin(table.problem, some)), path)
    return path


def test_the_chain_on_real_timings(run, shipped, tmp_path):
    file = tmp_path / "flow.toml"
    file.write_text(CHAIN)
    tile = {"block_m": 128, "block_n": 128, "block_k": 64}
    solution = {"name": "one tile", "configs": [tile]}
    (tmp_path / "solution.json").write_text(json.dumps(solution))
    ran = run("workflow", file)
    assert ran.code == 0, ran.err
    assert states(ran) == ["done"] * 5
    report = json.loads((tmp_path / "report.json").read_text())
    assert report["problems"] > 5
    against = json.loads((tmp_path / "against.json").read_text())
    assert against["all"]["compared"] > 10
    assert against["all"]["top"]["10"]["speed"] > 1  # than one tile for all
    assert states(run("workflow", file)) == ["skipped"] * 5


def test_collect_and_train_on_real_timings(run, shipped, tmp_path):
    store = tmp_path / "work.db"
    run("data", "import", shipped, "--store", store)
    ran = run("collect-and-train", "--store", store, "--skip-collection", "--family", "trees",
              "--name", "mine")  # fmt: skip
    assert ran.code == 0, ran.err
    trained, judged = map(json.loads, ran.out.splitlines())
    assert trained["model"] == "mine@1"
    assert judged["model"] == "mine@1"
    assert judged["problems"] == trained["held_out_problems"]
    again = run("collect-and-train", "--store", store, "--skip-collection", "--skip-training",
                "--name", "mine")  # fmt: skip
    assert again.json() == judged
