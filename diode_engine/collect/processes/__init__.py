"""Starts, watches and replaces worker processes of this machine, and sends them requests."""
