"""The paged KV pool: blocks, the prefix cache over them, and their eviction.

As in vLLM's block pool: a full block is known by a hash of everything up to its end; blocks whose requests
have ended stay findable until their place is needed, least recently used first, and of one request the last
block first. Source: vLLM design document "Automatic Prefix Caching".
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from itertools import islice


class Holding:
    """The blocks one request holds: findable ones in order, and how many that nothing can find."""

    __slots__ = ("anonymous", "hashed")

    def __init__(self) -> None:
        self.hashed: list[int] = []
        self.anonymous = 0

    def __len__(self) -> int:
        return len(self.hashed) + self.anonymous


class BlockPool:
    """All blocks of an engine. A block is free, held by requests, or idle: cached and held by none."""

    def __init__(self, blocks: int) -> None:
        self.blocks = blocks
        self.unused = blocks
        """Blocks that hold nothing."""
        self.evictions = 0
        self._held: dict[int, int] = {}
        self._idle: OrderedDict[int, None] = OrderedDict()

    @property
    def idle(self) -> int:
        """Cached blocks that no request holds."""
        return len(self._idle)

    @property
    def available(self) -> int:
        """Blocks a request could get now."""
        return self.unused + len(self._idle)

    @property
    def held(self) -> int:
        """Blocks that requests hold."""
        return self.blocks - self.unused - len(self._idle)

    def match(self, hashes: Sequence[int], limit: int) -> int:
        """How many leading blocks, at most `limit`, are in the pool."""
        held, idle = self._held, self._idle
        found = 0
        for block in islice(hashes, limit):
            if block not in held and block not in idle:
                break
            found += 1
        return found

    def start(self, hashes: Sequence[int], found: int, new: int) -> Holding | None:
        """A holding of `found` cached leading blocks and `new` empty ones; None when there is no room."""
        cached = list(islice(hashes, found))
        waking = [block for block in cached if block not in self._held]
        if self.unused + len(self._idle) - len(waking) < new:
            return None
        for block in cached:
            self._held[block] = self._held.get(block, 0) + 1
        for block in waking:
            del self._idle[block]
        holding = Holding()
        holding.hashed = cached
        self.grow(holding, new)
        return holding

    def grow(self, holding: Holding, new: int) -> bool:
        """Gives it `new` more blocks, evicting idle ones; False, and nothing given, when there is no room."""
        short = new - self.unused
        if short > 0:
            if short > len(self._idle):
                return False
            for _ in range(short):
                self._idle.popitem(last=False)
            self.evictions += short
            self.unused = 0
        else:
            self.unused -= new
        holding.anonymous += new
        return True

    def publish(self, holding: Holding, block: int) -> None:
        """Its first block that nothing can find is full and is findable from now on.

        Where two requests compute the same block at once, the second one's copy stays unknown.
        """
        if holding.anonymous and block not in self._held and block not in self._idle:
            holding.anonymous -= 1
            holding.hashed.append(block)
            self._held[block] = 1

    def release(self, holding: Holding, *, keep: bool = True) -> None:
        """Gives all its blocks back; the findable ones stay cached when `keep`."""
        self.unused += holding.anonymous
        for block in reversed(holding.hashed):
            count = self._held[block] - 1
            if count:
                self._held[block] = count
                continue
            del self._held[block]
            if keep:
                self._idle[block] = None
            else:
                self.unused += 1
        holding.hashed = []
        holding.anonymous = 0

    def forget(self) -> None:
        """Empties the cache, as a restart does. Nothing may be held."""
        self.unused += len(self._idle)
        self._idle.clear()
