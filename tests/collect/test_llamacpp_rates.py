"""Rates from successive looks: against captured runs whose true counts are known, and case by case."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from agenttop.collect.engine.kinds.llamacpp.rates import RateMeter
from agenttop.collect.engine.kinds.llamacpp.slots import Slot, parse_slots
from tests.collect import samples

EVERY_STEP = 1e-9
"""A window so short that each update's rate times its window is what was counted since the look before."""


def slot(number: int = 0, **fields: Any) -> Slot:
    known: dict[str, Any] = {
        "processing": True,
        "task": 1,
        "context_limit": 2048,
        "held": None,
        "processed": None,
        "cached": None,
        "decoded": None,
        "remaining": None,
    }
    return Slot(number=number, **(known | fields))


def counted(name: str) -> tuple[float, float]:
    """(decoded, processed) tokens counted over a whole captured run."""
    meter = RateMeter(EVERY_STEP)
    decoded = processed = 0.0
    for at, body in samples.series(name):
        rates = meter.update(at, parse_slots(body))
        if rates.window_s is not None and rates.decode is not None:
            decoded += rates.decode * rates.window_s
            processed += (rates.prefill or 0.0) * rates.window_s
    return decoded, processed


@pytest.mark.parametrize(
    ("run", "output", "prompt"),
    [("b11434/load4", 4 * 160, 4 * 148), ("b8672/load4", 4 * 400, 0)],
)
def test_every_token_of_a_run_is_counted_once(run: str, output: int, prompt: int) -> None:
    decoded, processed = counted(f"llamacpp/{run}/slots.jsonl")
    assert decoded == pytest.approx(output, abs=1e-6)
    assert processed == pytest.approx(prompt, abs=1e-6)


def test_with_requests_waiting_for_slots_only_last_tokens_are_missed() -> None:
    """Seven requests on four slots: where the next one follows within a poll, a tail is not seen."""
    decoded, processed = counted("llamacpp/b11434/load7/slots.jsonl")
    assert 7 * 24 * 0.8 < decoded <= 7 * 24
    assert 7 * 1327 * 0.98 < processed <= 7 * 1327


def test_slot_rates_agree_with_the_client_in_mid_run() -> None:
    """The four clients of this run measured 14.7 tokens per second each."""
    meter = RateMeter()
    slot_rates, engine_rates = [], []
    for at, body in samples.series("llamacpp/b11434/load4/slots.jsonl"):
        rates = meter.update(at, parse_slots(body))
        if 5 <= at <= 12:
            slot_rates += [rates.slots[number].decode for number in range(4)]
            engine_rates.append(rates.decode)
            assert rates.window_s == pytest.approx(3.0, abs=0.6)
    assert sum(slot_rates) / len(slot_rates) == pytest.approx(14.7, rel=0.05)
    assert sum(engine_rates) / len(engine_rates) == pytest.approx(4 * 14.7, rel=0.05)
    # Polls of half a second read 4 to 20; the window takes that out.
    assert min(slot_rates) > 0.7 * 14.7
    assert max(slot_rates) < 1.3 * 14.7


def test_the_first_look_gives_no_rate() -> None:
    rates = RateMeter().update(10.0, [slot(decoded=50)])
    assert (rates.window_s, rates.decode, rates.prefill) == (None, None, None)
    assert rates.slots[0].decode is None


def test_an_idle_engine_decodes_zero_not_nothing() -> None:
    meter = RateMeter()
    idle = [slot(processing=False, task=None, held=0)]
    meter.update(0.0, idle)
    rates = meter.update(1.0, idle)
    assert (rates.decode, rates.prefill, rates.slots) == (0.0, 0.0, {})


def test_time_in_prefill_does_not_dilute_the_decode_rate() -> None:
    meter = RateMeter()
    meter.update(0.0, [slot(decoded=0, processed=0)])
    meter.update(1.0, [slot(decoded=0, processed=512)])
    first = meter.update(2.0, [slot(decoded=5, processed=1000)])
    assert first.slots[0].decode is None  # when decoding began is not known
    second = meter.update(3.0, [slot(decoded=25, processed=1000)])
    assert second.slots[0].decode == pytest.approx(20.0)


def test_a_new_task_in_a_slot_starts_its_rate_anew() -> None:
    meter = RateMeter()
    meter.update(0.0, [slot(task=1, decoded=100)])
    meter.update(1.0, [slot(task=1, decoded=120)])
    rates = meter.update(2.0, [slot(task=2, decoded=10)])
    assert rates.slots[0].decode is None
    assert rates.decode == pytest.approx((20 + 10) / 2)


def test_prefill_in_steps_longer_than_the_window() -> None:
    """A batch of 2048 tokens every 5 s is 410 tok/s, although most windows see no step at all."""
    meter = RateMeter()
    shown = []
    for second in range(21):
        rates = meter.update(float(second), [slot(decoded=0, processed=2048 * (second // 5))])
        shown.append(rates.slots[0].prefill)
    assert shown[:5] == [None] * 5
    assert shown[5:] == [pytest.approx(409.6)] * 16


def test_the_end_of_a_request_counts_its_last_tokens() -> None:
    newer = RateMeter(EVERY_STEP)
    newer.update(0.0, [slot(held=200, decoded=50, remaining=50)])
    rates = newer.update(1.0, [slot(processing=False, held=249, decoded=0, processed=0)])
    assert rates.decode == pytest.approx(50)  # the 50th is sampled, and never put into the cache
    older = RateMeter(EVERY_STEP)
    older.update(0.0, [slot(decoded=50)])
    assert older.update(1.0, [slot(processing=False, decoded=100)]).decode == pytest.approx(50)


def test_an_idle_slot_keeps_its_old_count_and_it_is_not_counted_again() -> None:
    meter = RateMeter(EVERY_STEP)
    idle = [slot(processing=False, decoded=400)]
    meter.update(0.0, idle)
    assert meter.update(1.0, idle).decode == 0.0


def test_counters_that_go_back_never_make_a_rate_negative() -> None:
    meter = RateMeter()
    values = [0, 40, 10, 90, 0, 0, 500]
    for second, value in enumerate(values):
        rates = meter.update(float(second), [slot(decoded=value, processed=value, held=1)])
        for rate in (rates.decode, rates.prefill, rates.slots[0].decode, rates.slots[0].prefill):
            assert rate is None or rate >= 0


def test_two_replies_at_one_moment() -> None:
    meter = RateMeter()
    meter.update(1.0, [slot(decoded=1)])
    assert meter.update(1.0, [slot(decoded=2)]).decode is None


def test_a_gap_in_polling_widens_the_window_and_keeps_the_rate() -> None:
    meter = RateMeter()
    for second in (0, 1, 2, 3, 15):
        rates = meter.update(float(second), [slot(decoded=1 + 20 * second)])
    assert rates.window_s == pytest.approx(12.0)
    assert rates.decode == pytest.approx(20.0)
    assert rates.slots[0].decode == pytest.approx(20.0)


def test_builds_that_do_not_count_prefill() -> None:
    meter = RateMeter()
    meter.update(0.0, [slot(decoded=0)])
    rates = meter.update(1.0, [slot(decoded=5)])
    assert rates.prefill is None
    assert rates.decode == pytest.approx(5.0)


def test_steps_of_all_slots_together_are_smoothed() -> None:
    """Four slots in lock step, a step every 77 ms (52 tok/s), looked at every 250 ms."""
    meter = RateMeter()
    shown = []
    for look in itertools.takewhile(lambda n: n < 40, itertools.count()):
        at = look * 0.25
        steps = int(at / 0.077)
        rates = meter.update(at, [slot(number, decoded=1 + steps) for number in range(4)])
        if at > 3:
            shown.append(rates.decode)
    assert all(rate == pytest.approx(4 / 0.077, rel=0.05) for rate in shown)


def test_tokens_of_requests_that_ended_unseen_are_put_right_by_the_servers_total() -> None:
    """The request of task 1 goes on to 140 tokens and a whole one of 30 follows before task 3 is seen."""
    meter = RateMeter()
    meter.update(0.0, [slot(task=1, decoded=100)])
    meter.settle(1000 + meter.in_flight)
    assert meter.update(1.0, [slot(task=1, decoded=120)]).floor is False
    rates = meter.update(2.0, [slot(task=3, decoded=10)])
    assert (rates.decode, rates.floor) == (pytest.approx((20 + 10) / 2), True)
    settled = meter.settle(1000 + 140 + 30 + meter.in_flight)
    assert (settled.decode, settled.floor) == (pytest.approx((40 + 30 + 10) / 2), False)
    assert meter.update(3.0, [slot(task=3, decoded=40)]).decode == pytest.approx((40 + 30 + 40) / 3)


def test_without_the_servers_total_the_rate_is_a_lower_bound_until_it_leaves_the_window() -> None:
    meter = RateMeter()
    meter.update(0.0, [slot(task=1, decoded=100)])
    shown = [meter.update(float(second), [slot(task=2, decoded=20 * second)]).floor for second in range(1, 7)]
    assert shown == [True, True, True, False, False, False]


def test_a_total_that_goes_back_only_begins_a_new_account() -> None:
    meter = RateMeter()
    meter.update(0.0, [slot(decoded=100)])
    meter.settle(5000)
    meter.update(1.0, [slot(task=9, decoded=20)])
    assert meter.settle(20).decode == pytest.approx(20)
    meter.update(2.0, [slot(task=9, decoded=40)])
    assert meter.settle(40).decode == pytest.approx(20)
