"""`python -m diode_engine`: the same as the command diode-engine. Runs are started with it."""

import os
import sys

from diode_engine.errors import explain_missing_package


def main() -> int:
    """Run diode-engine and return its exit code. An installation for compiling alone has no
    commands: then it says what to install."""
    try:
        from diode_engine.cli import main as run
    except ModuleNotFoundError as error:
        why = explain_missing_package(error, "The command diode-engine")
        if why is None:
            raise
        sys.stderr.write(f"{why}\n")
        return 1
    code = run()
    # The variable names the run that this process was started for, and is removed when the run
    # begins: here it failed before.
    if "DIODE_RUN" in os.environ:
        from diode_engine.runs import settle

        settle(code)
    return code


if __name__ == "__main__":
    sys.exit(main())
