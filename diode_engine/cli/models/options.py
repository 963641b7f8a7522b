"""The options that the commands on models share."""

from __future__ import annotations

import click

model_argument = click.argument("model", metavar="MODEL")
hardware_option = click.option(
    "--hardware",
    metavar="NAME",
    help="The GPU, where models for several GPUs have the name; such as H200 or nvidia-h200. "
    "[default: this machine's]",
)
reason_option = click.option("--reason", default="", help="Why; kept in the registry's history.")
