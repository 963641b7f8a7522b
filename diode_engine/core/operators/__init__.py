"""The operators that Diode chooses kernels for: a table, with a line for each.

What an operator is, and how one is added: `specification`, docs/adding-an-operator.md.
"""

from diode_engine.core.operators.gemm import ADDMM, BADDBMM, BMM, MM
from diode_engine.core.operators.specification import OPERATORS, Operator, named, register

__all__ = ["ADDMM", "BADDBMM", "BMM", "MM", "OPERATORS", "Operator", "named", "register"]

register(MM)
register(ADDMM)
register(BMM)
register(BADDBMM)
