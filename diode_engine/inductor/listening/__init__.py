"""What programs ask Inductor for, and what Inductor benchmarks, told to others as records."""
