"""`python -m diode_app` is `diode-tui`."""

from __future__ import annotations

from diode_app.main import run

if __name__ == "__main__":
    run()
