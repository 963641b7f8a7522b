"""DIODE_AUTOLOAD turns Diode on in programs that do not import it."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).resolve().parents[1]
STATE = "import sys, torch; print('diode_engine' in sys.modules)"


@pytest.fixture
def installed(tmp_path):
    """A folder with the entry points of pyproject.toml, as an installation has them."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    info = tmp_path / "diode_engine-9.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: diode-engine\nVersion: 9\n")
    lines: list[str] = []
    for group, entries in project["entry-points"].items():
        lines += [f"[{group}]", *(f"{name} = {value}" for name, value in entries.items())]
    (info / "entry_points.txt").write_text("\n".join(lines))
    return tmp_path


def run(code: str, folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code],
        env={"PATH": "/usr/bin:/bin", "PYTHONPATH": f"{folder}:{ROOT}", **environment},
        capture_output=True, text=True, check=False, cwd=folder,
    )  # fmt: skip


@pytest.mark.parametrize(("value", "loaded"), [(None, False), ("False", False), ("1", True)])
def test_importing_torch_turns_diode_on_where_the_variable_says_so(value, loaded, installed):
    environment = {} if value is None else {"DIODE_AUTOLOAD": value}
    ran = run(STATE, installed, **environment)
    assert (ran.stdout, ran.returncode) == (f"{loaded}\n", 0), ran.stderr


def test_a_spawned_process_loads_it_too(installed):
    code = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {STATE!r}])"
    assert run(code, installed, DIODE_AUTOLOAD="1").stdout.strip() == "True"


@pytest.mark.skipif(torch.__version__ < (2, 15), reason="torch before 2.15 has no register")
def test_the_choices_are_registered_in_a_program_that_does_not_import_diode(installed):
    code = (
        "from torch._inductor.choices import registered_inductor_choices\n"
        "print([name for name, _ in registered_inductor_choices()])"
    )
    assert run(code, installed, DIODE_AUTOLOAD="1").stdout == "['diode_engine']\n"
    assert run(code, installed).stdout == "[]\n"


def test_a_failing_import_leaves_torch_as_it_is(installed):
    (installed / "diode_engine.py").write_text("raise RuntimeError('damaged')")
    ran = run("import torch; print(torch.zeros(1).item())", installed, DIODE_AUTOLOAD="1")
    assert (ran.stdout, ran.returncode) == ("0.0\n", 0)
    assert "Diode is off: DIODE_AUTOLOAD is set" in ran.stderr
    assert "damaged" in ran.stderr


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, {"torch": "off", "vLLM": "off", "SGLang": "off"}),
        ({"DIODE_AUTOLOAD": "1"}, {"torch": "works", "vLLM": "works", "SGLang": "works"}),
        (
            {
                "DIODE_AUTOLOAD": "1",
                "TORCH_DEVICE_BACKEND_AUTOLOAD": "0",
                "VLLM_PLUGINS": "another",
                "SGLANG_PLUGINS": "another,diode",
            },
            {"torch": "off", "vLLM": "off", "SGLang": "works"},
        ),
    ],
)
def test_doctor_says_what_loads_diode(environment, expected, installed, tmp_path):
    code = (
        "from diode_engine.cli.doctor import _LOADERS, _check_autoload\n"
        "for loader in _LOADERS:\n"
        "    state, why = _check_autoload(*loader)\n"
        "    print(loader[0], state, sep='=')"
    )
    ran = run(code, installed, **environment)
    assert dict(line.split("=") for line in ran.stdout.split()) == expected, ran.stderr
