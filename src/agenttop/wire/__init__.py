"""Bytes to values without I/O: frame codec, server-sent events, Prometheus text, OpenAI chunks."""
