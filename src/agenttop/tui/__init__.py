"""The console. The only package that imports textual or rich."""
