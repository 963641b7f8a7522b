"""What Home and the start of the dashboard need, and what they do not import."""

from __future__ import annotations

import os
import subprocess
import sys

from diode_app.data.overview import model_in_use


def test_without_a_gpu_it_does_not_say_that_there_is_no_model():
    """The shipped default of all GPUs is one model."""
    found = model_in_use(None)
    assert not isinstance(found, str)
    assert dict(found)["here"] == "no GPU that it serves"
    assert "(shipped)" in dict(found)["model"]


def test_the_start_imports_neither_plots_nor_kernels():
    code = (
        "import sys, diode_app.main, diode_app.app, diode_app.screens.home\n"
        "slow = {'plotext', 'diode_engine.core.templates', 'diode_app.data.runs', 'numpy', 'torch',"
        " 'sqlalchemy', 'diode_app.widgets.table'}\n"
        "print(*sorted(slow & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []


def test_a_store_in_a_file_imports_no_dialect_of_another_database():
    code = (
        "import sys, diode_engine.store\n"
        "print(*(name for name in sys.modules if 'dialects.postgresql' in name))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []


def test_escape_is_not_read_as_one_with_a_key_soon_after_it():
    """Textual reads the delay once, when it is imported."""
    code = (
        "import sys, diode_app.main as m\n"
        "m.main(['--theme=nonsense'])\n"
        "from textual import constants\n"
        "print(constants.ESCAPE_DELAY)"
    )
    environment = {name: v for name, v in os.environ.items() if name != "ESCDELAY"}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    assert float(done.stdout) == 0.01
