"""The additional line of the table of operators, for processes that load this module first."""

from diode_engine.core.operators import register
from tests.added_operator.paired_mm import PAIRED_MM

register(PAIRED_MM)
