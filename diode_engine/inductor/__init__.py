"""Everything that needs Inductor: no other package of Diode imports torch._inductor."""
