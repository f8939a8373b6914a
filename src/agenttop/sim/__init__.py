"""The simulated engine: a model of an inference server behind the real wire formats."""
