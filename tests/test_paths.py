from pathlib import Path

from diode_engine import paths


def test_home_moves_the_data_and_with_it_the_store(diode_home):
    assert paths.data_dir() == diode_home
    assert paths.store_location() == diode_home / "diode.db"
    assert not diode_home.exists()  # asking makes nothing


def test_a_store_given_wins_over_the_environment(monkeypatch):
    monkeypatch.setenv("DIODE_STORE", "~/of-the-environment.db")
    assert paths.store_location() == Path.home() / "of-the-environment.db"
    assert paths.store_location("given.db") == Path("given.db")


def test_without_a_home_the_data_lies_in_the_platforms_place(monkeypatch, tmp_path):
    monkeypatch.delenv("DIODE_HOME")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    monkeypatch.setenv("HOME", str(tmp_path))
    assert paths.data_dir().is_relative_to(tmp_path)
    assert paths.data_dir().name == "diode"
