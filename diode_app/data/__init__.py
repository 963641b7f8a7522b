"""What the dashboard reads and writes, off the event loop; nothing here knows a screen."""
