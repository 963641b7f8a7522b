"""The fingerprint of this process (choosing/fingerprint.py), read, and compared among ranks."""

from __future__ import annotations

from diode_engine.choosing.fingerprint import Fingerprint
from diode_engine.inductor.hook import ranks
from diode_engine.inductor.hook.installation import INSTALLATION
from diode_engine.inductor.hook.options import CACHE, FROZEN, OPTIONS
from diode_engine.version import __version__, torch_version, triton_version

# Options of Inductor's that decide which products are chosen for, among which kernels.
_INDUCTORS = (
    "max_autotune", "max_autotune_gemm", "epilogue_fusion", "shape_padding", "force_shape_pad",
    "batch_invariant",
)  # fmt: skip


def read_fingerprint() -> Fingerprint:
    """Return the fingerprint of this process. As the first compile would, this loads the model.
    Options are those that are set in torch._inductor.config now; what `torch.compile(options=…)`
    sets for one compile is part of the program."""
    INSTALLATION.decide()
    choices = INSTALLATION.decision.choices
    _, reason = INSTALLATION.state()
    state = f"off ({reason})" if reason else "on"
    if choices is None:
        versions = {"torch": str(torch_version()), "triton": str(triton_version())}
        return Fingerprint({"choices": state, "diode": __version__, **versions})
    return Fingerprint({"choices": state, **choices.diode_chooser.identity_parts, **_options()})


def compare_ranks(timeout: float = 60.0) -> list[str]:
    """Compare the fingerprints of all ranks of a distributed program. Return a sentence for each
    rank that differs from rank 0, the same list on every rank, and log them as warnings; none in a
    program that is not distributed.

    Every rank has to call this, as many times as the others. It waits at most `timeout` seconds for
    them, and raises IntegrationError where one has not called it by then.
    """
    return ranks.compare(read_fingerprint(), timeout)


def _options() -> dict[str, str]:
    """Return the options that choices depend on, by name."""
    from torch._inductor import config

    from diode_engine.inductor.choosing.compile_options import is_deterministic, offering_keys
    from diode_engine.inductor.choosing.search import read_settings

    # Of frozen choices the file's hash counts, which is among the choices' parts.
    own = [option.name for option in OPTIONS if option.name not in (CACHE, FROZEN)]
    values = {name: getattr(config, name, None) for name in (*own, *_INDUCTORS, *offering_keys())}
    values["deterministic"] = is_deterministic()
    return {name: str(value) for name, value in values.items()} | read_settings()
