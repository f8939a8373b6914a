"""Readers of recorded agents, one module per format: files to sizes and pauses."""
