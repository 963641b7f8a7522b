"""`python -m diode_engine`: the same as the command diode-engine. Runs are started with it."""

import os
import sys

from diode_engine.cli import main


def _main() -> int:
    code = main()
    if "DIODE_RUN" in os.environ:  # still: the run that this process was started for never began
        from diode_engine.runs import settle

        settle(code)
    return code


if __name__ == "__main__":
    sys.exit(_main())
