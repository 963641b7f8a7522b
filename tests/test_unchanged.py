"""What is computed for products and kernels has not changed: keys, features, predictions, choices
on shipped timings, as `unchanged.npz` has them.

A change that is meant (new features, another rule) writes that file anew:

    python tests/test_unchanged.py
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from diode_engine import features
from diode_engine.choosing.policy import Policy
from diode_engine.core.hardware import H200
from diode_engine.core.resources import shared_bytes
from diode_engine.inductor.lowering.kernel_class import shared_classes
from diode_engine.models.predictor import Predictor
from diode_engine.store import read_dataset

KEPT = Path(__file__).with_name("unchanged.npz")
SHIPPED = Path(__file__).parents[1] / "datasets" / "nvidia-h200"
MODEL = Path(__file__).parents[1] / "trained_models" / "nvidia-h200" / "gemm" / "17"
FILES = ("real-layers-2026-11-22", "gemm-direct-2026-11-22", "gemm-direct-bf16-2026-11-21")
EACH = 6  # problems of an op and a type, in a file
MAX_CANDIDATES = 24  # candidates of a problem


def computed() -> dict[str, np.ndarray]:
    """Of some 200 problems and up to MAX_CANDIDATES of their timed candidates."""
    model = Predictor.load(MODEL)
    out: dict[str, list] = {
        name: []
        for name in ("problem", "candidate", "class", "features", "us", "bytes", "choice", "why")
    }
    for file in FILES:
        table = read_dataset(SHIPPED / f"{file}.packed.zst")
        kinds: dict[tuple[object, ...], int] = {}
        for i in sorted(range(len(table.problems)), key=lambda i: table.problems[i].key):
            problem = table.problems[i]
            kind = (problem.op, problem.dtype, problem.allow_tf32)
            if kinds.setdefault(kind, 0) == EACH:
                continue
            kinds[kind] += 1
            of_problem = np.unique(table.candidate[table.problem == i])
            candidates = sorted((table.candidates[c] for c in of_problem), key=lambda c: c.key)
            candidates = candidates[:: max(1, len(candidates) // MAX_CANDIDATES)][:MAX_CANDIDATES]
            prediction = model.predict(problem, candidates)
            n = len(candidates)
            x = features.matrix((problem,), candidates, np.zeros(n, np.intp), np.arange(n), H200)
            (choice,), why = Policy().compare(prediction).choose()
            out["problem"].append(problem.key)
            out["candidate"] += [candidate.key for candidate in candidates]
            out["features"].append(x)
            out["us"].append(model.predict_us(problem, candidates))
            out["choice"].append(candidates[choice].key)
            out["why"].append(str(why))
            out["bytes"].append(shared_bytes(problem, candidates, H200))
            for shared in shared_classes(problem, candidates):
                out["class"].append(shared.key if shared else "")
    rows = ("features", "us", "bytes")
    return {
        name: np.concatenate(values) if name in rows else np.array(values)
        for name, values in out.items()
    }


@pytest.fixture(scope="module")
def now():
    return computed()


@pytest.mark.parametrize("name", ["problem", "candidate", "class", "choice", "why", "bytes"])
def test_keys_kernel_classes_and_choices_are_as_before(name, now):
    with np.load(KEPT) as kept:
        np.testing.assert_array_equal(now[name], kept[name])


# Another processor's exponentials and sums differ in the last bits.
@pytest.mark.parametrize(("name", "within"), [("features", 1e-6), ("us", 1e-4)])
def test_features_and_predictions_are_as_before(name, within, now):
    with np.load(KEPT) as kept:
        np.testing.assert_allclose(now[name], kept[name], rtol=within, atol=within)


if __name__ == "__main__":
    np.savez_compressed(KEPT, **computed())
