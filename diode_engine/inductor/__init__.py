"""The room of Inductor: nothing else in Diode imports torch._inductor."""
