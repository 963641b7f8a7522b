"""Every block of docs/toolkit.md is run as it is written, in the page's order and one folder.

tests/docs/test_blocks.py leaves them out, because they need a GPU or what the blocks before them
have made. Here `diode-engine` is tests/docs/scripted_gpu.py, and Python's blocks find a pretended
H200. Without either, they run up to the step that needs a GPU.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import zipfile
from dataclasses import dataclass
from pathlib import Path

import pytest

import diode_engine
from diode_engine.cli.group import COMMANDS
from diode_engine.problems.splits import held_out_by
from diode_engine.store import read_dataset

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "toolkit.md").read_text(encoding="utf-8")
SHELL, PYTHON = (re.findall(rf"```{kind}\n(.*?)```", PAGE, re.DOTALL) for kind in ("sh", "python"))
COLLECT, TRAIN, VALIDATION, JUDGE, AGAINST, *OTHERS = SHELL
TOOLKIT = {
    "collect", "collect-shapeset", "create-validation", "train", "validate-model",
    "validate-max-autotune", "collect-and-train", "collector-example", "model-example",
    "convert-json-to-msgpack", "--seed", "--format", "--device", "--output", "--num-shapes",
    "--min-size", "--max-size", "--power-of-two", "--no-rectangular", "--no-odd-sizes",
    "--search-mode", "--search-space", "--chunk-size", "--log-normal", "--log-normal-m-mean",
    "--log-normal-m-std", "--shapeset", "--operations", "--dataset", "--data-dir", "--model",
    "--model-type", "--batch-size", "--num-epochs", "--learning-rate", "--weight-decay",
    "--patience", "--hidden-dim", "--num-layers", "--hardware-name", "--op-name", "--log-dir",
    "--file-extensions", "--top-n-worst", "--max-autotune-solution", "--skip-collection",
    "--skip-validation", "--skip-training", "--validation-dataset", "--validation-shapes",
}  # fmt: skip
PACKAGE = {
    "register_model", "list_available_models", "get_detected_hardware", "set_log_level",
    "profile_predictions", "get_prediction_stats", "install_diode_choices",
    "create_diode_choices", "DiodeInductorChoices", "create_matmul_integration",
    "register_integration", "discover_and_register_integrations", "integrate_all",
    "get_integration_status", "BaseIntegration", "ModelPointer", "IntegrationRegistry",
    "MatmulIntegration", "MatmulDatasetCollector",
}  # fmt: skip
SHAPESET = {
    "operations": {
        "mm": {"shapes": [
            {"B": 1, "M": m, "N": 64, "K": 64, "M_dtype": "float16", "K_dtype": "float16",
             "out_dtype": "float16", "out_size": [m, 64], "out_stride": [64, 1]}
            for m in (64, 128)
        ]}
    }
}  # fmt: skip


@dataclass(frozen=True)
class Ran:
    code: int
    out: str
    err: str


class Machine:
    """A folder to run blocks in."""

    def __init__(self, folder: Path, *, gpu: bool) -> None:
        self.folder = folder
        bin_ = folder / "bin"
        bin_.mkdir(parents=True)
        module = ("tests/docs/scripted_gpu.py",) if gpu else ("-m", "diode_engine")
        command = " ".join((sys.executable, str(ROOT / module[0]) if gpu else "-m diode_engine"))
        (bin_ / "diode-engine").write_text(f'#!/bin/sh\nexec {command} "$@"\n')
        (bin_ / "diode-engine").chmod(0o755)
        self.environment = {
            **{k: v for k, v in os.environ.items() if not k.startswith(("DIODE_", "TORCH"))},
            "CUDA_VISIBLE_DEVICES": "",
            "DIODE_HOME": str(folder / "home"),
            "OMP_NUM_THREADS": "1",
            "PATH": f"{bin_}{os.pathsep}{os.environ['PATH']}",
            "PYTHONPATH": str(ROOT),
        }
        if gpu:  # a worker is told the number of its GPU
            del self.environment["CUDA_VISIBLE_DEVICES"]

    def run(self, *command: str) -> Ran:
        done = subprocess.run(
            command, cwd=self.folder, env=self.environment, timeout=120, check=False,
            stdin=subprocess.DEVNULL, capture_output=True, text=True,
        )  # fmt: skip
        return Ran(done.returncode, done.stdout, done.stderr)

    def shell(self, block: str) -> Ran:
        return self.run("bash", "-euo", "pipefail", "-c", block)


@pytest.fixture(scope="module")
def machine(tmp_path_factory):
    """The machine with a GPU, after the first two steps of the tutorial."""
    machine = Machine(tmp_path_factory.mktemp("gpu"), gpu=True)
    (machine.folder / "notes.msgpack").write_bytes(b"\x80")
    machine.collected = machine.shell(COLLECT)
    machine.trained = machine.shell(TRAIN)
    machine.validation = machine.shell(VALIDATION)
    return machine


def dataset(machine: Machine, name: str) -> list:
    return list(read_dataset(machine.folder / name).problems)


def test_collect(machine):
    ran = machine.collected
    assert ran.code == 0, ran.err
    assert json.loads(ran.out)["problems_done"] == 10
    problems = dataset(machine, "tutorial_dataset.msgpack")
    assert len(problems) == 10
    said = ran.err.splitlines()
    assert f"[10/10] problems, {json.loads(ran.out)['timings']} timings" in said
    statistics = said[said.index("Dataset Statistics:") :]
    assert statistics[1] == "Hardware: NVIDIA H200"
    of_ops = dict(re.fullmatch(r"  Operation '(\w+)': (\d+) problems, \d+ configs", line).groups()
                  for line in statistics[2:])  # fmt: skip
    assert {op: str([str(p.op) for p in problems].count(op)) for op in of_ops} == of_ops
    assert "--format changes nothing" in ran.err


def test_train(machine):
    ran = machine.trained
    assert ran.code == 0, ran.err
    made = json.loads(ran.out)
    assert (made["model"], made["family"]) == ("tutorial_model@1", "network")
    assert "Skipped: notes.msgpack" in ran.err
    with zipfile.ZipFile(machine.folder / "tutorial_model.pt") as file:
        assert file.namelist() == ["manifest.json", "network-0.safetensors"]
    registered = machine.run("diode-engine", "models", "show", "tutorial_model", "--json")
    assert (
        json.loads(registered.out)["members"]
        == json.loads(
            machine.run("diode-engine", "models", "show", "tutorial_model.pt", "--json").out
        )["members"]
    )


def test_create_validation(machine):
    assert machine.validation.code == 0, machine.validation.err
    problems = dataset(machine, "tutorial_validation.msgpack")
    assert len(problems) == 5
    assert all(map(held_out_by, problems))
    assert "Dataset Statistics:\nHardware: NVIDIA H200\n" in machine.validation.err


def test_validate_model(machine):
    ran = machine.shell(JUDGE)
    assert ran.code == 0, ran.err
    assert "The worst choices" in ran.out
    assert "--batch-size changes nothing: all predictions are made at once." in ran.err


def test_validate_max_autotune(machine):
    ran = machine.shell(AGAINST)
    assert ran.code == 0, ran.err
    assert "against tutorial_max_autotune (2 configs)" in ran.out
    written = (machine.folder / "model_performance_analysis_by_op.json").read_text()
    assert set(json.loads(written)["by_op"]) == {"mm", "addmm"}


def test_the_other_commands(machine):
    """With fewer problems and epochs: what is not said is minutes of work."""
    (block,) = OTHERS
    (machine.folder / "operation_shapeset.json").write_text(json.dumps(SHAPESET))
    (machine.folder / "data").mkdir()
    for name in ("dataset", "validation"):
        file = machine.folder / f"tutorial_{name}.msgpack"
        (machine.folder / "data" / file.name).write_bytes(file.read_bytes())
    (machine.folder / "validation.msgpack").write_bytes(file.read_bytes())
    (machine.folder / "solutions.json").write_text(
        json.dumps({"config": [{"block_m": 64, "block_n": 64, "block_k": 64, "group_m": 8,
                                "num_stages": 3, "num_warps": 4}]})
    )  # fmt: skip
    short = block.replace("--num-shapes 100", "--num-shapes 12")
    short = short.replace("--num-epochs 100", "--num-epochs 3")
    short = short.replace("--dataset data.msgpack --model", "--dataset data.msgpack --model-type "
                          "base --num-epochs 3 --model")  # fmt: skip
    ran = machine.shell(short)
    assert ran.code == 0, ran.err
    assert {(p.M, p.N, p.K) for p in dataset(machine, "shapeset_data.msgpack")} == {
        (64, 64, 64), (128, 64, 64)
    }  # fmt: skip


def test_names_of_models(machine):
    another = """
try:
    diode_engine.register_model("NVIDIA-A100-matmul")
except diode_engine.DiodeError as error:
    print(error)
"""
    ran = machine.run(sys.executable, "-c", PYTHON[0] + another)
    assert ran.code == 0, ran.err
    assert "'NVIDIA H100 80GB HBM3'" in ran.out
    assert "There is no model for NVIDIA-A100" in ran.out
    assert "`diode-engine tune` makes one" in ran.out


def test_a_models_file_is_installed_and_an_integration_replaced(machine):
    pretended = "from diode_engine.inductor.without_gpu import pretend; pretend()\n"
    told = "\nimport diode_engine; print(diode_engine.get_stats()['model'])\n"
    ran = machine.run(
        sys.executable,
        "-c",
        pretended + PYTHON[1] + told + PYTHON[2] + "\nprint(results['matmul'])",
    )
    assert ran.code == 0, ran.err
    identity = json.loads(machine.trained.out)["identity"]
    assert ran.out.split("\n") == [identity, "True", ""]
    assert "The integration matmul is replaced" in ran.err


def test_statistics_can_be_formatted(machine):
    ran = machine.run(sys.executable, "-c", PYTHON[3])
    assert ran.code == 0, ran.err
    assert "Average confidence: nan" in ran.out


def test_without_a_gpu_the_steps_that_need_one_say_so(tmp_path):
    machine = Machine(tmp_path, gpu=False)
    for block in (COLLECT, VALIDATION):
        ran = machine.shell(block)
        assert (ran.code, ran.out) == (1, "")
        assert "Error: There is no GPU here" in ran.err
    assert not list(tmp_path.glob("*.msgpack"))


def test_the_page_maps_every_command_and_option():
    """The commands of the toolkit and the public names of torch-diode's packages."""
    table = PAGE.split("## What takes the place of what")[1]
    left = {row.split("|")[1] for row in table.splitlines() if row.startswith("|")}
    named = {name for cell in left for name in re.findall(r"`([^`]+)`", cell)}
    missing = (TOOLKIT | PACKAGE) - {word for name in named for word in name.split()}
    assert not missing
    for row in table.splitlines():
        if row.startswith("|") and row.split("|")[1].strip(" -"):
            right = row.split("|")[2]
            for name in re.findall(r"`diode_engine\.(\w+)", right):
                assert name in diode_engine.__all__, row
            for name in re.findall(r"`diode-engine ([\w-]+)", right):
                assert name in COMMANDS, row


def commands_before(page: str, last: str) -> list[str]:
    found = []
    for block in re.findall(r"```sh\n(.*?)```", page, re.DOTALL):
        for line in block.splitlines():
            found += [part.strip() for part in line.split("&&")]
            if last in line:
                return found
    raise AssertionError(f"{last} is not there")


def test_five_commands_lead_to_the_choices_for_a_program():
    page = (ROOT / "docs" / "getting-started.md").read_text(encoding="utf-8")
    commands = commands_before(page, "diode-engine report -- python program.py")
    needed = [command for command in commands if not command.endswith(("activate", "doctor"))]
    assert len(needed) <= 5, needed
