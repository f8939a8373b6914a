"""The machine and the engines, turned into samples."""
