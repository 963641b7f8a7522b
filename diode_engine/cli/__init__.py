"""The headless commands. What is asked for goes to stdout; what people read, to stderr."""

from diode_engine.cli.diagnostics import ExitCode
from diode_engine.cli.group import main

__all__ = ["ExitCode", "main"]
