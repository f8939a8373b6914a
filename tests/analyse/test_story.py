"""What follows from several recordings, in words."""

from __future__ import annotations

from typing import Any

import msgspec

from agenttop.analyse.row import LevelRow
from agenttop.analyse.story import story


def level(host: str, agents: int, each: float, total: float, prefill: float, **more: Any) -> dict[str, Any]:
    known: dict[str, Any] = {
        "file": f"{host}.agenttop",
        "model": "Qwen3.5-9B",
        "profile": "human",
        "level": agents,
        "t_start": 0.0,
        "t_end": 900.0,
        "warm_up_s": 60.0,
        "window_s": 840.0,
        "valid": True,
        "preemptions": 0,
        "kv_max_fraction": 0.5,
    }
    figures = {"decode_tok_s_per_agent_p50": each, "decode_tok_s": total, "prefill_tok_s": prefill}
    row = LevelRow(host=host, agents=agents, **(known | figures | more))
    plain = msgspec.to_builtins(row)
    assert isinstance(plain, dict)
    return plain


HOSTS = [
    *[
        level("RTX 5090", n, each, total, 4000.0)
        for n, each, total in ((4, 45, 150), (8, 29, 205), (16, 15, 240))
    ],
    *[
        level("6000 Pro", n, each, total, 5480.0)
        for n, each, total in ((4, 54, 188), (8, 36, 256), (16, 22, 352))
    ],
    *[
        level("Strix Halo", n, each, total, 500.0)
        for n, each, total in ((4, 6, 19), (8, 3, 22), (16, 1.6, 24))
    ],
]


def test_it_says_who_falls_off_and_who_scales_without_the_reader_computing():
    told = "\n".join(story(HOSTS))
    assert "Strix Halo falls off quickest: it keeps 27 % of its rate per agent from 4 to 16 agents" in told
    assert "(RTX 5090 33 %, 6000 Pro 41 %)" in told
    assert "6000 Pro scales furthest: from 4 to 16 agents its total becomes 1.9 times as much" in told


def test_it_sets_each_against_the_first_with_ratios_over_all_levels():
    told = story(HOSTS)
    (line,) = [line for line in told if line.startswith("6000 Pro against RTX 5090")]
    assert "with 16 agents (over 4 to 16)" in line
    assert "+47 % decode per agent (+20 % to +47 %)" in line
    assert "+37 % prefill" in line
    (slow,) = [line for line in told if line.startswith("Strix Halo against RTX 5090")]
    assert "9.4 times less decode per agent (7.5 to 9.7 times)" in slow


def test_it_says_where_an_agent_becomes_too_slow_and_that_memory_would_not_help():
    told = "\n".join(story(HOSTS))
    assert "RTX 5090: the total still rises at 16 agents (205 to 240 tok/s from 8)" in told
    assert "RTX 5090: from 16 agents on each gets less than 20 tok/s (15.0): too slow for most work" in told
    assert "more memory would not carry more agents" in told
    assert "Strix Halo: an agent gets only 6.0 tok/s with 4 already" in told


def test_one_prefill_budget_is_named_with_the_wait_it_costs():
    rows = [
        level(
            "2x4090", n, 20, 6.4, prefill, wait_s_p50=wait, completions_per_min=done,
            bottleneck="prefill budget", bottleneck_evidence="proof",
        )
        for n, prefill, wait, done in ((3, 1481, 112, 1.54), (5, 1582, 168, 1.63), (9, 1572, 330, 1.52))
    ]  # fmt: skip
    told = "\n".join(story(rows))
    assert "one prefill budget of about 1.5k tok/s, which 3 to 9 agents divide and do not multiply" in told
    assert "the wait grows 2.9 times" in told
    assert "limit at 9: prefill budget (proof)" in told


def test_levels_that_cannot_be_judged_are_not_compared():
    rows = [level("a", 4, 50, 200, 10), level("b", 4, 50, 200, 10, valid=False, why_invalid="too short")]
    told = story(rows)
    assert "they have no level in common that can be judged, so they are not set against each other" in told
    assert "b: no level can be judged" in told


def test_different_models_or_profiles_are_said_first():
    rows = [level("a", 4, 50, 200, 10), level("b", 4, 25, 100, 10, model="other", profile="busy")]
    told = story(rows)
    assert told[0] == "they ran different models (Qwen3.5-9B, other): differences are not of the hosts alone"
    assert told[1].startswith("they ran different profiles (busy, human)")


def test_alike_is_said_as_such():
    rows = [level(host, n, 60 / n, 100.0 + n, 10) for host in ("a", "b") for n in (1, 2)]
    told = "\n".join(story(rows))
    assert "they fall off alike" in told
    assert "they scale alike" in told
    assert "the same decode per agent" in told


def test_two_files_of_one_host_are_told_apart_by_model_or_name():
    rows = [
        level("box", 4, 50, 200, 10, file="one.agenttop"),
        level("box", 4, 25, 100, 10, file="two.agenttop"),
    ]
    assert any(line.startswith("two against one") for line in story(rows))
    rows[1]["model"] = "big"
    assert any(line.startswith("box with big against box with Qwen3.5-9B") for line in story(rows))


def test_files_of_one_host_without_a_common_level_are_one_curve():
    rows = [
        level(
            "2x4090", n, 20, 6.4, prefill, file=f"{n}-slots", model=quant, wait_s_p50=wait,
            completions_per_min=done, bottleneck="prefill budget", bottleneck_evidence="proof",
        )
        for n, quant, prefill, wait, done in (
            (3, "Q8", 1481, 112, 1.54), (5, "Q6", 1582, 168, 1.63), (9, "Q4", 1572, 330, 1.52)
        )
    ]  # fmt: skip
    told = story(rows)
    assert told[0].startswith("they ran different models (Q4, Q6, Q8)")
    assert told[1].startswith(
        "2x4090, all files together: 5 agents are the soft ceiling: from 3 to 9 the total hardly moves"
    )
    assert "one prefill budget of about 1.5k tok/s" in told[2]


def test_nothing_is_said_of_nothing():
    assert story([]) == []
