"""diode-engine models promote and rollback: which model is taken."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from diode_engine.cli import diagnostics
from diode_engine.cli.data import existing
from diode_engine.cli.diagnostics import ExitCode
from diode_engine.cli.models.options import (
    hardware_option,
    model_argument,
    reason_option,
)
from diode_engine.cli.options import as_json_option, store_option
from diode_engine.cli.recording import as_run
from diode_engine.location import Location

if TYPE_CHECKING:
    from diode_engine.store import Store
    from diode_engine.validation.gate import GateVerdict


@click.command()
@model_argument
@store_option
@click.option(
    "--dataset",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="Judge it on the held-out problems of this file, not of the store.",
)
@click.option("--force", is_flag=True, help="Take it even if the gate refuses; say why.")
@click.option(
    "--verdict-of",
    "judged",
    metavar="RUN",
    type=click.IntRange(1),
    help="With --force: overrule the verdict of this run of kind promote, without judging again.",
)
@reason_option
@hardware_option
@as_json_option
def promote(
    model: str,
    store: Location,
    dataset: Path | None,
    force: bool,
    judged: int | None,
    reason: str,
    hardware: str | None,
    as_json: bool,
) -> int:
    """Make MODEL the one that is taken for its hardware, if it passes the gate.

    It must load, fit the installed torch and Triton, and choose no worse on the held-out problems
    than the present default, or than ATen where there is none. The verdict goes to stdout; where
    the timings are the store's, a run of kind promote in the store keeps it too. `models rollback`
    undoes it.
    """
    from diode_engine import registry
    from diode_engine.store import read_dataset
    from diode_engine.validation.gate import overrule, present_default
    from diode_engine.validation.gate import promote as judge

    if force and not reason.strip():
        raise click.UsageError("--force needs a --reason, which the registry keeps.")
    if judged is not None and (not force or dataset is not None):
        raise click.UsageError("--verdict-of belongs to --force, without --dataset.")
    found = registry.resolve_here(model, hardware)
    if present_default(found) == found:
        diagnostics.note(f"{found.reference} is the default of {found.slug} already.")
        return ExitCode.NOTHING
    if judged is None:
        diagnostics.note(f"Judging {found.reference} ...")
    if dataset is not None:
        verdict = judge(found, read_dataset(dataset), force=force, reason=reason)
    else:
        with existing(store) as opened:

            def work(check: Callable[[], None], _tell: object) -> GateVerdict:
                if judged is not None:
                    return overrule(found, _verdict(opened, judged), reason=reason)
                return judge(found, opened.read(), force=force, reason=reason, check=check)

            verdict = as_run(
                opened,
                "promote",
                {
                    "model": found.reference, "force": force, "reason": reason,
                    "verdict_of": judged,
                },
                work,
                lambda verdict: _summary(verdict, reason if force else None),
            )  # fmt: skip
    promoted = verdict.passed or force
    if as_json:
        click.echo(json.dumps({**verdict.to_dict(), "promoted": promoted, "forced": force}))
    else:
        click.echo(_text(verdict))
    if promoted:
        diagnostics.note(
            f"{verdict.model} is now the default of {found.slug}"
            + (", against the gate." if not verdict.passed else ".")
        )
        return ExitCode.OK
    diagnostics.error(
        f"{verdict.model} is not promoted: {' '.join(verdict.reasons)} (--force --reason TEXT "
        "overrules this.)"
    )
    return ExitCode.FAILURE


def _verdict(store: Store, run: int) -> GateVerdict:
    """The verdict of a run of kind promote. Raises RunError where it has none."""
    from diode_engine.errors import RunError
    from diode_engine.validation.gate import GateVerdict

    found = store.result(run) if store.run(run).kind == "promote" else None
    if found is None:
        raise RunError(f"Run {run} is not a promotion with a verdict; name a run that has one.")
    try:
        return GateVerdict.from_dict(found)
    except (KeyError, TypeError) as error:
        raise RunError(f"The result of run {run} cannot be read ({error}).") from error


def _summary(verdict: GateVerdict, forced: str | None) -> tuple[dict[str, str], str]:
    """The result in one line. `forced` is the reason to take the model against the gate's
    verdict."""
    if verdict.passed:
        said = "passed the gate and is taken"
    elif forced is not None:
        said = (
            f"is taken against the gate, for the reason: {forced}. "
            f"The gate: {' '.join(verdict.reasons)}"
        )
    else:
        said = f"was refused: {' '.join(verdict.reasons)}"
    return {"judged": verdict.model}, f"{verdict.model} {said}"


def _text(verdict: GateVerdict) -> str:
    marks = {True: "passed ", False: "REFUSED"}
    width = max(len(check.name) for check in verdict.checks)
    return "\n".join(
        f"{marks[check.passed]}  {check.name:<{width}}  {check.found}" for check in verdict.checks
    )


@click.command()
@hardware_option
@reason_option
@as_json_option
def rollback(hardware: str | None, reason: str, as_json: bool) -> None:
    """Take again the model that was taken before the last promotion. The history keeps both."""
    from diode_engine import registry
    from diode_engine.core.hardware import find_name, slug_of

    slug = _changed() if hardware is None else slug_of(hardware)
    slug = find_name(slug, {m.slug for m in registry.list_models()}) or slug
    now = registry.rollback(slug, reason=reason)
    before = registry.history(slug)[-1].before
    if now is None:
        now = registry.default_for(slug)  # what Diode, or a package, ships
    name = None if now is None else now.reference
    diagnostics.note(
        f"{slug}: {name or 'the newest model (there is no default)'} is taken in place of {before}."
    )
    line = {"hardware": slug, "default": name, "before": before}
    click.echo(json.dumps(line) if as_json else name or "")


def _changed() -> str:
    """The hardware whose default was changed. Raises NoSuchModelError where there is none,
    UsageError where there are several."""
    from diode_engine import registry
    from diode_engine.errors import NoSuchModelError

    slugs = dict.fromkeys(m.slug for m in registry.list_models())
    changed = [s for s in slugs if any(e.alias == registry.DEFAULT for e in registry.history(s))]
    if not changed:
        raise NoSuchModelError("No default has been changed here; there is nothing to go back to.")
    if len(changed) > 1:
        raise click.UsageError(
            "Defaults of several GPUs were changed; name one with --hardware: "
            f"{', '.join(changed)}."
        )
    return changed[0]
