"""The operators that Diode chooses kernels for: a table, with a line for each.

What an operator is, and how one is added: `specification`, docs/extending.md.
"""

from diode_engine.core.operators.gemm import ADDMM, BADDBMM, BMM, MM
from diode_engine.core.operators.grouped_mm import GROUPED
from diode_engine.core.operators.int_mm import INT_MM
from diode_engine.core.operators.mm_plus_mm import MM_PLUS_MM
from diode_engine.core.operators.scaled_grouped_mm import SCALED_GROUPED
from diode_engine.core.operators.scaled_mm import SCALED_MM
from diode_engine.core.operators.specification import OPERATORS, Operator, find_operator, register

__all__ = [
    "ADDMM", "BADDBMM", "BMM", "GROUPED", "INT_MM", "MM", "MM_PLUS_MM", "OPERATORS",
    "SCALED_GROUPED", "SCALED_MM", "Operator", "find_operator", "register",
]  # fmt: skip

register(MM)
register(ADDMM)
register(BMM)
register(BADDBMM)
register(SCALED_MM)
register(INT_MM)
register(MM_PLUS_MM)
for _each in (*GROUPED, *SCALED_GROUPED):
    register(_each)
