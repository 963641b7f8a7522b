"""`python -m diode_engine`: the same as the command diode-engine. Runs are started with it."""

import os
import sys

from diode_engine.cli import main


def _main() -> int:
    code = main()
    # The variable names the run that this process was started for, and is removed when the run
    # begins: here it failed before.
    if "DIODE_RUN" in os.environ:
        from diode_engine.runs import settle

        settle(code)
    return code


if __name__ == "__main__":
    sys.exit(_main())
