"""The processes that compile kernels and time them on a GPU, and how a kernel is timed."""
