"""Gradient-boosted trees over feature rows: XGBoost's, in its binary JSON.

With `residual` the trees predict the logarithm of the time over the features' base time.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, ClassVar, Self

import numpy as np

from diode_engine import features
from diode_engine.documents import shortened, show
from diode_engine.errors import ModelError
from diode_engine.models import ubjson
from diode_engine.models.protocol import MAX_SUM, Matrix, TimingModel

_CATEGORIES = ("categories", "categories_nodes", "categories_segments", "categories_sizes")
_RESIDUAL = "diode_residual"
_LN2 = np.float32(math.log(2))


class Trees(TimingModel):
    """A fitted booster whose prediction is a log time, or with `residual` what is added to the
    base time's logarithm."""

    family: ClassVar[str] = "trees"
    suffix: ClassVar[str] = ".ubj"

    def __init__(
        self,
        booster: Any,
        *,
        residual: bool,
        feature_set: features.FeatureSet = features.CURRENT,
    ) -> None:
        self.booster = booster
        self.feature_set = feature_set
        self.residual = residual

    def predict(self, x: Matrix) -> Matrix:
        """As TimingModel.predict."""
        if not len(x):
            return np.empty(0, np.float32)
        out: Matrix = self.booster.inplace_predict(x, validate_features=False)
        if self.residual:
            out = out + x[:, self.feature_set.base] * _LN2
        return out

    def to_bytes(self) -> bytes:
        """As TimingModel.to_bytes: UBJ."""
        self.booster.set_attr(**{_RESIDUAL: str(int(self.residual))})
        return bytes(self.booster.save_raw("ubj"))

    @classmethod
    def from_bytes(cls, data: bytes, feature_set: features.FeatureSet = features.CURRENT) -> Self:
        """As TimingModel.from_bytes. XGBoost gets the bytes only after everything that it would
        trust (lengths, children, split features) has been checked."""
        width = len(feature_set.names)
        residual = _checked(ubjson.loads(data), width)
        import xgboost

        booster = xgboost.Booster()
        try:
            booster.load_model(bytearray(data))
        except (xgboost.core.XGBoostError, ValueError) as error:
            line = shortened(str(error).strip().splitlines()[0])
            raise ModelError(f"XGBoost cannot read the trees' file: {line}.") from None
        return cls(booster, residual=residual, feature_set=feature_set)


def _require(ok: bool, sentence: str) -> None:
    if not ok:
        raise ModelError(sentence)


def _is(found: Any, wanted: Any) -> bool:
    """Whether they are equal and of one type; an array is equal to nothing."""
    return type(found) is type(wanted) and bool(found == wanted)


def _at(tree: Any, *path: str) -> Any:
    for name in path:
        _require(
            isinstance(tree, Mapping) and name in tree, f"The trees' file lacks {'.'.join(path)}."
        )
        tree = tree[name]
    return tree


def _checked(document: Any, width: int) -> bool:
    """Whether the model is residual. Raises ModelError where the document is not regression trees
    over this many features."""
    learner = _at(document, "learner")
    for path, wanted in (
        (("objective", "name"), "reg:squarederror"),
        (("gradient_booster", "name"), "gbtree"),
        (("learner_model_param", "num_feature"), str(width)),
        (("learner_model_param", "num_class"), "0"),
        (("learner_model_param", "num_target"), "1"),
    ):
        found = _at(learner, *path)
        _require(
            _is(found, wanted),
            f"The trees' {path[-1]} is {show(found)}; this Diode reads {wanted!r}.",
        )
    residual = _at(learner, "attributes", _RESIDUAL)
    _require(
        _is(residual, "0") or _is(residual, "1"),
        f"The trees' attribute {_RESIDUAL} must be 0 or 1.",
    )
    try:
        base = float(str(_at(learner, "learner_model_param", "base_score")).strip("[]"))
    except ValueError:
        base = math.nan
    _require(math.isfinite(base), "The trees' base score is not a finite number.")

    model = _at(learner, "gradient_booster", "model")
    trees = _at(model, "trees")
    _require(isinstance(trees, list) and len(trees) > 0, "The trees' file holds no trees.")
    _require(
        _is(_at(model, "gbtree_model_param", "num_trees"), str(len(trees))),
        "The trees' file states another number of trees than it holds.",
    )
    _require(
        _is(_at(model, "cats", "enc"), []) and not any(
            len(_numbers(_at(model, "cats"), n)) for n in ("feature_segments", "sorted_idx")),
        "The trees' file holds categories, which Diode's trees never do.",
    )  # fmt: skip
    info = _numbers(model, "tree_info")
    steps = _numbers(model, "iteration_indptr")
    _require(len(info) == len(trees) and not info.any(), "The trees' groups do not fit.")
    _require(
        len(steps) > 0 and steps[0] == 0 and steps[-1] == len(trees)
        and bool(np.all(np.diff(steps) >= 0)),
        "The trees' iterations do not fit.",
    )  # fmt: skip
    reach = abs(base) + sum(_check_tree(tree, place, width) for place, tree in enumerate(trees))
    _require(reach < MAX_SUM, "The trees' leaves are so large that they predict no times.")
    return _is(residual, "1")


def _numbers(tree: Any, name: str) -> np.ndarray[Any, Any]:
    array = _at(tree, name)
    if isinstance(array, list) and all(type(v) in (int, float) for v in array):
        array = np.array(array, np.float64 if any(type(v) is float for v in array) else np.int64)
    _require(isinstance(array, np.ndarray), f"The trees' {name} is not an array of numbers.")
    return array  # type: ignore[no-any-return]


def _check_tree(tree: Any, place: int, width: int) -> float:
    """The largest absolute value of its leaves."""
    nodes = len(_numbers(tree, "left_children"))
    _require(
        nodes > 0 and _is(_at(tree, "id"), place)
        and _is(_at(tree, "tree_param", "num_nodes"), str(nodes))
        and _is(_at(tree, "tree_param", "num_deleted"), "0")
        and any(_is(_at(tree, "tree_param", "size_leaf_vector"), size) for size in ("0", "1"))
        and _is(_at(tree, "tree_param", "num_feature"), str(width)),
        f"Tree {place} states other sizes than it has.",
    )  # fmt: skip
    column = {}
    for name in (
        "left_children", "right_children", "parents", "split_indices", "split_conditions",
        "base_weights", "default_left", "split_type", "loss_changes", "sum_hessian",
    ):  # fmt: skip
        column[name] = _numbers(tree, name)
        _require(len(column[name]) == nodes, f"Tree {place}'s {name} has not one value a node.")
    for name in ("left_children", "right_children", "parents", "split_indices"):
        _require(column[name].dtype.kind in "iu", f"Tree {place}'s {name} are not whole numbers.")
    left, right = (
        column["left_children"].astype(np.int64),
        column["right_children"].astype(np.int64),
    )
    leaf = left == -1
    node = np.arange(nodes)
    inner = ~leaf
    # Each child lies after its parent, so every way from the root ends.
    _require(
        bool(np.all(right[leaf] == -1) and np.all(left[inner] > node[inner])
             and np.all(right[inner] > node[inner]) and np.all(left[inner] < nodes)
             and np.all(right[inner] < nodes)),
        f"Tree {place}'s children do not form a tree.",
    )  # fmt: skip
    parents = column["parents"].astype(np.int64)
    _require(
        bool(np.all(parents[left[inner]] == node[inner])
             and np.all(parents[right[inner]] == node[inner])
             and np.all((parents[1:] >= 0) & (parents[1:] < nodes))),
        f"Tree {place}'s parents do not form a tree.",
    )  # fmt: skip
    split = column["split_indices"]
    _require(
        bool(np.all((split >= 0) & (split < width))),
        f"Tree {place} splits by a feature that does not exist.",
    )
    _require(
        not column["split_type"].any() and not any(len(_numbers(tree, n)) for n in _CATEGORIES),
        f"Tree {place} splits by category, which Diode's trees never do.",
    )
    _require(
        bool(np.all(np.isfinite(column["split_conditions"]))
             and np.all(np.isfinite(column["base_weights"]))),
        f"Tree {place} holds values that are not finite.",
    )  # fmt: skip
    return float(np.abs(column["split_conditions"][leaf].astype(np.float64)).max(initial=0))
