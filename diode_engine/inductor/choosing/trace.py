"""Reports choices where users of Inductor look for them.

`TORCH_LOGS=autotuning` has a line for each product; `TORCH_TRACE=FOLDER`, which tlparse shows, has
an artifact `diode_choice`.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any

from torch._logging._internal import getArtifactLogger, trace_structured

from diode_engine.choosing.choice import Choice
from diode_engine.models.flex_attention import FIELDS, Config, FlexCall, FlexChoice

# A name below torch._inductor, so that torch's own handlers write it.
log = getArtifactLogger("torch._inductor.diode", "autotuning")


def trace_choice(choice: Choice) -> None:
    """Writes the choice to these logs, if they are on."""
    _write(lambda: _line(choice), lambda: _record(choice))


def trace_flex_choice(call: FlexCall, choice: FlexChoice, default: Config) -> None:
    """The same for the choice of a call of FlexAttention."""

    def record() -> dict[str, Any]:
        return {
            "flex_attention": asdict(call),
            "config": dict(zip(FIELDS[call.kind], choice.config, strict=True)),
            "estimated_speed": choice.speed,
        }

    def line() -> str:
        config = " ".join(f"{name}={value}" for name, value in record()["config"].items())
        what = f"flex_attention {call.kind} {call.heads} heads of {call.head} × {call.length}"
        if choice.config == default:
            return f"Diode: {what} {call.dtype}: {config}; Inductor's default"
        return f"Diode: {what} {call.dtype}: {config}; {choice.speed:.2f} × the default's speed"

    _write(line, record)


def _write(line: Callable[[], str], record: Callable[[], Mapping[str, Any]]) -> None:
    if log.isEnabledFor(logging.DEBUG):
        log.debug("%s", line())
    trace_structured(
        "artifact",
        metadata_fn=lambda: {"name": "diode_choice", "encoding": "json"},
        payload_fn=lambda: json.dumps(record()),
    )


def _line(choice: Choice) -> str:
    kernels = ", ".join(
        f"{candidate} ({us:.4g} µs)"
        for candidate, us in zip(choice.candidates, choice.predicted_us, strict=True)
    )
    for most, candidate in choice.by_rows:
        kernels += f"; {candidate} {f'up to {most} rows' if most else 'beyond'}"
    known = choice.library_us
    library = "" if known is None else f"; the library's {known:.4g} µs"
    sure = "" if choice.confidence is None else f"; confidence {choice.confidence:.2f}"
    return f"Diode: {choice.problem}: {kernels}{library}{sure}; {choice.why}"


def _record(choice: Choice) -> dict[str, Any]:
    record = {
        "problem": choice.problem.to_dict(),
        "kernels": [
            {**candidate.to_dict(), "predicted_us": us}
            for candidate, us in zip(choice.candidates, choice.predicted_us, strict=True)
        ],
        "library_us": choice.library_us,
        "confidence": choice.confidence,
        "why": str(choice.why),
    }
    by_rows = [{**each.to_dict(), "most_rows": most} for most, each in choice.by_rows]
    return {**record, "by_rows": by_rows} if by_rows else record
