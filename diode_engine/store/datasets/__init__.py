"""Files of timings: their format, and how they are read and written."""
