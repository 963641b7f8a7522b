"""diode-engine data."""

import json
from dataclasses import replace

import pytest

from diode_engine.runs.process import current_process
from diode_engine.store import Store, read_dataset, write_dataset
from tests.cli.conftest import make_timings


def test_import_counts_and_repeats_nothing(run, dataset, tmp_path):
    store, empty = tmp_path / "a.db", tmp_path / "empty.json"
    first = run("data", "import", dataset, dataset, "--store", store)
    assert first.json_lines() == [
        {"file": str(dataset), "run": 1, "new": True, "timings": 48, "there": 0, "left_out": 0},
        {"file": str(dataset), "run": 1, "new": False, "timings": 0, "there": 48, "left_out": 0},
    ]
    assert "48 timings imported" in first.err
    assert "all its timings were in the store already, from run 1." in first.err
    write_dataset(make_timings(0), empty)
    assert run("data", "import", empty, "--store", store).json()["timings"] == 0
    run("data", "import", empty, "--store", "").says(2, "It is empty: name a store")
    with Store.open(store, read_only=True) as opened:
        assert len(opened.read()) == 48


@pytest.mark.parametrize(
    ("name", "content"),
    [("cut.json", b'{"format": "diode-dataset", "pro'), ("wrong.txt", b"{}"), ("none.json", None)],
)
def test_a_bad_file_is_a_sentence_and_keeps_the_good_ones(run, dataset, tmp_path, name, content):
    bad, store = tmp_path / name, tmp_path / "a.db"
    if content is not None:
        bad.write_bytes(content)
    ran = run("data", "import", dataset, bad, "--store", store)
    assert ran.code == (3 if content is None else 1)
    assert len(ran.out.splitlines()) == 1
    last = ran.err.strip().splitlines()[-1]
    assert last.startswith("Error: ")
    assert name in last
    with Store.open(store, read_only=True) as opened:
        assert len(opened.read()) == 48
        assert len(opened.runs()) == 1


def test_export_of_one_gpu(run, store, tmp_path):
    other, out = tmp_path / "other.json", tmp_path / "out.json"
    write_dataset(make_timings(2, name="Another GPU"), other)
    assert run("data", "import", other, "--store", store).code == 0
    for name in ("Another GPU", "another-gpu"):
        exported = run("data", "export", out, "--store", store, "--hardware", name).out
        assert json.loads(exported)["timings"] == 8
    wrong = run("data", "export", tmp_path / "no.json", "--store", store, "--hardware", "GTX")
    wrong.says(3, "Another GPU, NVIDIA H200")
    assert not (tmp_path / "no.json").exists()


def test_stats(run, store):
    counted = run("data", "stats", "--store", store, "--json").json()
    assert counted["timings"] == 48
    assert counted["by_op"] == {"mm": 48}
    assert counted["failures"] == {"timeout": 5}
    assert counted["by_environment"][0]["environment"]["hardware"]["name"] == "NVIDIA H200"
    assert counted["runs"][0]["timings"] == 48
    text = run("data", "stats", "--store", store).out
    for expected in ("48 timings (5 failed)", "bfloat16", "NVIDIA H200", "import", "done"):
        assert expected in text


def test_stats_in_groups(run, store):
    counted = run("data", "stats", "--by", "op", "--store", store, "--json").json()
    assert [(row["op"], row["problems"], row["timings"]) for row in counted] == [("mm", 12, 48)]
    text = run("data", "stats", "gpu:h200", "--store", store).out.splitlines()
    assert text[0].split()[:3] == ["gpu", "op", "dtype"]
    assert text[2].startswith("NVIDIA H200  mm")
    assert text[2].endswith("%")
    rows = run("data", "stats", "--csv", "--store", store).out.splitlines()
    assert rows[0].startswith("gpu,op,dtype,problems,candidates,failed,timings")


def test_stats_know_a_run_that_is_dead_and_show_the_last_ten(run, tmp_path):
    store = tmp_path / "a.db"
    with Store.open(store) as opened:
        for _ in range(12):
            opened.start_run("collect", {}, process=replace(current_process(), started=1))
    assert {r["state"] for r in run("data", "stats", "--store", store, "--json").json()[
        "runs"
    ]} == {"dead"}  # fmt: skip
    lines = run("data", "stats", "--store", store).out.splitlines()
    assert [line.split()[:3] for line in lines[4:6]] == [
        ["12", "collect", "dead"],
        ["11", "collect", "dead"],
    ]
    assert lines[-1] == "12 runs in all; `diode-engine runs list` shows them."


# merge and verify


@pytest.fixture
def files(tmp_path):
    """Of eight and of twelve problems; the first eight are the same."""
    few, many = tmp_path / "few.msgpack.zst", tmp_path / "many.json"
    write_dataset(make_timings(8), few)
    write_dataset(make_timings(12), many)
    return few, many


def test_what_files_share_is_merged_once(run, files, tmp_path):
    merged = tmp_path / "merged.json"
    ran = run("data", "merge", *files, "--output", merged)
    few, many = (len(read_dataset(file)) for file in files)
    assert ran.json() == {"file": str(merged), "timings": many, "repeated": few}
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
    run("data", "merge", bad, "--output", tmp_path / "a.txt").says(1, "a.txt")
    verified = run("data", "verify", files[0], bad, tmp_path / f"{300 * 'n'}.json")
    assert verified.code == 1
    good, wrong, missing = verified.out.splitlines()
    assert "on 8 problems, of NVIDIA H200; key " in good
    assert "bad.json" in wrong
    assert "cannot be read" in missing
