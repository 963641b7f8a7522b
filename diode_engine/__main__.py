"""`python -m diode_engine`: the same as the command diode-engine."""

import sys

from diode_engine.cli import main

if __name__ == "__main__":
    sys.exit(main())
