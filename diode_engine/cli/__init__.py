"""The commands. The result of a command goes to stdout, messages for people go to stderr."""

from diode_engine.cli.diagnostics import ExitCode
from diode_engine.cli.group import main

__all__ = ["ExitCode", "main"]
