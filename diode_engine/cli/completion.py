"""diode-engine completion: the script that has a shell complete commands and options."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

_LINES = {
    "bash": 'eval "$(diode-engine completion bash)"   # in ~/.bashrc; bash 4.4 or newer',
    "zsh": 'eval "$(diode-engine completion zsh)"   # in ~/.zshrc',
    "fish": "diode-engine completion fish | source   # in ~/.config/fish/config.fish",
}


@click.command(epilog="\b\n" + "\n".join(_LINES.values()))
@click.argument("shell", type=click.Choice(tuple(_LINES)))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Write what has SHELL complete diode-engine's commands and options; one of these lines
    in the shell's own file turns it on:"""
    kind = get_completion_class(shell)
    assert kind is not None  # click has these three
    root = ctx.find_root().command
    click.echo(kind(root, {}, "diode-engine", "_DIODE_ENGINE_COMPLETE").source())
