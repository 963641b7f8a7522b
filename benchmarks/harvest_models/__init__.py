"""The programs that are harvested (`python benchmarks/harvest.py`): models by their published
sizes, a few layers of each, run at several batches, lengths and types."""
