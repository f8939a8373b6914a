"""Recordings: one SQLite file per session."""
