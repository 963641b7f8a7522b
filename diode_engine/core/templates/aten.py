"""Libraries' kernels, called through ATen: cuBLAS has one function for each operator."""

from __future__ import annotations

from diode_engine.core.templates.template import Configs, LaunchMethod, Template, Version


def one(m: int, n: int, k: int, torch: Version | None = None) -> Configs:
    """One candidate without parameters: the library tunes itself."""
    return ((),)


def _call(name: str, op: str, *, bias_vector: bool = False, recorded_as: str = "") -> Template:
    return Template(
        name=name,
        ops=(op,),
        launch=LaunchMethod.LIBRARY,
        bias_vector=bias_vector,
        recorded_with_bias_vector=recorded_as,
        default_configs=one,
        exhaustive_configs=one,
    )


TEMPLATES = (
    _call("aten::mm", "mm"),
    # Given a bias vector as a matrix (by strides of 0), for which cuBLAS is slower. From torch 2.13
    # on it is given the vector, which is the call that aten::bias_addmm makes before.
    _call("aten::addmm", "addmm", recorded_as="aten::bias_addmm"),
    _call("aten::bias_addmm", "addmm", bias_vector=True),
    _call("aten::bmm", "bmm"),
    _call("aten::baddbmm", "baddbmm"),
    _call("aten::_scaled_mm", "scaled_mm"),
    _call("aten::_int_mm", "int_mm"),
    # Two calls, of which the second adds to what the first has written.
    _call("aten::_mm_plus_mm", "mm_plus_mm"),
)
