"""Finished or growing recordings to numbers. Pure over frames and rows."""
