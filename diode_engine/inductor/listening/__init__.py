"""What programs ask Inductor for, and what Inductor benchmarks, as records for others."""
