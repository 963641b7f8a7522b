"""Libraries' kernels (cuBLAS), which are called through ATen: one call for each operator."""

from __future__ import annotations

from diode_engine.core.templates.template import Configs, Space, Template, Version


def _one(m: int, n: int, k: int, torch: Version | None = None) -> Configs:
    """One candidate without parameters: the library tunes itself."""
    return ((),)


ONE_CALL = Space(default_configs=_one, exhaustive_configs=_one)


def _call(name: str, op: str, *, bias_vector: bool = False, recorded_as: str = "") -> Template:
    return Template(
        name=name,
        ops=(op,),
        extern=True,
        bias_vector=bias_vector,
        recorded_with_bias_vector=recorded_as,
        space=ONE_CALL,
    )


TEMPLATES = (
    _call("aten::mm", "mm"),
    # Before torch 2.13 Inductor gives it a bias vector as a matrix (with strides of 0), for which
    # cuBLAS is slower. From 2.13 on Inductor gives it the vector: that is the same call as
    # aten::bias_addmm makes, so it is recorded under that name.
    _call("aten::addmm", "addmm", recorded_as="aten::bias_addmm"),
    _call("aten::bias_addmm", "addmm", bias_vector=True),
    _call("aten::bmm", "bmm"),
    _call("aten::baddbmm", "baddbmm"),
    _call("aten::_scaled_mm", "scaled_mm"),
    _call("aten::_int_mm", "int_mm"),
    # Two calls, of which the second adds to what the first has written.
    _call("aten::_mm_plus_mm", "mm_plus_mm"),
)
