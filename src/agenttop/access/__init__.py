"""How an engine is reached: its key, whose certificate vouches for it, whether a proxy stands in between.

Both the collectors and the synthetic agents go by it. A key is held by a `Key`, which does not show it.
"""
