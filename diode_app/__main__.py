"""`python -m diode_app` is `diode-tui`."""

from __future__ import annotations

import sys

from diode_app.main import main

if __name__ == "__main__":
    sys.exit(main())
