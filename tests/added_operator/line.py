"""The line that the table of operators has more, in processes that load this first."""

from diode_engine.core.operators import register
from tests.added_operator.paired_mm import PAIRED_MM

register(PAIRED_MM)
