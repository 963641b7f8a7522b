"""The wheel without extras, as a server installs it: it chooses, and says what the rest needs."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
# What the extras bring.
EXTRAS = (
    "alembic", "click", "msgpack", "optuna", "rich", "scipy", "sqlalchemy", "textual", "tomlkit",
    "xgboost", "zstandard",
)  # fmt: skip
BARE = f"import sys; sys.modules.update(dict.fromkeys({EXTRAS}))"
CHOOSE = f"""{BARE}
from diode_engine.core.hardware import H200
from diode_engine.inductor import without_gpu
without_gpu.pretend(H200)
import torch
import diode_engine
def product():
    sizes = (533, 2049), (2049, 777)
    return torch.mm, [torch.empty(size, device="cuda", dtype=torch.float16) for size in sizes]
diode_engine.install_diode_choices(top_k_configs=1)
with diode_engine.profile_predictions() as profile:
    without_gpu.lower(product)
(choice,) = profile.selections
print(diode_engine.__file__, choice.predicted_us[0] > 0, sep="\\n")
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """The wheel, unpacked."""
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    (built,) = folder.glob("*.whl")
    assert built.stat().st_size < 6e6
    with zipfile.ZipFile(built) as archive:
        archive.extractall(folder / "installed")
    return folder / "installed"


def run(wheel: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {"PATH": "/usr/bin:/bin", "PYTHONPATH": str(wheel), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, *arguments]
    return subprocess.run(
        command, env=environment, cwd=wheel, capture_output=True, text=True, check=False
    )


def test_it_chooses_in_the_real_lowering(wheel):
    ran = run(wheel, "-c", CHOOSE)
    assert ran.stdout.splitlines() == [str(wheel / "diode_engine" / "__init__.py"), "True"], (
        ran.stderr
    )


def test_a_command_says_what_to_install(wheel):
    command = f"{BARE}; from diode_engine.__main__ import main; sys.exit(main())"
    ran = run(wheel, "-c", command)
    assert (ran.returncode, ran.stdout) == (1, "")
    assert ran.stderr == (
        "The command diode-engine needs the package click, which is not installed. Run: "
        "pip install 'diode-engine[store]'\n"
    )
