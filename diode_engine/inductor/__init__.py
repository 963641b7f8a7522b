"""Everything that needs Inductor: no other room of Diode imports torch._inductor."""
