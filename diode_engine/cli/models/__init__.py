"""diode-engine models: the trained models, and which of them is taken."""

from __future__ import annotations

import click

from diode_engine.cli.models.changing import alias, export, import_, note, register, remove, tag
from diode_engine.cli.models.looking import compare, list_, show, verify
from diode_engine.cli.models.promoting import promote, rollback


@click.group()
def models() -> None:
    """List, compare, promote, export and import trained models.

    MODEL is NAME@VERSION, NAME (its newest version), an alias such as default, or the path of a
    model's folder or file. Where models for several GPUs have the name, it means the one for this
    machine's GPU, or for that of --hardware. Exit code 3: there is no such model, or nothing to do.
    """


for _command in (
    list_, show, compare, register, alias, promote, rollback, verify, export, import_, remove,
    tag, note,
):  # fmt: skip
    models.add_command(_command)
