"""What the commands that judge a model share: their options, and which model is judged on which
timings."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from diode_engine.cli import diagnostics
from diode_engine.cli.files import datasets_in
from diode_engine.cli.models import model_for
from diode_engine.cli.options import (
    FILE_OR_FOLDER,
    add_options,
    batch_size_unused,
    model_option,
    option,
    query_option,
    store_option,
)
from diode_engine.errors import RegistryError, TrainingError

if TYPE_CHECKING:
    from diode_engine.core.hardware import Hardware
    from diode_engine.core.table import TimingTable
    from diode_engine.registry import ModelVersion


# The command gets `reference`, `store`, `query`, `op_name`, `hardware_name`, `dataset` and
# `only_held_out`.
judged_options = add_options(
    model_option("the one for the timings' GPU"),
    store_option,
    option(
        "--held-out/--all", "only_held_out", default=True, heading="On which problems",
        label="Problems",
        help="Judge on the problems that training holds out, about a fifth, or on all, also those "
        "that the model may have learned from.",
    ),
    query_option("Judge on the problems that this filter query finds", "On which problems"),
    option("--op-name", metavar="OP", help="The same as op:OP in the query."),
    option("--hardware-name", metavar="NAME", help='The same as gpu:"NAME" in the query.'),
    option(
        "--dataset", metavar="FILE|FOLDER", type=FILE_OR_FOLDER,
        help="Take the timings from this dataset file, or from those in a folder, not from the "
        "store.",
    ),
    batch_size_unused,
)  # fmt: skip


def judged_query(query: str, op_name: str | None, hardware_name: str | None) -> str:
    """The query with what --op-name and --hardware-name add to it."""
    words = (op_name and f"op:{op_name}", hardware_name and f'gpu:"{hardware_name}"', query)
    return " ".join(filter(None, words))


def read_timings(dataset: Path, query: str) -> TimingTable:
    """The timings in a dataset file, or in those of a folder, on the problems that the query
    finds. Raises DatasetError, QueryError where the query has a mistake, and NothingError where it
    finds none."""
    from diode_engine.store import read_dataset
    from diode_engine.store.transfer import read_datasets

    files = datasets_in(dataset) if dataset.is_dir() else (dataset,)
    return read_dataset(files[0]) if len(files) == 1 and not query else read_datasets(files, query)


def find_judged_model(
    table: TimingTable, reference: str | None, *, only_held_out: bool
) -> tuple[ModelVersion, TimingTable, TimingTable | None]:
    """The model, the timings to judge it on, and, where these are held out, the timings that it may
    have learned from. Raises RegistryError and TrainingError where there is no such model or no
    timings."""
    from diode_engine import registry
    from diode_engine.problems.splits import split

    if reference is None:
        model = _only_model(table)
    else:
        names = _hardware(table)
        model = registry.resolve_for(reference, names[0] if len(names) == 1 else None)
    table, seen = _comparable(table, model), None
    everything = model.manifest.everything
    if only_held_out:
        seen, table = split(table, model.manifest.held_out_by)
        if not len(table):
            raise TrainingError(
                "None of the problems with timings is one that training holds out; judge the "
                "model on all of them with --all, or collect more."
            )
        if everything is None:
            diagnostics.warn(f"It is not known whether {model.reference} has seen these problems.")
        elif everything:
            diagnostics.warn(
                f"{model.reference} was trained on the held-out problems too: these figures say "
                "nothing about problems that it has not seen. Its notes have figures that do."
            )
    diagnostics.note(f"Judging {model.reference} on {len(table)} timings ...")
    return model, table, seen


def _hardware(table: TimingTable) -> list[str]:
    return sorted({table.environments[i].hardware.name for i in set(table.environment.tolist())})


def first_gpu(table: TimingTable) -> Hardware:
    """The GPU of the first timing; the table must have one."""
    return table.environments[int(table.environment[0])].hardware


def _only_model(table: TimingTable) -> ModelVersion:
    """The model for the GPU that the timings are of."""
    names = _hardware(table)
    if not names:
        raise TrainingError("There are no timings to judge a model on; collect or import some.")
    if len(names) > 1:
        raise RegistryError(
            f"There are timings of several GPUs ({', '.join(names)}); name the model to judge "
            "with --model."
        )
    hardware = first_gpu(table)
    model = model_for(hardware)
    if model is None:
        raise RegistryError(
            f"There is no model for {hardware.name}; train one, or name one with --model."
        )
    return model


def _comparable(table: TimingTable, model: ModelVersion) -> TimingTable:
    """The timings of one of the model's GPUs, its first that there are timings of; of these only
    the ones with the model's Triton, where there are any."""
    import numpy as np

    manifest = model.manifest
    names = _hardware(table)
    gpu = next((name for name in manifest.gpu_names if name in names), None)
    if gpu is None:
        made_for = " and ".join(manifest.gpu_names)
        if len(names) != 1:
            raise TrainingError(
                f"There are no timings of {made_for}, which {model.reference} was trained on, but "
                f"of: {', '.join(names) or 'none'}."
            )
        diagnostics.warn(
            f"{model.reference} was trained on {made_for}, these are timings of {names[0]}."
        )
        return table
    if len(names) > 1:
        diagnostics.note(f"The timings of {gpu} count; there are others, of other GPUs.")
    device = [e.hardware.name == gpu for e in table.environments]
    rows = np.array(device, np.bool_)[table.environment]
    compiled = [e.triton in manifest.triton for e in table.environments]
    same = rows & np.array(compiled, np.bool_)[table.environment]
    if manifest.triton and not same.any():
        diagnostics.warn(
            f"{model.reference} was trained on timings with Triton {', '.join(manifest.triton)}; "
            "these are of others."
        )
    return table.take(same if same.any() else rows)
