"""The table of FlexAttention's configs: how it chooses, and that a damaged file is refused."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from diode_engine import paths
from diode_engine.core.hardware import H200, KNOWN
from diode_engine.errors import ModelError
from diode_engine.models import flex_attention as fa
from diode_engine.models import library_algorithms as algorithms
from diode_engine.models.flex_attention import FlexCall, FlexGroup, FlexTable

DEFAULT, SHORT, LONG = (128, 128, 3, 4), (64, 64, 3, 4), (128, 64, 3, 4)


def call(length: int, **other: Any) -> FlexCall:
    facts = {"heads": 32, "masked": True, "reads": False, **other}
    return FlexCall("forward", 64, "bfloat16", length=length, **facts)


def group(*measured: tuple[int, float, float]) -> FlexGroup:
    calls = tuple(call(length) for length, *_ in measured)
    speeds = np.array([speeds for _, *speeds in measured])
    return FlexGroup("forward", 64, ("bfloat16",), DEFAULT, (SHORT, LONG), calls, speeds)


def test_it_takes_what_was_fastest_for_near_calls():
    some = group((256, 1.3, 1.1), (512, 1.3, 1.1), (8192, 0.9, 1.2), (16384, 0.9, 1.2))
    short, long = some.chosen(call(384)), some.chosen(call(12288))
    assert (short.config, long.config) == (SHORT, LONG)
    assert short.speed == pytest.approx(1.3, rel=1e-3)
    assert long.speed == pytest.approx(1.2, rel=1e-3)


def test_a_gain_under_the_margin_leaves_the_default():
    for gain, config in ((fa.MARGIN - 0.005, DEFAULT), (fa.MARGIN + 0.005, SHORT)):
        chosen = group((1024, gain, 0.9)).chosen(call(1024))
        assert chosen.config == config


@pytest.mark.parametrize(
    "beyond", [call(1024 * fa.REACH + 128), call(1024 // fa.REACH - 1),
               call(1024, heads=32 * fa.REACH + 1), call(1024, heads=32 // fa.REACH - 1)],
)  # fmt: skip
def test_nothing_is_taken_far_beyond_what_was_measured(beyond):
    some = group((1024, 1.3, 1.2))
    assert some.chosen(call(1024 * fa.REACH)) is not None
    assert some.chosen(beyond) is None


def test_a_mask_that_reads_counts_for_more_than_the_length():
    reading = replace(call(4096), reads=True)
    some = FlexGroup(
        "forward", 64, ("bfloat16",), DEFAULT, (SHORT, LONG), (call(1024), reading),
        np.array([[1.0, 1.3], [1.3, 1.0]]),
    )  # fmt: skip
    chosen = some.chosen(replace(call(1536), reads=True))
    assert chosen.config == SHORT


def test_the_shipped_table_survives_its_file():
    table = fa.table_for(H200)
    read = FlexTable.from_json(table.to_json())
    assert read.to_dict() == table.to_dict()
    assert read.identity == table.identity
    assert table.group("forward", 96, "bfloat16") is None
    assert table.group("forward", 64, "float32") is None


def test_there_is_none_for_a_gpu_that_was_not_measured():
    assert fa.table_for(KNOWN["NVIDIA A100-SXM4-80GB"]) is None
    assert fa.table_for(replace(H200, name="NVIDIA H200 NVL")) is None


@pytest.mark.parametrize("share", [0, 0.5, 0.99])
@pytest.mark.parametrize(
    ("path_for", "read", "hardware"),
    [
        (fa.path_for, fa.table_for, H200),
        (algorithms.path_for, algorithms.model_for, KNOWN["NVIDIA H100 80GB HBM3"]),
    ],
)
def test_a_file_that_is_cut_off_is_a_sentence(
    path_for, read, hardware, share, tmp_path, monkeypatch
):
    data = path_for(hardware).read_bytes()
    monkeypatch.setattr(paths, "shipped_dir", lambda: tmp_path)
    path = path_for(hardware)
    path.parent.mkdir(parents=True)
    path.write_bytes(data[: int(share * len(data))])
    with pytest.raises(ModelError, match=rf"{path.name} cannot be read .* again\.$"):
        read(hardware)


@pytest.mark.parametrize(
    "damage",
    [
        lambda given: given["configs"].pop(),
        lambda given: given["configs"][0].pop(),
        lambda given: given["default"].append(1),
        lambda given: given["calls"].clear(),
        lambda given: given["calls"][0].__setitem__(2, -1),
        lambda given: given["calls"][0].__setitem__(5, [1.0, float("nan")]),
        lambda given: given["calls"][0].__setitem__(5, [1.0, 0.0]),
        lambda given: given.update(kind="sideways"),
    ],
)
def test_a_group_that_cannot_be_is_refused(damage):
    given = group((1024, 1.3, 1.2), (2048, 1.3, 1.2)).to_dict()
    damage(given)
    with pytest.raises(ModelError, match="do not fit their times"):
        FlexGroup.from_dict(given)


def test_the_identity_follows_what_is_chosen_by(monkeypatch):
    groups = (group((1024, 1.3, 1.2)),)
    other = FlexTable("NVIDIA H200", "made up", (group((1024, 1.3, 1.21)),))
    before = FlexTable("NVIDIA H200", "made up", groups).identity
    assert other.identity != before
    monkeypatch.setattr(fa, "MARGIN", math.nextafter(fa.MARGIN, 2))
    assert FlexTable("NVIDIA H200", "made up", groups).identity != before
