"""diode-engine doctor: what works on this machine, what does not, and why."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from enum import StrEnum
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any

import click

from diode_engine import paths
from diode_engine.cli import diagnostics
from diode_engine.cli.diagnostics import ExitCode
from diode_engine.cli.options import store_option
from diode_engine.cli.results import Result, result_command
from diode_engine.location import Location

if TYPE_CHECKING:
    from diode_engine.core.hardware import Hardware


class Health(StrEnum):
    """The result of a check."""

    WORKS = "works"
    OFF = "off"  # not there, and that is no fault: it is optional, or could not be used here
    BROKEN = "broken"


@dataclass(frozen=True)
class Check:
    """One line of the command's output."""

    what: str  # was checked
    state: Health
    why: str  # or, where it works, what there is


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
@store_option
@result_command
def doctor(store: Location) -> Result:
    """Say what works on this machine, what does not, and why; exit code 1 if something is
    broken."""
    diagnostics.configure(-1)  # the checks report what the log would warn of
    checks = list(_checks(store))
    width = max(len(check.what) for check in checks)
    lines = [f"{check.what:<{width}}  {check.state:<6}  {check.why}" for check in checks]
    broken = any(check.state is Health.BROKEN for check in checks)
    code = ExitCode.FAILURE if broken else ExitCode.OK
    return Result([asdict(check) for check in checks], "\n".join(lines), code)


def _checks(store: Location) -> Iterator[Check]:
    from diode_engine.core.hardware import Hardware
    from diode_engine.inductor.hook.public import get_integration_status

    status = get_integration_status()
    given = status["hardware"]
    hardware = None if given is None else Hardware.from_dict(given)
    yield Check("diode", Health.WORKS, f"{status['diode']}, Python {status['python']}")
    yield _torch(status)
    yield _triton(status, hardware)
    yield _gpu(hardware)
    yield _model(hardware)
    yield _choices(hardware)
    if status["fingerprint"]["parts"]["choices"] == "on":
        why = f"{status['fingerprint']['key']}: processes with the same fingerprint choose alike"
        yield Check("fingerprint", Health.WORKS, why)
    integrations = status["integrations"]
    for name, found in integrations.items():
        required = integrations.get(found.get("requires"))
        # Where the required one is off, the line of the choices says why.
        if name != "matmul" and (required is None or required["state"] == "active"):
            active = found["state"] == "active"
            yield Check(
                f"integration {name}", Health.WORKS if active else Health.OFF, found["reason"]
            )
    for name, group, switch in _LOADERS:
        yield _autoload(name, group, switch)
    yield _data_dir()
    yield _store(store)
    yield from _models()
    for what, module, extra, brings in _EXTRAS:
        if importlib.util.find_spec(module) is None:
            why = f"pip install 'diode-engine[{extra}]' brings {brings}"
            yield Check(what, Health.OFF, why)
        else:
            yield Check(what, Health.WORKS, brings)


def _torch(status: dict[str, Any]) -> Check:
    from diode_engine.errors import IntegrationError
    from diode_engine.inductor.hook.integrations import MatmulIntegration

    if status["torch"] is None:
        return Check("torch", Health.BROKEN, "not installed: nothing is compiled or timed")
    if os.environ.get("DIODE_DISABLE", "") not in ("", "0"):
        return Check("torch", Health.WORKS, str(status["torch"]))
    try:
        MatmulIntegration().dry_run()
    except IntegrationError as error:
        return Check("torch", Health.BROKEN, f"{status['torch']}: {error}")
    return Check("torch", Health.WORKS, f"{status['torch']}, asks Diode which kernel to take")


def _triton(status: dict[str, Any], hardware: Hardware | None) -> Check:
    if status["triton"] is not None:
        return Check("triton", Health.WORKS, status["triton"])
    needed = hardware is not None and hardware.is_supported
    why = "not installed: Inductor has only the libraries' kernels"
    return Check("triton", Health.BROKEN if needed else Health.OFF, why)


def _gpu(hardware: Hardware | None) -> Check:
    if hardware is None:
        return Check("GPU", Health.OFF, "not known without torch")
    if hardware.backend == "cpu":
        why = "torch finds none: collect and tune need one; train, validate and predict work"
        return Check("GPU", Health.OFF, why)
    if not hardware.is_supported:
        return Check("GPU", Health.OFF, f"{hardware.name}: Diode chooses for NVIDIA's only")
    return Check("GPU", Health.WORKS, hardware.name)


def _model(hardware: Hardware | None) -> Check:
    from diode_engine import registry

    if hardware is None or not hardware.is_supported:
        return Check("model", Health.OFF, "none is needed without a GPU")
    match = registry.best_for(hardware)
    if match is None:
        why = f"none for {hardware.name}: `diode-engine tune` makes one"
        return Check("model", Health.OFF, why)
    differs = "; ".join(registry.differences(match.model.manifest))
    known = registry.known_for(hardware)
    why = f"{match.model.reference}, {known}"
    if known.basis is registry.Basis.TRANSFER:
        why += "; `diode-engine tune` makes one of this GPU's"
    return Check("model", Health.WORKS, f"{why}; {differs}" if differs else why)


def _choices(hardware: Hardware | None) -> Check:
    """Whether a compile in a process like this one would use the model's choices."""
    import diode_engine

    if hardware is not None and hardware.is_supported:
        diode_engine.install_diode_choices(top_k_configs=1)
    stats = diode_engine.get_stats()
    if stats["active"]:
        return Check("choices", Health.WORKS, "torch.compile takes the model's kernels")
    return Check("choices", Health.OFF, str(stats["reason"]))


def _autoload(loader: str, group: str, switch: str) -> Check:
    """Return whether the loader turns Diode on in every process that imports it."""
    import diode_autoload

    what, given = f"autoload in {loader}", os.environ.get(switch)
    if not any(e.value.startswith("diode_autoload:") for e in entry_points(group=group)):
        why = "this installation does not have its entry point; install Diode again"
        return Check(what, Health.OFF, why)
    if not diode_autoload.is_requested():
        why = f"{diode_autoload.VARIABLE}=1 turns Diode on without a change of code"
        return Check(what, Health.OFF, why)
    if given is not None and (
        given != "1" if loader == "torch" else "diode" not in given.split(",")
    ):
        return Check(what, Health.OFF, f"{switch} is {given!r}, which leaves Diode out")
    return Check(what, Health.WORKS, f"{diode_autoload.VARIABLE} is set")


def _data_dir() -> Check:
    folder = paths.data_dir()
    there = next(f for f in (folder, *folder.parents) if f.exists())
    if there.is_dir() and os.access(there, os.W_OK):
        return Check("data directory", Health.WORKS, str(folder))
    return Check(
        "data directory", Health.BROKEN, f"{folder} cannot be written; set DIODE_HOME to another"
    )


def _store(store: Location) -> Check:
    from diode_engine.errors import SchemaTooOldError, StoreError, StoreMissingError
    from diode_engine.store import Store

    try:
        with Store.open(store, read_only=True) as opened:
            timings = opened.stats().timings
    except StoreMissingError:
        return Check(
            "store", Health.OFF, f"none at {store} yet: `data import` and `collect` make one"
        )
    except SchemaTooOldError:
        why = f"{store} is of an older schema, which the next command that writes it upgrades"
        return Check("store", Health.WORKS, why)
    except StoreError as error:
        return Check("store", Health.BROKEN, str(error))
    return Check("store", Health.WORKS, f"{store}, {timings:,} timings")


def _models() -> Iterator[Check]:
    from diode_engine import registry

    seen = registry.overview()
    broken = [e for e in seen.entries if e.error is not None]
    good = len(seen.entries) - len(broken)
    yield Check("registry", Health.WORKS if good else Health.OFF, f"{good} models")
    for entry in broken:
        yield Check("registry", Health.BROKEN, f"{entry.model.folder}: {entry.error}")
    for problem in seen.problems:
        yield Check("registry", Health.BROKEN, problem)
