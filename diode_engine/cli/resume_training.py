"""diode-engine train --resume."""

from __future__ import annotations

import json

import click
from click.core import ParameterSource

from diode_engine.cli import diagnostics
from diode_engine.cli.data import open_existing
from diode_engine.errors import NothingError, TrainingError
from diode_engine.location import Location


def resume_last_training(store: Location) -> None:
    """Resumes the store's last training in a process of its own and follows it to its end: its
    messages go to stderr, its result to stdout. Ctrl-C stops the training too.

    Raises NothingError where there is no training to resume, RunError where it cannot be started
    and TrainingError where it ends without a model.
    """
    from diode_engine.runs import cancel, find, follow
    from diode_engine.runs import resume as start_again

    context = click.get_current_context()
    for name in context.params.keys() - {"store", "resume"}:
        if context.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            raise click.UsageError(
                "--resume uses the options of the training that it continues: give no others."
            )
    with open_existing(store) as opened:
        last = next(iter(find(opened, "kind:train", limit=1)), None)
        if last is None:
            raise NothingError(f"{store} has no training to continue.")
        if last.state == "done":
            raise NothingError(
                f"The last training, run {last.run.id}, is done; `diode-engine runs resume` goes "
                "on with an earlier one."
            )
        run = start_again(opened, last.run.id).id
        diagnostics.note(f"Run {run} continues run {last.run.id}.")
        try:
            for tick in follow(opened, run):
                status = tick.status
                for line in tick.log.splitlines():
                    if not line.startswith("{"):  # its stdout, which is ours below
                        diagnostics.note(line)
        except KeyboardInterrupt:
            cancel(opened, run, tell=diagnostics.note)
            raise
        result = opened.result(run)
    if status.state != "done" or result is None:
        raise TrainingError(
            f"Run {run} is {status.state}: {status.why or status.run.message or 'unknown reason'}"
        )
    click.echo(json.dumps({k: v for k, v in result.items() if k != "settings"}))
