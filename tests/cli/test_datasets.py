"""diode-engine data merge and verify."""

from __future__ import annotations

import json

import pytest

from diode_engine.store import read_dataset, write_dataset


@pytest.fixture
def files(tmp_path, make_timings):
    """Of eight and of twelve problems; the first eight are the same."""
    few, many = tmp_path / "few.msgpack.zst", tmp_path / "many.json"
    write_dataset(make_timings(8), few)
    write_dataset(make_timings(12), many)
    return few, many


def test_what_files_share_is_merged_once(run, files, tmp_path):
    merged = tmp_path / "merged.json"
    ran = run("data", "merge", *files, "--output", merged)
    assert ran.code == 0, ran.err
    few, many = (len(read_dataset(file)) for file in files)
    assert json.loads(ran.out) == {"file": str(merged), "timings": many, "repeated": few}
    keys = [
        json.loads(line)["key"]
        for line in run("data", "verify", files[1], merged, "--json").out.splitlines()
    ]
    assert keys[0] == keys[1]


def test_a_bad_file_among_them_writes_nothing(run, files, tmp_path):
    bad, merged = tmp_path / "bad.json", tmp_path / "merged.json"
    bad.write_text("{}")
    run("data", "merge", files[0], bad, "--output", merged).says(1, "bad.json")
    assert not merged.exists()
    verified = run("data", "verify", files[0], bad, tmp_path / "none.json")
    assert verified.code == 1
    good, wrong, missing = verified.out.splitlines()
    assert "on 8 problems, of NVIDIA H200; key " in good
    assert "bad.json" in wrong
    assert "There is no file" in missing
