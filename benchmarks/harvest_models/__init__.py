"""The programs that are harvested (`python benchmarks/harvest.py`): models by their published
sizes, a few layers of each, run at several batches, lengths and types.

`models.json` has the models. Those of transformers are lists: the family, the class of the
configuration, the name on the hub, and the sizes that are not the class's defaults; for images and
sound also the shape of an example's input. `timm` and `torchvision` have the names of their models
by family.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

MODELS: dict[str, Any] = json.loads(Path(__file__).with_name("models.json").read_text())
