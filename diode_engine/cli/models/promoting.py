"""diode-engine models promote and rollback: which model is taken."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from diode_engine import registry
from diode_engine.cli import diagnostics, options
from diode_engine.cli.diagnostics import ExitCode
from diode_engine.cli.options import FILE_OR_FOLDER, option
from diode_engine.cli.results import Result, record_as_run, result_command
from diode_engine.core.checks import decode
from diode_engine.core.hardware import find_name, slug_of
from diode_engine.errors import NoSuchModelError, RecordError, RunError
from diode_engine.location import Location
from diode_engine.registry import ModelVersion

if TYPE_CHECKING:
    from diode_engine.store import Store
    from diode_engine.validation.gate import GateVerdict


@click.command()
@options.model_argument
@options.store
@option(
    "--dataset", metavar="FILE", type=FILE_OR_FOLDER,
    help="Validate it on the held-out problems of this file, not of the store.",
)  # fmt: skip
@option(
    "--force", is_flag=True, help="Make it the default even if the gate refuses; give a --reason."
)
@option(
    "--verdict-of", "overruled", metavar="RUN", type=options.NUMBER,
    help="With --force: overrule the verdict of this run of kind promote, without validating "
    "again.",
)  # fmt: skip
@options.reason
@options.hardware
@options.as_json
def promote(
    model: str, store: Location, dataset: Path | None, force: bool, overruled: int | None,
    reason: str, hardware: str | None, as_json: bool,
) -> int:  # fmt: skip
    """Make MODEL the one that is taken for its GPU, if it passes the gate.

    It must load, and choose no worse on the GPU's held-out problems than the model that is taken
    otherwise, or than ATen where there is none: over all of them, on each kind of problem, and in
    the share on which the library's kernel is faster by over 5 %. The verdict goes to stdout; where
    the timings are the store's, a run of kind promote in the store keeps it too. `models rollback`
    undoes it.

    A model of several GPUs is judged for each of them, or for the one that --hardware names, and
    taken on those where it passes; --json writes one line for each.
    """
    if force and not reason.strip():
        raise click.UsageError("--force needs a --reason, which the registry keeps.")
    if overruled is not None and (not force or dataset is not None):
        raise click.UsageError("--verdict-of belongs to --force, without --dataset.")
    found = registry.resolve_here(model, hardware)
    slugs = found.slugs if hardware is None else (found.slug_named(hardware),)
    if overruled is not None and len(slugs) > 1:
        raise click.UsageError(f"--verdict-of is for one GPU; name it: {', '.join(slugs)}.")
    codes = []
    for slug in slugs:
        verdict = _promote_for(found, slug, store, dataset, overruled, force=force, reason=reason)
        codes.append(ExitCode.NOTHING if verdict is None else _report(verdict, force, as_json))
    return next((code for code in (ExitCode.FAILURE, ExitCode.OK) if code in codes), codes[0])


def _promote_for(
    model: ModelVersion, slug: str, store: Location, dataset: Path | None, overruled: int | None, *,
    force: bool, reason: str,
) -> GateVerdict | None:  # fmt: skip
    """The verdict on the model for the GPU of this slug, after which it may be the default there;
    None where it is already. `overruled` is a run whose verdict does not count."""
    from diode_engine.cli.data import open_existing
    from diode_engine.store import read_dataset
    from diode_engine.validation.gate import overrule, present_default
    from diode_engine.validation.gate import promote as promote_by_gate

    if present_default(model, slug) == model:
        diagnostics.note(f"{model.reference} is the default of {slug} already.")
        return None
    if overruled is None:
        diagnostics.note(f"Judging {model.reference} for {slug} ...")
    if dataset is not None:
        return promote_by_gate(model, read_dataset(dataset), slug, force=force, reason=reason)
    with open_existing(store) as opened:

        def work(check: Callable[[], None], _tell: object) -> GateVerdict:
            if overruled is not None:
                return overrule(model, _verdict(opened, overruled), slug, reason=reason)
            return promote_by_gate(
                model, opened.read(), slug, force=force, reason=reason, check=check
            )

        return record_as_run(
            opened,
            "promote",
            {
                "model": model.reference, "hardware": slug, "force": force, "reason": reason,
                "verdict_of": overruled,
            },
            work,
            lambda verdict: _summary(verdict, reason if force else None),
        )  # fmt: skip


def _report(verdict: GateVerdict, force: bool, as_json: bool) -> ExitCode:
    """Prints the verdict, and whether the model is the default now."""
    promoted = verdict.passed or force
    if as_json:
        click.echo(json.dumps({**verdict.to_dict(), "promoted": promoted, "forced": force}))
    else:
        click.echo(format_verdict(verdict))
    if promoted:
        diagnostics.note(
            f"{verdict.model} is now the default of {verdict.hardware}"
            + (", against the gate." if not verdict.passed else ".")
        )
        return ExitCode.OK
    diagnostics.error(
        f"{verdict.model} is not promoted for {verdict.hardware}: {' '.join(verdict.reasons)} "
        "(--force --reason TEXT overrules this.)"
    )
    return ExitCode.FAILURE


def _verdict(store: Store, run: int) -> GateVerdict:
    """The verdict of a run of kind promote. Raises RunError where it has none."""
    from diode_engine.validation.gate import GateVerdict

    found = store.result(run) if store.run(run).kind == "promote" else None
    if found is None:
        raise RunError(f"Run {run} is not a promotion with a verdict; name a run that has one.")
    try:
        verdict: GateVerdict = decode(GateVerdict, found)
    except RecordError as error:
        raise RunError(f"The result of run {run} cannot be read ({error}).") from error
    return verdict


def _summary(verdict: GateVerdict, forced: str | None) -> tuple[dict[str, Any], str]:
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
    refused = {"refused": True} if not verdict.passed and forced is None else {}
    return {"judged": verdict.model, **refused}, f"{verdict.model} {said}"


def format_verdict(verdict: GateVerdict) -> str:
    """The checks, a line for each."""
    marks = {True: "passed ", False: "REFUSED"}
    width = max(len(check.name) for check in verdict.checks)
    return "\n".join(
        f"{marks[check.passed]}  {check.name:<{width}}  {check.found}" for check in verdict.checks
    )


@click.command()
@options.hardware
@options.reason
@result_command
def rollback(hardware: str | None, reason: str) -> Result:
    """Take again the model that was taken before the last promotion. The history keeps both."""
    known = dict.fromkeys(slug for model in registry.list_models() for slug in model.slugs)
    if hardware is None:
        slug = _find_changed_default(known)
    else:
        slug = find_name(hardware, known) or slug_of(hardware)
    now = registry.rollback(slug, reason=reason)
    before = registry.history(slug)[-1].before
    if now is None:
        now = registry.default_for(slug)  # what Diode, or a package, ships
    name = None if now is None else now.reference
    diagnostics.note(
        f"{slug}: {name or 'the newest model (there is no default)'} is taken in place of {before}."
    )
    return Result({"hardware": slug, "default": name, "before": before}, name or "")


def _find_changed_default(slugs: Iterable[str]) -> str:
    """The hardware whose default was changed. Raises NoSuchModelError where there is none,
    UsageError where there are several."""
    changed = [s for s in slugs if any(e.alias == registry.DEFAULT for e in registry.history(s))]
    if not changed:
        raise NoSuchModelError("No default was changed here, so there is nothing to go back to.")
    if len(changed) > 1:
        raise click.UsageError(
            "Defaults of several GPUs were changed; name one with --hardware: "
            f"{', '.join(changed)}."
        )
    return changed[0]
