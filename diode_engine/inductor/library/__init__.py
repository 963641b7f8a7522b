"""The library's products: cuBLASLt's algorithms, and which of them is called."""
