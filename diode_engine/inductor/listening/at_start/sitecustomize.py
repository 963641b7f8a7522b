"""Python imports this when a process of a program under `diode-engine capture` starts; the command
puts this folder first in PYTHONPATH."""

import importlib.machinery
import importlib.util
import os
import sys


def _run_the_next_one() -> None:
    """Run the sitecustomize that this one hides, if there is one."""
    here = os.path.dirname(os.path.abspath(__file__))  # noqa: PTH100, PTH120  # cheap at start
    sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry) != here]  # noqa: PTH100
    spec = importlib.machinery.PathFinder.find_spec(__name__)
    if spec is None or spec.loader is None:
        return
    module = importlib.util.module_from_spec(spec)
    sys.modules[__name__] = module
    spec.loader.exec_module(module)


try:
    from diode_engine.inductor.listening import capture
except ImportError:  # Diode is not installed in this Python: the program still runs
    pass
else:
    capture.begin()
_run_the_next_one()
