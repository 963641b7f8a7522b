"""A collection before it starts: the plan that follows from the options that a person chose."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from diode_engine.cli.collect import expected_rate, make_plan
from diode_engine.cli.group import parse
from diode_engine.errors import CollectionError, DatasetError, NothingError
from diode_engine.problems.sources import SOURCES
from diode_engine.runs import command_line
from diode_engine.store import Store

MAX_PROBLEMS = 20_000  # in a plan; counting their candidates takes a second


def describe_sources() -> str:
    """Return what each source of problems draws, and its parameters with their defaults, in the
    engine's own words."""
    parts = []
    for name, kind in SOURCES.items():
        draws = " ".join((kind.__doc__ or "").replace("`", "").split())
        given = ",".join(f"{f.name}={_plain(f.default)}" for f in dataclasses.fields(kind))
        parts.append(f"{name}{':' if given else ''}{given}\n{draws}")
    return "\n\n".join(parts)


def complete_source(given: str, _cursor: int) -> list[str]:
    """Return the texts that the field of the sources may become: its last word completed."""
    before, blank, word = given.rpartition(" ")
    return [f"{before}{blank}{name}" for name in SOURCES if word and name.startswith(word)]


def _plain(value: object) -> str:
    return "/".join(map(str, value)) if isinstance(value, tuple) else str(value)


@dataclass(frozen=True)
class CollectionPlan:
    """What a collection will time at most, as `collect.planning.plan.Plan.summary` says it, for
    this many GPUs; or a sentence for each field that must change before there is a plan."""

    summary: Mapping[str, Any] | None
    gpus: int
    mistakes: Mapping[str, str]


def planned(store: Store, spec: Mapping[str, Any], gpus: int) -> CollectionPlan:
    """Return the plan of `diode-engine collect` with these options (as `runs.command_line` takes
    them), on this many GPUs where the options name none. Needs no torch."""
    import click

    mistakes = {}
    try:
        options = parse("collect", command_line("collect", spec, store.location)[2:])
        gpus = len(options["gpus"]) or max(gpus, 1)
        rate = expected_rate(store.location, gpus, direct=options["direct"])
        return CollectionPlan(make_plan(options).summary(rate), gpus, {})
    except click.BadParameter as error:  # a file is gone
        mistakes[getattr(error.param, "key", "source")] = error.message
    except DatasetError as error:
        mistakes["file"] = str(error)
    except CollectionError as error:
        mistakes["source"] = str(error)
    except NothingError:
        mistakes["source"] = "There are no such problems: allow other operators, types or layouts."
    return CollectionPlan(None, gpus, mistakes)
