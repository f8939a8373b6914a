"""Widgets of our own: drawn line by line, redrawn only where something has changed."""
