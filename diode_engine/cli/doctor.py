"""diode-engine doctor: what works on this machine, what does not, and why."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Iterator
from enum import StrEnum
from importlib.metadata import entry_points
from typing import Any

import click

import diode_autoload
import diode_engine
from diode_engine import paths, registry
from diode_engine.cli import diagnostics, options
from diode_engine.cli.diagnostics import ExitCode
from diode_engine.cli.results import Result, result_command
from diode_engine.core.hardware import Hardware
from diode_engine.errors import IntegrationError, SchemaTooOldError, StoreError, StoreMissingError
from diode_engine.inductor.hook.installation import is_disabled
from diode_engine.inductor.hook.integrations import MatmulIntegration
from diode_engine.inductor.hook.public import get_integration_status
from diode_engine.location import Location
from diode_engine.store import Store


class Health(StrEnum):
    """The result of a check."""

    WORKS = "works"
    OFF = "off"  # not there, and that is no fault: it is optional, or could not be used here
    BROKEN = "broken"


# A check's result: whether it works, and why not, or what there is.
Finding = tuple[Health, str]


# What loads Diode where DIODE_AUTOLOAD is set: the name, the group of entry points, and the
# environment variable that leaves out some of them.
_LOADERS = (
    ("torch", "torch.backends", "TORCH_DEVICE_BACKEND_AUTOLOAD"),
    ("vLLM", "vllm.general_plugins", "VLLM_PLUGINS"),
    ("SGLang", "sglang.srt.plugins", "SGLANG_PLUGINS"),
)
# Optional parts: the name, the module that must be there, the extra that installs it, and what it
# is for.
_EXTRAS = (
    ("dashboard", "textual", "app", "diode-tui"),
    ("dashboard in a browser", "textual_serve", "serve", "diode-engine serve"),
    ("figures", "matplotlib", "figures", "validate --figure"),
    ("nvMatmulHeuristics", "nvMatmulHeuristics", "baselines", "its choices in validate's report"),
)


@click.command()
@options.store
@result_command
def doctor(store: Location) -> Result:
    """Say what works on this machine, what does not, and why; exit code 1 if something is
    broken."""
    diagnostics.configure(-1)  # the checks report what the log would warn of
    checks = list(_checks(store))
    width = max(len(what) for what, _ in checks)
    lines = [f"{what:<{width}}  {state:<6}  {why}" for what, (state, why) in checks]
    broken = any(state is Health.BROKEN for _, (state, _) in checks)
    document = [{"what": what, "state": state, "why": why} for what, (state, why) in checks]
    return Result(document, "\n".join(lines), ExitCode.FAILURE if broken else ExitCode.OK)


def _checks(store: Location) -> Iterator[tuple[str, Finding]]:
    """What is checked, each with its result."""
    status = get_integration_status()
    given = status["hardware"]
    hardware = None if given is None else Hardware.from_dict(given)
    yield "diode", (Health.WORKS, f"{status['diode']}, Python {status['python']}")
    yield "torch", _check_torch(status)
    yield "triton", _check_triton(status, hardware)
    yield "GPU", _check_gpu(hardware)
    yield "model", _check_model(hardware)
    yield "choices", _check_choices(hardware)
    if status["fingerprint"]["parts"]["choices"] == "on":
        why = f"{status['fingerprint']['key']}: processes with the same fingerprint choose alike"
        yield "fingerprint", (Health.WORKS, why)
    integrations = status["integrations"]
    for name, found in integrations.items():
        required = integrations.get(found.get("requires"))
        # Where the required one is off, the line of the choices says why.
        if name != "matmul" and (required is None or required["state"] == "active"):
            state = Health.WORKS if found["state"] == "active" else Health.OFF
            yield f"integration {name}", (state, found["reason"])
    for name, group, switch in _LOADERS:
        yield f"autoload in {name}", _check_autoload(name, group, switch)
    yield "data directory", _check_data_dir()
    yield "store", _check_store(store)
    for finding in _check_models():
        yield "registry", finding
    for what, module, extra, brings in _EXTRAS:
        if importlib.util.find_spec(module) is None:
            yield what, (Health.OFF, f"pip install 'diode-engine[{extra}]' brings {brings}")
        else:
            yield what, (Health.WORKS, brings)


def _check_torch(status: dict[str, Any]) -> Finding:
    if status["torch"] is None:
        return Health.BROKEN, "not installed: nothing is compiled or timed"
    if is_disabled():
        return Health.WORKS, str(status["torch"])
    try:
        MatmulIntegration().dry_run()
    except IntegrationError as error:
        return Health.BROKEN, f"{status['torch']}: {error}"
    return Health.WORKS, f"{status['torch']}, asks Diode which kernel to take"


def _check_triton(status: dict[str, Any], hardware: Hardware | None) -> Finding:
    if status["triton"] is not None:
        return Health.WORKS, status["triton"]
    needed = hardware is not None and hardware.is_supported
    why = "not installed: Inductor has only the libraries' kernels"
    return Health.BROKEN if needed else Health.OFF, why


def _check_gpu(hardware: Hardware | None) -> Finding:
    if hardware is None:
        return Health.OFF, "not known without torch"
    if hardware.backend == "cpu":
        why = "torch finds none: collect and tune need one; train, validate and predict work"
        return Health.OFF, why
    if not hardware.is_supported:
        return Health.OFF, f"{hardware.name}: Diode chooses for NVIDIA's only"
    return Health.WORKS, hardware.name


def _check_model(hardware: Hardware | None) -> Finding:
    if hardware is None or not hardware.is_supported:
        return Health.OFF, "none is needed without a GPU"
    match = registry.best_for(hardware)
    if match is None:
        why = f"none for {hardware.name}: `diode-engine tune` makes one"
        return Health.OFF, why
    differs = "; ".join(match.differences)
    why = f"{match.model.reference}, {match.describe_basis(hardware)}"
    if match.hardware.slug != hardware.slug:
        why += "; `diode-engine tune` makes one of this GPU's"
    return Health.WORKS, f"{why}; {differs}" if differs else why


def _check_choices(hardware: Hardware | None) -> Finding:
    """Whether a compile in a process like this one would use the model's choices."""
    if hardware is not None and hardware.is_supported:
        diode_engine.install_diode_choices(top_k_configs=1)
    stats = diode_engine.get_stats()
    if stats["active"]:
        return Health.WORKS, "torch.compile takes the model's kernels"
    return Health.OFF, str(stats["reason"])


def _check_autoload(loader: str, group: str, switch: str) -> Finding:
    """Return whether the loader turns Diode on in every process that imports it."""
    given = os.environ.get(switch)
    if not any(e.value.startswith("diode_autoload:") for e in entry_points(group=group)):
        why = "this installation does not have its entry point; install Diode again"
        return Health.OFF, why
    if not diode_autoload.is_requested():
        why = f"{diode_autoload.VARIABLE}=1 turns Diode on without a change of code"
        return Health.OFF, why
    if given is not None and (
        given != "1" if loader == "torch" else "diode" not in given.split(",")
    ):
        return Health.OFF, f"{switch} is {given!r}, which leaves Diode out"
    return Health.WORKS, f"{diode_autoload.VARIABLE} is set"


def _check_data_dir() -> Finding:
    folder = paths.data_dir()
    there = next(f for f in (folder, *folder.parents) if f.exists())
    if there.is_dir() and os.access(there, os.W_OK):
        return Health.WORKS, str(folder)
    return Health.BROKEN, f"{folder} cannot be written; set DIODE_HOME to another"


def _check_store(store: Location) -> Finding:
    try:
        with Store.open(store, read_only=True) as opened:
            timings = opened.stats().timings
    except StoreMissingError:
        return Health.OFF, f"none at {store} yet: `data import` and `collect` make one"
    except SchemaTooOldError:
        why = f"{store} is of an older schema, which the next command that writes it upgrades"
        return Health.WORKS, why
    except StoreError as error:
        return Health.BROKEN, str(error)
    return Health.WORKS, f"{store}, {timings:,} timings"


def _check_models() -> Iterator[Finding]:
    seen = registry.overview()
    broken = [e for e in seen.entries if e.error is not None]
    good = len(seen.entries) - len(broken)
    yield Health.WORKS if good else Health.OFF, f"{good} models"
    for entry in broken:
        yield Health.BROKEN, f"{entry.model.folder}: {entry.error}"
    for problem in seen.problems:
        yield Health.BROKEN, problem
