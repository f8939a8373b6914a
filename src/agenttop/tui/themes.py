"""Two themes, dark and light: what each role of text looks like."""

from __future__ import annotations

from textual.theme import Theme

DARK = Theme(
    name="agenttop-dark",
    dark=True,
    primary="#5fb3f0",
    secondary="#8aa2c8",
    accent="#5fb3f0",
    success="#79c98b",
    warning="#e6b450",
    error="#f07178",
    foreground="#c9d1d9",
    background="#0f1419",
    surface="#151b23",
    panel="#1b232d",
    variables={
        "at-strong": "#f0f4f8",
        "at-label": "#8593a1",
        "at-dim": "#64707d",
        "at-frame": "#2c3744",
        "at-prefill": "#e0a35c",
        "at-decode": "#4fc1a6",
        "at-pause": "#8aa2c8",
        "at-compact": "#c792ea",
        "at-idle": "#586777",
        "at-cursor": "#22303f",
        "at-on-badge": "#0f1419",
    },
)

LIGHT = Theme(
    name="agenttop-light",
    dark=False,
    primary="#0b62a8",
    secondary="#475a78",
    accent="#0b62a8",
    success="#217a3c",
    warning="#9a6200",
    error="#c0282f",
    foreground="#2b333d",
    background="#fbfbf9",
    surface="#f3f3f0",
    panel="#e9e9e5",
    variables={
        "at-strong": "#0b0f14",
        "at-label": "#66717d",
        "at-dim": "#9aa3ad",
        "at-frame": "#cdd3d9",
        "at-prefill": "#a85f00",
        "at-decode": "#00796b",
        "at-pause": "#475a78",
        "at-compact": "#7e3fb0",
        "at-idle": "#8b96a1",
        "at-cursor": "#dce8f3",
        "at-on-badge": "#ffffff",
    },
)

THEMES = (DARK, LIGHT)
