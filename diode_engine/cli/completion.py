"""diode-engine completion: a script that makes a shell complete commands and options."""

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
    """Write a script that makes SHELL complete diode-engine's commands and options. Add one of
    these lines to the shell's own file to use it:"""
    kind = get_completion_class(shell)
    assert kind is not None  # click has these three
    root = ctx.find_root().command
    click.echo(kind(root, {}, "diode-engine", "_DIODE_ENGINE_COMPLETE").source())
