"""Engine addresses; they live in `agenttop.model.url`."""

from agenttop.model.url import is_local, normalise, port_of

__all__ = ["is_local", "normalise", "port_of"]
