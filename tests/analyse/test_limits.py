"""What a level was limited by: each verdict with the numbers that prove it, and none without them."""

from __future__ import annotations

import dataclasses

import pytest

from agenttop.analyse.compare import rows_of
from agenttop.analyse.limits import BOTTLENECKS, NOTHING, bottleneck
from agenttop.analyse.material import of_frames
from agenttop.analyse.sight import Seen
from agenttop.model.frames import EngineSample, Frame, GpuSample, HostSample, Level, LoadSample
from tests.record.build import URL, session, turn

AT_EASE = Seen(
    agents=8,
    decode_tok_s=400.0,
    prefill_tok_s=900.0,
    wait_s=6.0,
    client_share=0.0,
    kv_active=0.4,
    preemptions=0,
    waiting_share=0.0,
    running_max=6,
    slots_total=8,
    prefill_share=0.2,
    prefilling=0.8,
    gpu_samples=60,
    util=0.7,
    mem_util=0.5,
    pcie_share=0.1,
    thermal_share=0.0,
    power_share=0.0,
    cpu=0.06,
    ram_available=0.5,
    swapped_in=0.0,
)
SMALLER = dataclasses.replace(AT_EASE, agents=4, decode_tok_s=380.0, wait_s=3.0)
GROWING = dataclasses.replace(SMALLER, decode_tok_s=210.0)


def test_nothing_is_saturated_only_with_all_series_at_ease():
    limit = bottleneck(AT_EASE)
    assert limit.name == NOTHING
    assert "GPU busy 70 %" in limit.evidence


@pytest.mark.parametrize("lacking", ["util", "mem_util", "waiting_share", "kv_active", "cpu"])
def test_without_a_series_there_is_no_verdict_and_it_is_named(lacking):
    limit = bottleneck(dataclasses.replace(AT_EASE, **{lacking: None}))
    assert limit.name is None
    assert limit.evidence.startswith("cannot be told without")


@pytest.mark.parametrize(
    ("name", "changes", "proof"),
    [
        ("client", {"client_share": 0.3, "client_why": "loop late"}, "30 % of the seconds (loop late)"),
        ("KV pool", {"preemptions": 12}, "12 preemptions, KV pool 40 % full at most"),
        ("KV pool", {"kv_active": 0.97, "waiting_share": 0.1}, "97 % full at most while requests waited"),
        ("thermal throttle", {"thermal_share": 0.4}, "heat held the clocks down for 40 % of it (60 GPU"),
        ("PCIe", {"pcie_share": 0.9}, "90 % of what its link can"),
        ("slots", {"waiting_share": 0.8, "running_max": 8}, "with all 8 slots taken"),
        ("prefill budget", {"prefill_share": 0.8, "wait_s": 9.0}, "stays at 900 tok/s (900 with 4 agents)"),
        ("admission queue", {"waiting_share": 0.5, "slots_total": None}, "waited in 50 % of the samples"),
        ("decode bandwidth", {"mem_util": 0.93}, "GPU memory busy 93 %"),
        ("power throttle", {"power_share": 0.9}, "a power limit held the clocks down for 90 %"),
        ("CPU/RAM", {"cpu": 0.95}, "CPU busy 95 % (median)"),
        ("compute", {"util": 0.99, "mem_util": 0.4}, "GPU busy 99 %, its memory only 40 %"),
    ],
)  # fmt: skip
def test_each_limit_is_named_with_its_numbers(name, changes, proof):
    assert name in BOTTLENECKS
    limit = bottleneck(dataclasses.replace(AT_EASE, **changes), [SMALLER])
    assert limit.name == name
    assert proof in limit.evidence


def test_what_lies_behind_the_first_limit_is_told_too():
    limit = bottleneck(dataclasses.replace(AT_EASE, preemptions=3, mem_util=0.9))
    assert limit.name == "KV pool"
    assert "; also decode bandwidth: GPU memory busy 90 %" in limit.evidence


def test_a_busy_gpu_alone_proves_neither_compute_nor_ease():
    busy = dataclasses.replace(AT_EASE, util=1.0, mem_util=0.4)
    assert bottleneck(busy).name is None
    assert bottleneck(busy, [GROWING]).name is None


def test_prefill_is_not_blamed_where_decoding_takes_the_time():
    assert bottleneck(dataclasses.replace(AT_EASE, wait_s=9.0), [GROWING]).name == NOTHING


def test_a_level_alone_shows_the_prefill_budget_by_requests_that_wait_together():
    alone = dataclasses.replace(AT_EASE, prefill_share=0.9, prefilling=4.2)
    limit = bottleneck(alone)
    assert limit.name == "prefill budget"
    assert "4.2 requests at a time wait for it" in limit.evidence
    one = dataclasses.replace(alone, agents=1, prefilling=0.9)
    assert bottleneck(one).name != "prefill budget"


def test_prompts_alone_can_take_an_engine_that_is_never_idle():
    """The first token comes soon, and then each reply waits behind the prompts of the others."""
    heavy = dataclasses.replace(
        AT_EASE, decode_tok_s=5.0, prefill_tok_s=1500.0, in_flight=2.9, idle_share=0.0
    )
    limit = bottleneck(heavy)
    assert limit.name == "prefill budget"
    assert (
        "300 prompt tokens are computed for each one of output; 2.9 requests at a time share"
        in limit.evidence
    )
    for changes in ({"idle_share": 0.4}, {"idle_share": None}, {"in_flight": 1.0}, {"decode_tok_s": 50.0}):
        assert bottleneck(dataclasses.replace(heavy, **changes)).name != "prefill budget"


def test_gpus_that_may_take_turns_are_not_called_idle():
    halves = dataclasses.replace(AT_EASE, util=0.5, util_together=1.0)
    assert bottleneck(halves).name is None
    assert bottleneck(dataclasses.replace(halves, util_together=0.6)).name == NOTHING


def test_a_total_that_no_longer_grows_is_never_called_at_ease():
    limit = bottleneck(AT_EASE, [dataclasses.replace(SMALLER, decode_tok_s=390.0)])
    assert (limit.name, limit.evidence[:40]) == (None, "cannot be told: no series is full; each ")


def test_the_series_of_a_session_lead_to_the_verdict_of_its_row():
    def frames(reasons: list[str], mem_util: float) -> list[Frame]:
        made: list[Frame] = [Level(t=0.0, level=0, agents=2, t_end=101.0)]
        for second in range(102):
            t = second + 0.5
            made.append(LoadSample(t=t, engine=URL, profile="human", target=2, active=2))
            made.append(
                EngineSample(
                    t=t,
                    engine=URL,
                    url=URL,
                    name="vLLM",
                    state="ok",
                    waiting=0,
                    running=2,
                    kv_used_fraction=0.3,
                )
            )
            made.append(HostSample(t=t, cpu_fraction=0.05))
            made.append(
                GpuSample(
                    t=t,
                    gpu="g",
                    index=0,
                    vendor="v",
                    name="n",
                    util_fraction=0.9,
                    mem_util_fraction=mem_util,
                    throttle=reasons if second % 2 else [],
                )
            )
        for number in range(10):
            for agent, offset in (("a1", 0.5), ("a2", 1.5)):
                sent = number * 10 + offset
                made.append(
                    turn(sent=sent, first=sent + 0.5, tokens=100, rate=20.0, agent=agent, number=number + 1)
                )
        return sorted(made, key=lambda frame: frame.t)

    (row,) = rows_of(of_frames(session(), frames([], 0.5)))
    assert row.bottleneck == NOTHING
    (row,) = rows_of(of_frames(session(), frames([], 0.9)))
    assert row.bottleneck == "decode bandwidth"
    (row,) = rows_of(of_frames(session(), frames(["thermal (hw)"], 0.9)))
    assert (row.bottleneck, row.gpu_throttled_fraction) == ("thermal throttle", pytest.approx(0.5, abs=0.02))
    assert row.bottleneck_evidence is not None
    assert "also decode bandwidth" in row.bottleneck_evidence
    (row,) = rows_of(of_frames(session(), frames(["user clocks"], 0.5)))
    assert row.bottleneck == NOTHING


def test_requests_that_wait_in_a_queue_wait_for_prefill_only_where_prompts_are_the_work():
    few = dataclasses.replace(SMALLER, slots_total=None)
    queued = {
        "prefill_share": 0.8,
        "prefilling": 5.0,
        "wait_s": 9.0,
        "waiting_share": 1.0,
        "slots_total": None,
    }
    limit = bottleneck(dataclasses.replace(AT_EASE, **queued), [few])
    assert limit.name == "admission queue"
    assert "prefill" not in limit.evidence
    prompts = {**queued, "decode_tok_s": 5.0}
    assert bottleneck(dataclasses.replace(AT_EASE, **prompts), [few]).name == "prefill budget"
