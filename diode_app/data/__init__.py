"""What the dashboard reads and writes, outside of the event loop. Nothing here knows a screen."""
