"""The block pool: what is found again, what is evicted, and that no block is lost."""

from __future__ import annotations

import random

from agenttop.sim.kv import BlockPool, Holding


def filled(pool: BlockPool, hashes: range) -> Holding:
    """A request that has computed these blocks."""
    holding = pool.start(hashes, 0, len(hashes))
    assert holding is not None
    for block in hashes:
        pool.publish(holding, block)
    return holding


def test_a_prefix_is_found_after_its_request_has_ended() -> None:
    pool = BlockPool(10)
    pool.release(filled(pool, range(4)))
    assert (pool.held, pool.idle, pool.available) == (0, 4, 10)
    assert pool.match(range(4), 4) == 4
    assert pool.match([0, 1, 99, 3], 4) == 2
    assert pool.match(range(4), 3) == 3


def test_blocks_shared_by_two_requests_are_held_once() -> None:
    pool = BlockPool(10)
    first = filled(pool, range(4))
    second = pool.start(range(4), 4, 1)
    assert second is not None
    assert pool.held == 5
    pool.release(first)
    assert pool.held == 5, "the second request still holds them"
    pool.release(second)
    assert pool.held == 0


def test_least_recently_used_is_evicted_first_and_its_last_block_before_its_first() -> None:
    pool = BlockPool(8)
    pool.release(filled(pool, range(4)))
    pool.release(filled(pool, range(100, 104)))
    assert pool.start(range(200, 202), 0, 2) is not None
    assert pool.match(range(4), 4) == 2, "the older one lost its two last blocks"
    assert pool.match(range(100, 104), 4) == 4


def test_no_room_gives_nothing_and_takes_nothing() -> None:
    pool = BlockPool(4)
    holding = filled(pool, range(3))
    assert pool.start(range(50, 60), 0, 2) is None
    assert not pool.grow(holding, 2)
    assert pool.unused == 1
    assert pool.grow(holding, 1)


def test_cached_blocks_it_wants_to_reuse_do_not_count_as_room() -> None:
    pool = BlockPool(4)
    pool.release(filled(pool, range(4)))
    assert pool.start(range(4), 4, 1) is None
    assert pool.start(range(4), 3, 1) is not None


def test_two_requests_computing_the_same_block_keep_both_copies() -> None:
    pool = BlockPool(10)
    first, second = pool.start(range(2), 0, 2), pool.start(range(2), 0, 2)
    assert first
    assert second
    pool.publish(first, 0)
    pool.publish(second, 0)
    assert (first.hashed, second.hashed) == ([0], [])
    assert pool.held == 4


def test_without_a_cache_nothing_is_kept() -> None:
    pool = BlockPool(4)
    pool.release(filled(pool, range(3)), keep=False)
    assert (pool.unused, pool.idle) == (4, 0)


def test_no_block_is_ever_lost() -> None:
    rng = random.Random(7)
    pool = BlockPool(50)
    live: list[tuple[Holding, range]] = []
    for _ in range(4000):
        act = rng.random()
        if act < 0.4:
            base = rng.randrange(6) * 1000
            hashes = range(base, base + rng.randrange(1, 20))
            found = pool.match(hashes, len(hashes))
            holding = pool.start(hashes, found, len(hashes) - found)
            if holding is not None:
                live.append((holding, hashes))
        elif act < 0.6 and live:
            holding, hashes = rng.choice(live)
            if len(holding.hashed) < len(hashes):
                pool.publish(holding, hashes[len(holding.hashed)])
        elif act < 0.7 and live:
            pool.grow(rng.choice(live)[0], rng.randrange(1, 4))
        elif live:
            pool.release(live.pop(rng.randrange(len(live)))[0])
        distinct = {block for holding, _ in live for block in holding.hashed}
        expected = len(distinct) + sum(holding.anonymous for holding, _ in live)
        assert pool.held == expected
        assert pool.unused + pool.idle + pool.held == pool.blocks
        assert pool.unused >= 0
    assert pool.evictions > 0
    for holding, _ in live:
        pool.release(holding)
    pool.forget()
    assert pool.unused == 50
