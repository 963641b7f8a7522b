"""The families of models that are harvested, and which of them are held out.

A family is held out by name: no model may learn from any product of its programs. The names were
drawn on 22 November 2026, before anything of the harvest was traced or timed (`draw` says how), and
written down; nothing that is measured changes them. A family that is added later is not held out.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping

from harvest_models import MODELS

SHARE = 0.25
_SEED = "diode's harvest, 2026-11-22"

# Families that were held out before, in benchmarks/results/real-layers-2026-11-22.json, and that
# have programs here, by the names that they have here (bge-m3 is an XLM-RoBERTa).
BEFORE = frozenset({
    "bart", "beit", "clip", "convnext", "deberta", "deepseek", "deit", "detr", "electra",
    "exaone", "falcon3", "gemma3", "gpt-oss", "granite", "minicpm", "mixer", "modernbert",
    "mpnet", "olmo2", "phi3", "qwen3", "sam", "siglip", "smollm3", "stablelm", "swin", "t5",
    "vit", "wav2vec2", "whisper", "xlm-roberta", "xlnet",
})  # fmt: skip
# The result of `draw`.
HELD_OUT = frozenset({
    "ast", "bart", "beit", "byt5", "clip", "convnext", "data2vec-vision", "deberta", "deepseek",
    "deit", "detr", "edgenext", "efficientnet", "electra", "eurobert", "eva", "exaone",
    "falcon3", "fastvit", "gemma3", "ghostnet", "gpt-oss", "granite", "granitemoe", "hunyuan",
    "iformer", "ijepa", "inception", "levit", "llama", "minicpm", "mixer", "mnasnet",
    "modernbert", "modernbert-decoder", "mpnet", "olmo2", "pegasus", "phi3", "pixio",
    "prophetnet", "qwen2", "qwen3", "resnet", "roberta", "sam", "siglip", "smollm3", "stablelm",
    "swiftformer", "swin", "t5", "twins", "vit", "vit-hybrid", "vit-relpos", "vivit",
    "wav2vec2", "whisper", "xlm-roberta", "xlnet",
})  # fmt: skip
EXPERTS = frozenset({
    "mixtral", "qwen2-moe", "qwen3-moe", "olmoe", "phimoe", "granitemoe", "gpt-oss", "deepseek",
    "glm4-moe", "dbrx",
})  # fmt: skip


def kinds() -> Mapping[str, str]:
    """The kind of each family; of one with several, the first in the order below."""
    found: dict[str, str] = {}
    for family, *_ in MODELS["decoders"]:
        found.setdefault(family, "experts" if family in EXPERTS else "decoder")
    for kind, of_kind in (
        ("encoder", "encoders"), ("encoder-decoder", "encoder-decoders"), ("sound", "whisper"),
        ("sound", "sound"), ("image", "images"),
    ):  # fmt: skip
        for family, *_ in MODELS[of_kind]:
            found.setdefault(family, kind)
    for family in (*MODELS["timm"], *MODELS["torchvision"]):
        found.setdefault(family, "image")
    return found


def draw(of: Mapping[str, str]) -> list[str]:
    """BEFORE, and more families of each kind, drawn by a seed, until a quarter of the kind is held
    out; at least one more, so that no kind is judged by those of BEFORE alone."""
    drawn = set(BEFORE)
    for kind in sorted(set(of.values())):
        names = sorted(name for name, its in of.items() if its == kind)
        free = [name for name in names if name not in BEFORE]
        wanted = math.ceil(SHARE * len(names)) - (len(names) - len(free))
        drawn |= set(random.Random(f"{_SEED}/{kind}").sample(free, max(1, wanted)))
    return sorted(drawn & set(of))
