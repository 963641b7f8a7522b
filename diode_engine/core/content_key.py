"""Keys made of content: the same thing met twice (in collection, in a file, at compile time) has
the same key."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any


def content_key(kind: str, fields: Mapping[str, Any]) -> str:
    """32 hex digits: the first half of the SHA-256 of the fields as canonical JSON."""
    text = json.dumps([kind, fields], sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()[:32]
