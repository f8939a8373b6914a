"""The demo engine: a generated random-weight model on a real llama.cpp server."""
