"""agenttop watches one LLM inference host and the agents running against it."""

__version__ = "0.1.0"
