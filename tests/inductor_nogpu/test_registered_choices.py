"""Diode beside other libraries' choices in Inductor's register, which torch has from 2.15 on."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch._inductor import choices as inductor_choices
from torch._inductor import config
from torch._inductor.choices import InductorChoices
from torch._inductor.virtualized import V

import diode_engine
from diode_engine import registry
from diode_engine.inductor.without_gpu import lower
from tests.inductor_nogpu import conftest
from tests.inductor_nogpu.conftest import FixedPredictor, gemm, reopen_decision
from tests.inductor_nogpu.test_install import in_thread, status

pytestmark = pytest.mark.skipif(
    not hasattr(inductor_choices, "register_inductor_choices"),
    reason="torch before 2.15 has no register of choices",
)
register: Any = getattr(inductor_choices, "register_inductor_choices", None)
unregister: Any = getattr(inductor_choices, "unregister_inductor_choices", None)
registered: Any = getattr(inductor_choices, "registered_inductor_choices", None)

THEIRS = "another library"
BEST = {"BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": 64, "num_warps": 8}


class Counts(InductorChoices):
    """Another library's choices, which override no method that Diode overrides."""

    asked = 0

    def uuid(self) -> str:
        return "counts"

    def get_ktc(self, *args: Any, **kwargs: Any) -> Any:
        Counts.asked += 1
        return super().get_ktc(*args, **kwargs)


class NoEightWarps(Counts):
    """Choices that override the method by which Diode chooses."""

    def _finalize_template_configs(self, template_choices: Any, *args: Any, **kwargs: Any) -> Any:
        offered = super()._finalize_template_configs(template_choices, *args, **kwargs)
        return [c for c in offered if c.params.to_kwargs().get("num_warps") != 8]


class Unfused(Counts):
    """Choices that fuse nothing behind a kernel."""

    def can_fuse_vertical(self, *_: Any) -> bool:
        return False


class Nameless(InductorChoices):
    """Choices without a cache key, which the register refuses."""


@pytest.fixture(autouse=True)
def _only_here():
    yield
    unregister(THEIRS)
    diode_engine.uninstall_diode_choices()
    with V.set_choices_handler(InductorChoices()):
        pass


def install() -> None:
    conftest.install(FixedPredictor(best=BEST, aten=1000.0))


def chosen() -> dict[str, Any]:
    """The config of the one kernel that is rendered, which is Diode's choice."""
    Counts.asked = 0
    (seen,) = lower(gemm).seen
    assert len(seen.predicted_us) == len(seen.candidates) == 1
    return dict(seen.candidates[0].config)


def states() -> set[str]:
    found = diode_engine.get_integration_status()["integrations"]
    return {found[name]["state"] for name in ("matmul", "fast_autotune", "flex_attention")}


def test_diode_is_registered_and_the_default_stays():
    before = inductor_choices.V, torch._inductor.virtualized._choices._default
    install()
    assert [name for name, _ in registered()] == ["diode_engine"]
    assert torch._inductor.virtualized._choices._default is before[1]
    chosen()
    diode_engine.uninstall_diode_choices()
    assert registered() == ()
    assert type(V.choices.get_ktc.__self__) is InductorChoices


@pytest.mark.parametrize("first", ["theirs", "diode"])
def test_choices_of_other_methods_are_asked_beside_diodes(first):
    if first == "theirs":
        register(THEIRS, Counts)
        install()
    else:
        install()
        register(THEIRS, Counts)
    assert states() == {"active"}
    assert in_thread(states) == {"active"}
    chosen()
    assert Counts.asked > 0
    chosen()
    assert Counts.asked > 0  # for a product that Diode remembers too
    assert in_thread(chosen)
    diode_engine.uninstall_diode_choices()
    assert [name for name, _ in registered()] == [THEIRS]
    assert type(V.choices.get_ktc.__self__) is in_thread(lambda: type(V.choices.get_ktc.__self__))
    assert isinstance(V.choices.get_ktc.__self__, Counts)


def test_diode_chooses_among_what_those_registered_after_it_offer():
    install()
    register(THEIRS, NoEightWarps)
    assert status() == ("active", "")
    for _ in range(2):
        assert chosen()["num_warps"] != 8
    unregister(THEIRS)
    assert status() == ("active", "")
    assert chosen()["num_warps"] == 8


def test_what_diode_leaves_is_asked_of_those_registered_after_it():
    install()
    register(THEIRS, Unfused)
    assert V.choices.can_fuse_vertical(None, None, None, 0) is False


def test_diode_is_not_active_where_another_one_is_asked_first():
    register(THEIRS, NoEightWarps)
    install()
    for state, reason in (status(), in_thread(status)):
        assert state == "inactive"
        assert f"{__name__}.NoEightWarps" in reason
        assert "register it after" in reason
    assert diode_engine.get_stats()["active"] is False
    assert states() == {"inactive"}
    (seen,) = lower(gemm, benchmark=lambda _: 1.0).seen
    assert len(seen.candidates) > 1
    assert all(c.config.get("num_warps") != 8 for c in seen.candidates)
    assert diode_engine.get_stats()["total_calls"] == 0
    unregister(THEIRS)  # what the reason says
    register(THEIRS, NoEightWarps)
    assert status() == ("active", "")
    assert chosen()["num_warps"] != 8


def test_the_class_in_inductors_option_is_asked_first():
    with config.patch(inductor_choices_class=Counts):
        install()
        assert states() == {"active"}
        chosen()
        assert Counts.asked > 0
    diode_engine.uninstall_diode_choices()
    with config.patch(inductor_choices_class=NoEightWarps):
        install()
        state, reason = status()
        assert (state, "NoEightWarps" in reason) == ("inactive", True)


def test_a_handler_that_was_set_in_a_thread_is_kept_below_diodes():
    mine = NoEightWarps()
    with V.set_choices_handler(mine):
        install()
        register(THEIRS, Counts)
        assert status() == ("active", "")
        assert chosen()["num_warps"] != 8
        unregister(THEIRS)
        diode_engine.uninstall_diode_choices()
        assert V.choices.get_ktc.__self__ is mine


def test_the_cache_key_tells_what_chooses():
    def key():
        return str(inductor_choices.inductor_choices_cache_key(None))

    install()
    assert "model fixed" in key()
    register(THEIRS, Counts)
    assert "model fixed" in key()
    assert "counts" in key()
    diode_engine.uninstall_diode_choices()
    assert key() == "counts"


def test_what_the_register_refuses_leaves_diode_off(caplog):
    with config.patch(inductor_choices_class=Nameless):
        assert not diode_engine.install_diode_choices(predictor=FixedPredictor())
        assert "does not implement uuid()" in caplog.text
        assert "uuid()" in str(diode_engine.get_stats()["reason"])
        assert registered() == ()
    install()
    chosen()


def test_a_registration_loads_no_model(monkeypatch):
    loaded: list[Any] = []

    def load_predictor(*_):
        loaded.append(FixedPredictor(best=BEST))
        return loaded[-1]

    monkeypatch.setattr(registry, "load_predictor", load_predictor)
    # The process may be about to fork, and nothing is compiled yet.
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: False)
    reopen_decision()
    register(THEIRS, Counts)
    assert loaded == []
    assert diode_engine.get_stats()["active"] is False
    with config.patch(force_disable_caches=True):  # no cache key is made either
        chosen()
    assert len(loaded) == 1
    assert diode_engine.get_stats()["active"] is True
