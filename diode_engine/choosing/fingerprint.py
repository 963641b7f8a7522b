"""The fingerprint of a process: everything that its choices depend on besides the program."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from diode_engine.core.content_key import content_key


@dataclass(frozen=True)
class Fingerprint:
    """All that the choices of a process depend on, as texts by name: the model, the rules, the GPU,
    the versions and the options. Processes with equal fingerprints choose the same kernels for the
    same graph."""

    parts: Mapping[str, str]

    @property
    def key(self) -> str:
        """Content key: 32 hex digits."""
        return content_key("fingerprint", dict(self.parts))

    def to_dict(self) -> dict[str, Any]:
        """Return the key and the parts, for JSON."""
        return {"key": self.key, "parts": dict(self.parts)}

    def describe_differences(self, other: Fingerprint) -> str:
        """Return the parts that differ from the other's, in words: "model a, not b"; "" where none
        does."""
        names = dict.fromkeys((*self.parts, *other.parts))
        mine, theirs = ({n: f.parts.get(n, "nothing") for n in names} for f in (self, other))
        return "; ".join(f"{n} {mine[n]}, not {theirs[n]}" for n in names if mine[n] != theirs[n])
