"""Collection on the GPUs of a Ray cluster."""
