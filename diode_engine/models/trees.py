"""Gradient-boosted trees over feature rows, which XGBoost evaluates.

With `residual` the trees predict the logarithm of the time over the features' base time. A file has
the nodes of all trees, one tree after another. XGBoost's own files are not read: XGBoost trusts
them.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt

from diode_engine import features
from diode_engine.errors import ModelError
from diode_engine.models.protocol import MAX_SUM, Matrix, TimingModel
from diode_engine.models.tensors import Tensors

# Of a file; 1,200 trees of the shipped timings have 200,000 nodes. XGBoost spends 7 KB on a tree,
# and a function call on each level.
_MAX_TREES, _MAX_NODES, _MAX_DEPTH = 20_000, 4_000_000, 64
_LEAF = -1  # in place of the index of a child
_NO_PARENT = (1 << 31) - 1
# What XGBoost keeps of nodes besides: here without effect on a prediction.
_UNUSED: dict[str, type] = {
    "default_left": np.uint8, "split_type": np.uint8,
    "base_weights": np.float32, "loss_changes": np.float32, "sum_hessian": np.float32,
}  # fmt: skip
_NO_CATEGORIES: dict[str, npt.NDArray[Any]] = {
    "categories": np.empty(0, np.int32), "categories_nodes": np.empty(0, np.int32),
    "categories_segments": np.empty(0, np.int64), "categories_sizes": np.empty(0, np.int64),
}  # fmt: skip
# The marks of numbers in Universal Binary JSON, by their type.
_MARKS = {"uint8": b"U", "int32": b"l", "int64": b"L", "float32": b"d"}
_LN2 = np.float32(math.log(2))

Integers = npt.NDArray[np.int32]


class Trees(TimingModel):
    """A fitted booster whose prediction is a log time, or with `residual` what is added to the
    base time's logarithm."""

    family: ClassVar[str] = "trees"

    def __init__(self, booster: Any, *, residual: bool) -> None:
        self.booster = booster
        self.residual = residual

    def predict(self, x: Matrix) -> Matrix:
        if not len(x):
            return np.empty(0, np.float32)
        out: Matrix = self.booster.inplace_predict(x, validate_features=False)
        if self.residual:
            out = out + x[:, features.BASE] * _LN2
        return out

    def to_bytes(self) -> bytes:
        from safetensors.numpy import save

        learner = json.loads(self.booster.save_raw("json"))["learner"]
        trees = learner["gradient_booster"]["model"]["trees"]
        base = learner["learner_model_param"]["base_score"]

        def of_all(name: str, dtype: type) -> npt.NDArray[Any]:
            return np.concatenate([np.array(tree[name], dtype) for tree in trees])

        return save(
            {
                "nodes": np.array([len(tree["left_children"]) for tree in trees], np.int32),
                "left": of_all("left_children", np.int32),
                "right": of_all("right_children", np.int32),
                "feature": of_all("split_indices", np.int32),
                "value": of_all("split_conditions", np.float32),
                # A list of one number from XGBoost 3.1 on.
                "base": np.array([str(base).strip("[]")], np.float32),
                "residual": np.array([self.residual], np.uint8),
            }
        )

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """As TimingModel.from_bytes. XGBoost gets the trees only after everything that it would
        trust (children, features) has been checked."""
        tensors = Tensors(data, "trees")
        residual, base = tensors.flag("residual"), tensors.take("base", 1)
        nodes = tensors.integers("nodes", None)
        total = int(nodes.sum(dtype=np.int64))
        if not len(nodes) or nodes.min() < 1:
            raise ModelError("The trees' file must have trees, of one node at least.")
        if len(nodes) > _MAX_TREES or total > _MAX_NODES:
            raise ModelError(
                f"The trees' file has {len(nodes):,} trees of {total:,} nodes; at most "
                f"{_MAX_TREES:,} trees of {_MAX_NODES:,} nodes are read."
            )
        left, right, feature = (tensors.integers(n, total) for n in ("left", "right", "feature"))
        value = tensors.take("value", total)
        tensors.end()
        width = len(features.NAMES)
        if feature.min() < 0 or feature.max() >= width:
            raise ModelError("The trees split by a feature that does not exist.")
        parents = _check_children(nodes, left, right)
        _check_depth(nodes, left, right)
        _check_sums(base, nodes, np.where(left == _LEAF, value, 0))
        columns = {
            "left_children": left, "right_children": right, "parents": parents,
            "split_indices": feature, "split_conditions": value,
        }  # fmt: skip
        import xgboost

        booster = xgboost.Booster()
        document = _document(columns, nodes, str(base[0]), width)
        booster.load_model(bytearray(_ubjson(document)))
        return cls(booster, residual=residual)


def _check_children(nodes: Integers, left: Integers, right: Integers) -> Integers:
    """Return the index of each node's parent in its tree. Raises ModelError where the nodes of a
    tree, of which there are `nodes`, do not form one."""
    starts = np.repeat(np.cumsum(nodes) - nodes, nodes)
    place = np.arange(len(left)) - starts
    inner = left != _LEAF
    children = np.stack([left[inner], right[inner]])
    # Each child lies after its parent, so every way from the root ends.
    inside = (children > place[inner]) & (children < np.repeat(nodes, nodes)[inner])
    forms_trees = bool(inside.all() and (right[~inner] == _LEAF).all())
    if forms_trees:
        children += starts[inner]
        times_child = np.bincount(children.ravel(), minlength=len(left))
        forms_trees = np.array_equal(times_child, place > 0)
    if not forms_trees:
        raise ModelError("The children of the trees' nodes do not form trees.")
    parents = np.full(len(left), _NO_PARENT, np.int32)
    parents[children] = place[inner]
    return parents


def _check_depth(nodes: Integers, left: Integers, right: Integers) -> None:
    """Raises ModelError where one of these trees is too deep for XGBoost's recursion."""
    level = np.cumsum(nodes) - nodes
    starts = np.repeat(level, nodes)
    for _ in range(_MAX_DEPTH + 1):
        level = level[left[level] != _LEAF]
        if not len(level):
            return
        level = np.concatenate([left[level] + starts[level], right[level] + starts[level]])
    raise ModelError(f"The trees are deeper than {_MAX_DEPTH} levels.")


def _check_sums(base: Matrix, nodes: Integers, leaves: Matrix) -> None:
    """Raises ModelError where the sum of one leaf of each tree may be too large."""
    largest = np.maximum.reduceat(np.abs(leaves.astype(np.float64)), np.cumsum(nodes) - nodes)
    if not abs(float(base[0])) + largest.sum() < MAX_SUM:
        raise ModelError("The trees' leaves are so large that they predict no times.")


def _document(
    columns: Mapping[str, npt.NDArray[Any]], nodes: Integers, base: str, width: int
) -> dict[str, Any]:
    """Return the model that XGBoost 2.1 would write, which later ones read as well."""
    features = str(width)
    trees, end = [], 0
    for place, count in enumerate(nodes.tolist()):
        rows, end = slice(end, end + count), end + count
        tree: dict[str, Any] = {name: column[rows] for name, column in columns.items()}
        tree |= {name: np.zeros(count, dtype) for name, dtype in _UNUSED.items()} | _NO_CATEGORIES
        sizes = {"num_nodes": str(count), "num_feature": features, "size_leaf_vector": "1"}
        trees.append({**tree, "id": place, "tree_param": {**sizes, "num_deleted": "0"}})
    model = {
        "gbtree_model_param": {"num_parallel_tree": "1", "num_trees": str(len(trees))},
        "iteration_indptr": list(range(len(trees) + 1)),
        "tree_info": [0] * len(trees),
        "trees": trees,
    }
    sizes = {"num_feature": features, "num_class": "0", "num_target": "1"}
    learner = {
        "attributes": {},
        "feature_names": [],
        "feature_types": [],
        "gradient_booster": {"name": "gbtree", "model": model},
        "learner_model_param": {**sizes, "base_score": base, "boost_from_average": "0"},
        "objective": {"name": "reg:squarederror", "reg_loss_param": {"scale_pos_weight": "1"}},
    }
    return {"version": [2, 1, 0], "learner": learner}


def _ubjson(value: Any) -> bytes:
    """Return a document in Universal Binary JSON (ubjson.org), which XGBoost reads ten times as
    fast as JSON."""
    if isinstance(value, np.ndarray):
        numbers = value.astype(value.dtype.newbyteorder(">")).tobytes()
        return b"[$" + _MARKS[value.dtype.name] + b"#" + _whole(len(value)) + numbers
    if isinstance(value, dict):
        members = (_text(name) + _ubjson(each) for name, each in value.items())
        return b"{" + b"".join(members) + b"}"
    if isinstance(value, list):
        return b"[" + b"".join(map(_ubjson, value)) + b"]"
    return b"S" + _text(value) if isinstance(value, str) else _whole(value)


def _text(text: str) -> bytes:
    return _whole(len(text.encode())) + text.encode()


def _whole(number: int) -> bytes:
    return b"L" + number.to_bytes(8, "big", signed=True)
