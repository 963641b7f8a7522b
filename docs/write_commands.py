"""Write docs/commands.md from the commands themselves.

python docs/write_commands.py
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import click

from diode_engine.cli.group import COMMANDS, HELP_NAMES

ROOT = Path(__file__).resolve().parents[1]
REFERENCE = ROOT / "docs" / "commands.md"
_WIDTH = 100

_HEAD = """\
# The commands

Written by `python docs/write_commands.py`; each is what `diode-engine COMMAND --help` says.

Results go to stdout, as JSON with `--json`; messages go to stderr. A command exits with

| code | when |
|---|---|
| 0 | it did its work |
| 1 | it could not do its work |
| 2 | it was called wrongly |
| 3 | there was nothing to do, or what was named does not exist |
| 130 | it was interrupted: by Ctrl-C, `kill`, or a terminal that was closed |

`capture` and `report` exit with the code of their program, or 3 where it compiled nothing.

The store is what `--store` names, a SQLite file or
[a database on a PostgreSQL server](shared-store.md); else `$DIODE_STORE`; else `diode.db` in the
data directory (`$DIODE_HOME` names another one).

## Defaults of options

An option that is not given has the value of an environment variable, else that of the settings,
else the default that its help shows. The variable of `collect --budget` is `DIODE_COLLECT_BUDGET`,
that of `data problems --rows` is `DIODE_DATA_PROBLEMS_ROWS`, that of every `--store` is
`DIODE_STORE`; the settings are `config.toml` in the user's configuration directory (`$DIODE_HOME`,
where it is set) and `diode.toml` in the current one, which comes first:

```toml
store = "/data/timings.db"

[collect]
budget = 60
source = ["transformers", "attention"]

[data.problems]
rows = 50
```

A directory may be somebody else's. So its `diode.toml` cannot set, of any command, `host`, `port`,
`public-url` and `read-only` (who can use a dashboard), `output`, `figure`, `html` and `replace`
(what is written, and over what), `model` of `train` (the same), `yes`, `remove` and
`with-aliases` (what is deleted), `damaged` (whether a damaged store is exported), `default`,
`force` and `index` (which model is taken), nor `ray` (which cluster is connected to): there they
are ignored, with a warning.
"""


def every(command: click.Command, name: str) -> Iterator[tuple[str, click.Command]]:
    """Yield the command and those below it, with their names."""
    yield name, command
    if isinstance(command, click.Group):
        for child in command.list_commands(click.Context(command)):
            yield from every(command.commands[child], f"{name} {child}")


def reference() -> str:
    """Return docs/commands.md."""
    parts = [_HEAD, table()]
    for top, entry in COMMANDS.items():
        for name, command in every(entry.load(top), top):
            settings = {**command.context_settings, "help_option_names": HELP_NAMES}
            context = click.Context(
                command, info_name=f"diode-engine {name}",
                terminal_width=_WIDTH, max_content_width=_WIDTH, **settings,
            )  # fmt: skip
            level = "##" if name == top else "###"
            said = "\n".join(line.rstrip() for line in command.get_help(context).splitlines())
            parts.append(f"{level} {name}\n\n```text\n{said}\n```\n")
    return "\n".join(parts)


def table() -> str:
    """Return the table of all commands, with those below each."""
    lines = ["| command | does |", "|---|---|"]
    for name, entry in COMMANDS.items():
        below = [word for word, _ in every(entry.load(name), name)][1:]
        within = ", ".join(f"`{word.removeprefix(name).strip()}`" for word in below)
        lines.append(f"| [`{name}`](#{name}){' ' if within else ''}{within} | {entry.help} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    REFERENCE.write_text(reference(), encoding="utf-8")
