"""Frames to what a screen shows. Pure: no clock, no Textual."""
