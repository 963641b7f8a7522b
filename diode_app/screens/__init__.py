"""The screens, and the table of those that one can go to."""
