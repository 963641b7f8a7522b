"""Turns Diode on without a change of code: `DIODE_AUTOLOAD=1 python anything.py`.

torch calls `load` at the end of `import torch`, in every process, vLLM and SGLang call it in theirs
(entry points in pyproject.toml). The module is outside `diode_engine`, because importing that
package turns Diode on.
"""

import os

VARIABLE = "DIODE_AUTOLOAD"


def load() -> None:
    """Import Diode if the environment variable DIODE_AUTOLOAD is set, else do nothing. It raises
    nothing: a failure is logged, and the program runs without Diode."""
    if not is_requested():
        return
    try:
        import diode_engine  # noqa: F401
    except Exception:
        import logging

        logging.getLogger("diode_engine").warning(
            "Diode is off: %s is set, but importing diode_engine failed.", VARIABLE, exc_info=True
        )


def is_requested() -> bool:
    """Return whether the environment asks for Diode in every process."""
    return os.environ.get(VARIABLE, "").lower() not in ("", "0", "false")
