"""What is read of vLLM's /metrics: captured replies over time, versions, and values that cannot be."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from itertools import pairwise

import pytest

from agenttop.collect.engine.counters import WINDOW_S, CounterWindow, LandingRate
from agenttop.collect.engine.kinds.vllm.metrics import Figures, read, read_ray
from agenttop.collect.engine.preemption import AGAIN_S, PreemptionWatch
from agenttop.collect.engine.served import Prefilling
from agenttop.model.frames import Event
from agenttop.wire.prometheus import parse
from tests.collect import samples

IDLE = samples.body("vllm/metrics.txt").decode()
DP2 = samples.body("vllm/dp2/metrics.txt").decode()
AFTER = samples.body("vllm/load10-preempt/after.txt").decode()
SERIES = {
    name: samples.series(f"vllm/{name}/metrics.jsonl.gz")
    for name in ("load10-preempt", "load8-bigkv", "dp2/load8")
}


def figures(text: str, at: float = 0.0) -> Figures:
    found = read(text, at)
    assert found is not None
    return found


def looks(name: str) -> Iterator[Figures]:
    for at, body in SERIES[name]:
        yield figures(body.decode(), at)


def summed(body: bytes, name: str) -> float:
    """By hand: the values at the ends of the lines that begin with this name and a brace."""
    return sum(
        float(value) for value in re.findall(rf"^vllm:{name}{{.*}} (\S+)$", body.decode(), re.MULTILINE)
    )


def without(text: str, *names: str) -> str:
    """A version of vLLM that does not have these samples."""
    return "\n".join(
        line
        for line in text.splitlines()
        if not any(re.match(rf"(ray_)?vllm[:_]{name}\b", line) for name in names)
    )


def test_an_idle_server() -> None:
    found = figures(IDLE)
    assert (found.model, found.asleep, found.running, found.waiting) == ("tiny", False, 0, 0)
    assert (found.output, found.prompt, found.cached, found.preemptions) == (0, 0, 0, 0)
    assert found.process == 1796060333.1
    assert found.prefix_caching is True


def test_the_pool_without_its_reserved_block() -> None:
    """Usage is in thirty-firsts with 32 blocks of 32 tokens: one is never handed out."""
    assert (figures(IDLE).pool.tokens, figures(IDLE).pool.used) == (4095 * 128, 0)
    for found in looks("load10-preempt"):
        assert found.pool.tokens == 31 * 32
        assert found.pool.used is not None
        assert found.pool.used % 32 == 0
        assert found.pool.fraction == pytest.approx(found.pool.used / (31 * 32))
    assert max(found.pool.used or 0 for found in looks("load10-preempt")) == 29 * 32


def test_data_parallel_engines_are_added_up_and_their_pools_kept_apart() -> None:
    """Both repeat the number of blocks of both: 128 for 64 each."""
    for (at, body), found in zip(SERIES["dp2/load8"], looks("dp2/load8"), strict=True):
        assert found.at == at
        assert found.running == summed(body, "num_requests_running")
        assert found.output == summed(body, "generation_tokens_total")
        each = re.findall(r"^vllm:kv_cache_usage_perc{.*} (\S+)$", body.decode(), re.MULTILINE)
        shares = [float(share) for share in each]
        assert found.pool.engines == len(shares) == 2
        assert found.pool.tokens == 2 * 63 * 32
        assert found.pool.fullest_fraction == max(shares)
        assert found.pool.fraction == pytest.approx(sum(shares) / 2)
        assert found.pool.used == pytest.approx(sum(shares) * 63 * 32, abs=1)


@pytest.mark.parametrize("name", SERIES)
def test_decode_rates_over_a_captured_run(name: str) -> None:
    window = CounterWindow()
    raw = [(at, summed(body, "generation_tokens_total")) for at, body in SERIES[name]]
    rated = 0
    for number, found in enumerate(looks(name)):
        assert not window.add(found.at, found.counters)
        now, total = raw[number]
        # The newest look at least a window old, or the first one.
        begin = max([look for look in raw[: number + 1] if look[0] <= now - WINDOW_S] or raw[:1])
        rate = window.rate("output")
        if rate is not None:
            rated += 1
            assert window.span_s == pytest.approx(now - begin[0])
            assert rate == pytest.approx((total - begin[1]) / (now - begin[0]))
    assert rated >= 5


@pytest.mark.parametrize("name", SERIES)
def test_all_prompt_tokens_of_a_captured_run_are_in_the_rate(name: str) -> None:
    """What the rates say times how long they stood is what the engine counted."""
    rate, prefills = LandingRate(window_s=1e-9), Prefilling()
    told = 0.0
    found = list(looks(name))
    for before, now in pairwise([None, *found]):
        rate.add(
            now.at, now.computed, prefills.update(now.running, now.waiting, now.first_tokens, now.finished)
        )
        if before is not None and now.computed > before.computed:
            told += (rate.rate() or 0.0) * (now.at - before.at)
    assert told == pytest.approx(found[-1].computed - found[0].computed, rel=0.01)


def preempted(name: str) -> list[Event]:
    watch = PreemptionWatch("vLLM", "http://127.0.0.1:8000")
    events: list[Event] = []
    for found in looks(name):
        events += watch.look(
            found.at,
            running=found.running,
            waiting=found.waiting,
            finished=found.finished,
            preemptions=found.preemptions,
            kv_fraction=found.pool.fullest_fraction,
        )
    return events


def test_preemption_is_hinted_at_seconds_before_the_counter_moves() -> None:
    hint, counted = preempted("load10-preempt")
    moved = next(found.at for found in looks("load10-preempt") if found.preemptions)
    assert (hint.event, counted.event) == ("engine.preempting", "engine.preempted")
    assert hint.t < counted.t - 3
    assert counted.t == moved
    assert "running fell from 6 to 4 while waiting rose from 4 to 6" in hint.text
    assert "4 requests" in counted.text


@pytest.mark.parametrize("name", ["load8-bigkv", "dp2/load8"])
def test_no_preemption_is_seen_where_there_was_none(name: str) -> None:
    assert preempted(name) == []


def test_requests_that_end_or_are_given_up_are_no_preemption() -> None:
    def look(
        watch: PreemptionWatch, t: float, running: int, waiting: int, finished: int, kv: float
    ) -> list[Event]:
        return watch.look(
            t, running=running, waiting=waiting, finished=finished, preemptions=0, kv_fraction=kv
        )

    ended = PreemptionWatch("vLLM", "u")
    assert look(ended, 0.0, 6, 4, 0, 0.9) + look(ended, 1.0, 4, 6, 2, 0.9) == []
    given_up = PreemptionWatch("vLLM", "u")
    assert look(given_up, 0.0, 6, 4, 0, 0.2) + look(given_up, 1.0, 4, 6, 0, 0.2) == []
    pushed_out = PreemptionWatch("vLLM", "u")
    told = [
        event for second in range(100) for event in look(pushed_out, second, 50 - second % 40, second, 0, 0.9)
    ]
    assert [event.t for event in told] == [1.0, 1.0 + AGAIN_S]


def test_the_prompt_tokens_computed_by_the_best_account_of_each_version() -> None:
    text = AFTER
    assert figures(text).computed == figures(text).prompt == 967
    label = '{engine="0",model_name="tiny"}'
    lines = {
        'source="local_compute"} 967.0': 'source="local_compute"} 600.0',
        'source="local_cache_hit"} 0.0': 'source="local_cache_hit"} 367.0',
        f"prompt_tokens_cached_total{label} 0.0": f"prompt_tokens_cached_total{label} 367.0",
        f"prefix_cache_hits_total{label} 0.0": f"prefix_cache_hits_total{label} 367.0",
    }
    for old, new in lines.items():
        assert old in text
        text = text.replace(old, new, 1)
    newest = figures(text)
    assert (newest.computed, newest.cached, newest.prompt) == (600, 367, 967)
    older = figures(without(text, "prompt_tokens_by_source_total", "prompt_tokens_cached_total"))
    assert (older.computed, older.cached) == (600, 367)
    oldest = figures(
        without(
            text, "prompt_tokens_by_source_total", "prompt_tokens_cached_total", "prefix_cache_hits_total"
        )
    )
    assert (oldest.computed, oldest.cached) == (967, None)


def test_older_names_and_other_prefixes() -> None:
    old = IDLE.replace("vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc").replace(
        "vllm:prefix_cache_", "vllm:gpu_prefix_cache_"
    )
    assert (figures(old).pool.fraction, figures(old).prefix_queries) == (0.0, 0)
    assert figures(IDLE.replace("vllm:", "vllm_")).model == "tiny"
    for prefix in ("ray_vllm_", "ray_vllm:"):
        ray = IDLE.replace("vllm:", prefix)
        assert read(ray, 0.0) is None  # that is for Ray's own kind to tell
        found = read_ray(ray, 0.0)
        assert found is not None
        assert found.model == "tiny"


def test_a_front_end_that_does_not_tell_the_pool() -> None:
    """The Rust one has no cache_config_info, no sleep state and no process start."""
    found = figures(
        without(IDLE, "cache_config_info", "engine_sleep_state").replace("process_start", "no_start")
    )
    assert (found.pool.tokens, found.pool.used, found.pool.fraction) == (None, None, 0.0)
    assert (found.process, found.asleep, found.prefix_caching) == (None, False, None)


def test_statistics_that_are_off_are_no_zeros() -> None:
    off = "\n".join(line for line in IDLE.splitlines() if "vllm" not in line)
    assert "process_start_time_seconds" in off
    assert read(off, 0.0) is None
    assert read("", 0.0) is None
    assert read("<html>503</html>", 0.0) is None


def test_a_sleeping_engine() -> None:
    awake = 'sleep_state="awake"} 1.0'
    assert figures(IDLE.replace(awake, 'sleep_state="awake"} 0.0')).asleep


@pytest.mark.parametrize("value", ["NaN", "+Inf", "-3", "1e300"])
def test_values_that_cannot_be_are_not_shown(value: str) -> None:
    names = (
        "num_requests_running",
        "generation_tokens_total",
        "kv_cache_usage_perc",
        "num_preemptions_total",
    )
    text = IDLE
    for name in names:
        text = re.sub(rf"^(vllm:{name}{{[^}}]*}}) \S+", rf"\1 {value}", text, flags=re.MULTILINE)
    found = figures(text)
    assert (found.running, found.output, found.preemptions) == (None, None, None)
    assert found.pool.fraction in (None, 0.0)  # forks report shares below zero


@pytest.mark.parametrize(
    "label", ['num_gpu_blocks="None"', 'num_gpu_blocks="-4"', 'num_gpu_blocks="9e99"', 'num_gpu_blocks=""']
)
def test_a_pool_of_unknown_blocks(label: str) -> None:
    text = re.sub(r'num_gpu_blocks="\d+"', label, IDLE)
    assert figures(text).pool.tokens == 524_288
    assert figures(text.replace('kv_cache_size_tokens="524288"', "")).pool.tokens is None


def test_a_hybrid_models_pool_is_what_the_engine_says_and_not_blocks_times_size() -> None:
    text = IDLE.replace('kv_cache_size_tokens="524288"', 'kv_cache_size_tokens="1000000"')
    assert figures(text).pool.tokens == pytest.approx(1_000_000 * 4095 / 4096, abs=1)


def test_a_scrape_costs_little() -> None:
    """Reading what is needed is cheaper than reading all: ratios of one run, so that no machine fails it."""

    def best(work: object) -> float:
        times = []
        for _ in range(5):
            begun = time.perf_counter()
            work()  # type: ignore[operator]
            times.append(time.perf_counter() - begun)
        return min(times)

    assert best(lambda: read(IDLE, 0.0)) < 0.8 * best(lambda: parse(IDLE))
