"""The table of FlexAttention's configs: how it chooses, and that a damaged one is refused."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from diode_engine.core.hardware import H200, KNOWN
from diode_engine.errors import ModelError
from diode_engine.models import flex_attention as fa
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


def test_the_shipped_table_survives_its_file(tmp_path):
    table = fa.table_for(H200)
    path = tmp_path / "table.json"
    path.write_text(table.to_json())
    assert FlexTable.load(path).to_dict() == table.to_dict()
    assert FlexTable.load(path).identity == table.identity
    assert table.group("forward", 96, "bfloat16") is None
    assert table.group("forward", 64, "float32") is None


def test_there_is_none_for_a_gpu_that_was_not_measured():
    assert fa.table_for(KNOWN["NVIDIA A100-SXM4-80GB"]) is None
    assert fa.table_for(replace(H200, name="NVIDIA H200 NVL")) is None


def _first(found: dict[str, Any]) -> Any:
    return found["groups"][0]


DAMAGED: dict[str, Callable[[dict[str, Any]], Any]] = {
    "another format": lambda d: d.update(format="diode-flex-attention-2"),
    "no groups": lambda d: d.update(groups=[]),
    "an unknown kind": lambda d: _first(d).update(kind="sideways"),
    "a field more": lambda d: _first(d).update(more=1),
    "a config cut short": lambda d: _first(d)["configs"][0].pop(),
    "a config of text": lambda d: _first(d)["default"].__setitem__(0, "64"),
    "a size of nothing": lambda d: _first(d).update(head=0),
    "no speed": lambda d: _first(d)["calls"][0][-1].__setitem__(0, None),
    "a speed of nothing": lambda d: _first(d)["calls"][0][-1].__setitem__(0, 0),
    "a speed too few": lambda d: _first(d)["calls"][0][-1].pop(),
    "a mask of two": lambda d: _first(d)["calls"][0].__setitem__(3, 2),
    "no calls": lambda d: _first(d).update(calls=[]),
}


@pytest.mark.parametrize("damage", DAMAGED)
def test_a_damaged_table_is_refused_with_a_sentence(damage, tmp_path):
    table = json.loads(fa.path_for(H200).read_text())
    DAMAGED[damage](table)
    path = tmp_path / "table.json"
    path.write_text(json.dumps(table))
    with pytest.raises(
        ModelError, match=r"is no table of FlexAttention's configs\. Its? .* again\.$"
    ):
        FlexTable.load(path)


def test_a_file_that_is_cut_off_or_missing_is_refused(tmp_path):
    path = tmp_path / "table.json"
    with pytest.raises(ModelError, match="cannot be read"):
        FlexTable.load(path)
    data = fa.path_for(H200).read_bytes()
    path.write_bytes(data[: len(data) // 2])
    with pytest.raises(ModelError, match="not valid JSON"):
        FlexTable.load(path)


def test_the_identity_follows_what_is_chosen_by(monkeypatch):
    table = FlexTable("NVIDIA H200", "made up", (group((1024, 1.3, 1.2)),))
    other = FlexTable("NVIDIA H200", "made up", (group((1024, 1.3, 1.21)),))
    assert table.identity != other.identity
    before = table.identity
    monkeypatch.setattr(fa, "MARGIN", math.nextafter(fa.MARGIN, 2))
    assert table.identity != before
