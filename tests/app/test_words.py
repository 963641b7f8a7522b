"""The dashboard's numbers, times and sentences are right."""

import time
from datetime import UTC, datetime

import pytest

from diode_app import text
from diode_app.widgets.files import existing_file


@pytest.mark.parametrize(("number", "shown"), [(0, "0 runs"), (1, "1 run"), (1200, "1,200 runs")])
def test_one_is_not_several(number, shown):
    assert text.quantity(number, "runs") == shown


@pytest.mark.parametrize(
    ("change", "shown"), [(-0.004, "0 %"), (0.0, "0 %"), (-0.12, "−12 %"), (0.03, "+3 %")]
)
def test_a_change_of_nothing_has_no_sign(change, shown):
    assert text.change(change) == shown


def test_numbers_are_short():
    assert text.pairs({"log_rmse": 0.29125213623046875, "step": 3}) == "log rmse 0.2913, step 3"


def test_a_moment_is_told_in_the_time_of_the_place_and_in_utc(monkeypatch):
    at = datetime(2026, 11, 22, 13, 0, tzinfo=UTC)
    assert text.moment(at) == "2026-11-22 13:00:00 UTC"
    with monkeypatch.context() as elsewhere:
        elsewhere.setenv("TZ", "Europe/Rome")
        time.tzset()
        assert text.moment(at) == "2026-11-22 14:00:00 CET (2026-11-22 13:00:00 UTC)"
        assert text.zone() in ("CET", "CEST")
    time.tzset()


def test_a_folder_is_not_told_to_be_missing(tmp_path):
    assert "is a folder" in existing_file(str(tmp_path))
    assert "There is no file" in existing_file(str(tmp_path / "none"))
    (tmp_path / "one").touch()
    assert existing_file(str(tmp_path / "one")) is None
