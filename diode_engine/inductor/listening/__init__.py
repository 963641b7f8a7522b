"""Records of what programs ask Inductor for, and of what Inductor benchmarks."""
