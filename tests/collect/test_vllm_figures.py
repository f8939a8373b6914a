"""Everything a vLLM server tells, by its captured and hand-made replies, through the whole adapter."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agenttop.collect.engine.kind import Circumstances
from agenttop.collect.engine.kinds.vllm.metrics import Figures, read
from agenttop.collect.engine.kinds.vllm.stillness import DECODING_S, PREFILLING_S, Stillness
from agenttop.collect.process import Command, ServerProcess
from agenttop.model.frames import LatencySample
from tests.collect import imitations as imitate
from tests.collect import samples
from tests.collect.scripted import Played

IDLE = samples.body("vllm/metrics.txt").decode()
V0 = samples.body("vllm/handmade/v0.txt").decode()
RUST = samples.body("vllm/handmade/rust.txt").decode()
LABEL = 'engine="0",model_name="tiny"'
SERIES = {
    name: samples.series(f"vllm/{name}/metrics.jsonl.gz")
    for name in ("load10-preempt", "load8-bigkv", "dp2/load8")
}


def started(*words: str) -> Circumstances:
    return Circumstances(process=ServerProcess(pid=7, command=Command(["vllm", "serve", "m", *words])))


def play(seen: Circumstances | None = None, **routes: Any) -> Played:
    return Played("vLLM", imitate.VLLM | {f"/{name}": body for name, body in routes.items()}, seen)


def figures(text: str, at: float = 0.0) -> Figures:
    found = read(text, at)
    assert found is not None
    return found


def with_value(text: str, name: str, value: float, labels: str = LABEL) -> str:
    """The same page with another value of one sample."""
    made, count = re.subn(
        rf"^(vllm:{name}{{{re.escape(labels)}}}) \S+", rf"\g<1> {value}", text, flags=re.MULTILINE
    )
    assert count == 1, name
    return made


@pytest.mark.parametrize(
    "name", ["metrics.txt", "auth/metrics.txt", "dp2/metrics.txt", "dp2/idle.txt", "load10-preempt/after.txt"]
)
async def test_every_capture_as_it_is_shown(name: str) -> None:
    async with play(metrics=samples.body(f"vllm/{name}").decode()) as server:
        first = await server.look()
        second = await server.look()
    sample = second.sample
    assert (sample.state, sample.model, sample.running, sample.waiting) == ("ok", "tiny", 0, 0)
    assert (sample.decode_tok_s, sample.prefill_tok_s, sample.per_sequence_tok_s) == (0.0, 0.0, None)
    assert (sample.kv_dtype, sample.waiting_reasons, sample.drafted_tokens_total) == ("auto", {}, None)
    assert sample.finished_total == sum(sample.finish_reasons.values())
    assert set(sample.finish_reasons) == {"stop", "length", "abort", "error", "repetition"}
    assert first.latencies == []
    assert [each.count for each in second.latencies] == [0] * 6
    ranks = [part.part for part in second.parts]
    assert ranks == (["0", "1"] if "dp2" in name else [])


async def test_latencies_over_a_captured_run() -> None:
    """What the server's own sums and counts say of the run, to the last digit."""
    async with play() as server:
        readings = await server.looks(SERIES["load10-preempt"])
    told: dict[str, LatencySample] = {}
    for reading in readings:
        told |= {each.measure: each for each in reading.latencies}
    assert set(told) == {"ttft", "itl", "e2e", "queue", "prefill", "decode"}
    first = figures(SERIES["load10-preempt"][0][1].decode()).histograms["itl"]
    itl = told["itl"]
    last = next(
        figures(body.decode()).histograms["itl"] for at, body in SERIES["load10-preempt"] if at == itl.t
    )
    assert itl.count == last.count - first.count > 100
    assert itl.mean_s == pytest.approx((last.total_s - first.total_s) / itl.count)  # type: ignore[operator]
    assert itl.p50_s is None or itl.p50_s <= (itl.p90_s or 0) <= (itl.p99_s or 0)
    assert 0 < itl.window_s <= 62


async def test_an_average_over_the_sequences_that_ran() -> None:
    async with play() as server:
        readings = await server.looks(SERIES["load10-preempt"])
    rated = [reading.sample for reading in readings if reading.sample.per_sequence_tok_s]
    assert len(rated) > 3
    for sample in rated:
        assert sample.decode_tok_s is not None
        assert sample.per_sequence_of is not None
        assert sample.per_sequence_tok_s == pytest.approx(sample.decode_tok_s / sample.per_sequence_of)
        assert 1 <= sample.per_sequence_of <= 6  # --max-num-seqs of that run


async def test_ranks_by_themselves_and_summed() -> None:
    async with play() as server:
        readings = await server.looks(SERIES["dp2/load8"])
    for reading in readings:
        sample, ranks = reading.sample, reading.parts
        assert [(part.part, part.role) for part in ranks] == [("0", "rank"), ("1", "rank")]
        assert sum(part.running or 0 for part in ranks) == sample.running
        assert sum(part.kv_used_tokens or 0 for part in ranks) == pytest.approx(sample.kv_used_tokens, abs=1)
        assert max(part.kv_used_fraction or 0 for part in ranks) == sample.kv_fullest_fraction
        assert {part.kv_pool_tokens for part in ranks} == {63 * 32}
        rates = [part.decode_tok_s for part in ranks]
        if sample.decode_tok_s is None:
            assert rates == [None, None]
        else:
            assert sum(rate or 0 for rate in rates) == pytest.approx(sample.decode_tok_s)


async def test_what_the_command_line_tells() -> None:
    words = ["--max-num-seqs", "6", "--quantization=awq", "--kv-cache-dtype", "fp8"]
    async with play(started(*words)) as server:
        sample = (await server.look()).sample
        shared = (await server.look(metrics=samples.body("vllm/dp2/metrics.txt").decode())).sample
    assert (sample.sequences_max, sample.quantisation, sample.pid) == (6, "awq", 7)
    assert sample.kv_dtype == "auto"  # what the server says it made of it
    assert shared.sequences_max == 12  # each rank has its own


@pytest.mark.parametrize(
    ("seen", "why"),
    [
        (None, "cannot be seen"),
        (started(), "leaves it to"),
        (Circumstances(process=ServerProcess(pid=1, command=Command(["docker-proxy"]))), "cannot be seen"),
        (
            Circumstances(process=ServerProcess(pid=1, command=Command(["VLLM::APIServer_1"]))),
            "cannot be seen",
        ),
    ],
)
async def test_what_it_does_not_tell_says_why(seen: Circumstances | None, why: str) -> None:
    async with play(seen) as server:
        reading = await server.look()
        told = server.why(reading)
    assert (reading.sample.sequences_max, reading.sample.quantisation) == (None, None)
    assert why in (told["sequences_max"] or "")
    assert why in (told["quantisation"] or "")


async def test_v0_as_it_is_shown() -> None:
    more = with_value(V0, "generation_tokens_total", 5100, 'model_name="tiny"')
    async with play(metrics=V0) as server:
        await server.look()
        reading = await server.look(metrics=more)
        told = server.why(reading)
    sample = reading.sample
    assert (sample.running, sample.waiting, sample.waiting_reasons) == (5, 5, {"swapped": 2})
    assert (sample.kv_pool_tokens, sample.kv_used_tokens, sample.kv_used_fraction) == (32_000, 30_000, 0.9375)
    assert (sample.prefix_hit_fraction, sample.draft_acceptance) == (None, 0.71)  # -1 stands for not known
    assert (sample.decode_tok_s, sample.per_sequence_tok_s, sample.per_sequence_of) == (300.0, 60.0, 5.0)
    assert sample.finish_reasons == {"stop": 21, "length": 4, "abort": 1}
    assert (sample.finished_total, sample.preemptions_total, sample.data_parallel) == (26, 7, None)
    assert "0.9.2" not in (told["cached_tokens_total"] or "")
    assert "prefix_queries_tokens_total" in told
    known = V0.replace(
        'gpu_prefix_cache_hit_rate{model_name="tiny"} -1.0',
        'gpu_prefix_cache_hit_rate{model_name="tiny"} 0.4',
    )
    async with play(metrics=known) as server:
        assert (await server.look()).sample.prefix_hit_fraction == 0.4


async def test_v0_names_its_time_between_tokens_otherwise() -> None:
    later = V0.replace(
        'time_per_output_token_seconds_bucket{le="0.05",model_name="tiny"} 4000.0',
        'time_per_output_token_seconds_bucket{le="0.05",model_name="tiny"} 4069.0',
    )
    for edge in ("0.075", "0.1", "0.15", "0.2", "0.3", "0.4", "0.5", "0.75", "1.0", "2.5", "+Inf"):
        pattern = rf'(time_per_output_token_seconds_bucket{{le="{re.escape(edge)}",model_name="tiny"}}) (\S+)'
        later = re.sub(pattern, lambda match: f"{match[1]} {float(match[2]) + 100}", later)
    async with play(metrics=V0) as server:
        await server.look()
        reading = await server.look(5.5, metrics=later)
    itl = next(each for each in reading.latencies if each.measure == "itl")
    assert itl.count == 100
    assert itl.p50_s == pytest.approx(0.025 + 0.025 * 50 / 69)


async def test_the_rust_front_end_as_it_is_shown() -> None:
    more = with_value(RUST, "generation_tokens_total", 1400)
    async with play(started("--kv-cache-dtype", "fp8_e5m2"), metrics=RUST) as server:
        await server.look()
        reading = await server.look(metrics=more)
        told = server.why(reading)
    sample = reading.sample
    assert (sample.running, sample.waiting, sample.decode_tok_s) == (4, 3, 100.0)
    assert sample.waiting_reasons == {"capacity": 2, "deferred": 1}
    assert (sample.kv_used_fraction, sample.kv_pool_tokens, sample.kv_used_tokens) == (0.5, None, None)
    assert (sample.kv_dtype, sample.finish_reasons) == ("fp8_e5m2", {"stop": 3})
    assert "how large the pool is" in (told["kv_pool_tokens"] or "")
    assert "kv_dtype" not in told


async def test_several_api_servers_of_one_vllm() -> None:
    """Prometheus' mode for several processes: no process_*, no _created, the rest as ever."""
    lines = [line for line in IDLE.splitlines() if not re.match(r"(process|python)_|.*_created", line)]
    async with play(metrics="\n".join(lines)) as server:
        await server.look()
        reading = await server.look()
    assert (reading.sample.running, reading.sample.decode_tok_s, reading.events) == (0, 0.0, [])


async def test_speculation_over_the_window() -> None:
    def page(steps: int, drafted: int, accepted: int, output: int) -> str:
        names = {"drafts": steps, "draft_tokens": drafted, "accepted_tokens": accepted}
        lines = [f"vllm:spec_decode_num_{name}_total{{{LABEL}}} {value}" for name, value in names.items()]
        text = with_value(IDLE, "generation_tokens_total", output)
        return with_value(text, "num_requests_running", 2) + "\n".join(lines) + "\n"

    async with play(metrics=page(1000, 3000, 100, 1100)) as server:
        first = await server.look()
        second = await server.look(2.0, metrics=page(1050, 3150, 190, 1240))
        told = server.why(second)
    assert (first.sample.draft_acceptance, first.sample.tokens_per_step) == (None, None)
    sample = second.sample
    assert (sample.drafted_tokens_total, sample.accepted_tokens_total) == (3150, 190)
    assert sample.draft_acceptance == pytest.approx(90 / 150)  # of the window, not since the start
    assert sample.tokens_per_step == pytest.approx(1 + 90 / 50)
    assert (sample.decode_tok_s, sample.per_sequence_tok_s) == (140.0, 70.0)
    assert not {"draft_acceptance", "drafted_tokens_total"} & set(told)


async def test_gauges_that_stand_still_are_not_shown_as_live() -> None:
    """All requests were given up at once: the gauges stay, and nothing is generated any more."""
    busy = with_value(with_value(IDLE, "num_requests_running", 6), "kv_cache_usage_perc", 0.7)
    busy = with_value(busy, "time_to_first_token_seconds_count", 6)
    async with play(metrics=busy) as server:
        before = [await server.look(float(second)) for second in range(int(DECODING_S))]
        after = [await server.look(DECODING_S + second) for second in range(1, 5)]
        told = server.why(after[-1])
        again = await server.look(metrics=with_value(busy, "generation_tokens_total", 40))
    assert all(reading.sample.running == 6 for reading in before)
    assert {reading.sample.running for reading in after} == {None}
    assert {reading.sample.kv_used_fraction for reading in after} == {None}
    events = [event for reading in [*before, *after, again] for event in reading.events]
    assert [event.event for event in events] == ["engine.frozen"]
    assert "6 requests run" in events[0].text
    assert "generates nothing" in (told["running"] or "")
    assert (again.sample.running, again.sample.kv_used_fraction) == (6, 0.7)


def test_a_long_prefill_is_not_stillness() -> None:
    working = figures(with_value(IDLE, "num_requests_running", 1))
    still = Stillness()

    def at(second: float, prefilling: bool) -> float | None:
        import msgspec

        return still.look(msgspec.structs.replace(working, at=second), prefilling)

    assert at(0.0, True) is None
    assert at(PREFILLING_S - 1, True) is None
    assert at(PREFILLING_S, True) == PREFILLING_S
    still = Stillness()
    assert [at(0.0, False), at(DECODING_S, False)] == [None, DECODING_S]


# Whatever a server sends

_LINES = [line for line in SERIES["dp2/load8"][-1][1].decode().splitlines() if line.startswith("vllm:")]
_VALUES = st.sampled_from(
    ["NaN", "+Inf", "-Inf", "-1", "-0.39", "1e300", "1e17", "0", "7", "", "abc", "0x1", "１"]
)


@given(
    changes=st.lists(st.tuples(st.integers(0, len(_LINES) - 1), _VALUES), max_size=40),
    dropped=st.sets(st.integers(0, len(_LINES) - 1), max_size=60),
    twice=st.lists(st.integers(0, len(_LINES) - 1), max_size=5),
)
@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
async def test_no_mutated_page_reaches_a_frame_as_nonsense(
    changes: list[tuple[int, str]], dropped: set[int], twice: list[int]
) -> None:
    lines = list(_LINES)
    for index, value in changes:
        lines[index] = f"{lines[index].rpartition(' ')[0]} {value}"
    kept = [line for index, line in enumerate(lines) if index not in dropped]
    mutated = "\n".join([*kept, *(lines[index] for index in twice)])
    whole = [(at, body.decode()) for at, body in SERIES["dp2/load8"][:3]]
    async with play() as server:
        for number, body in enumerate([whole[0][1], mutated, whole[1][1], mutated, mutated, whole[2][1]]):
            await server.survives(2.0 * number, metrics=body)


@given(st.binary(max_size=400), st.integers(0, 60_000))
@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
async def test_no_broken_bytes_reach_a_frame(junk: bytes, cut: int) -> None:
    page = SERIES["load10-preempt"][3][1]
    async with play() as server:
        for number, body in enumerate([page, page[:cut] + junk + page[cut:], page[:cut], junk, page]):
            await server.survives(2.0 * number, metrics=body.decode("utf-8", "replace"))
        await server.survives(99.0, **{"v1/models": junk.decode("latin-1")}, version=junk.decode("latin-1"))


@pytest.mark.parametrize("value", ["NaN", "-5", "1e300", "+Inf", "18446744073709551615"])
async def test_every_value_at_once(value: str) -> None:
    page = re.sub(r"^(vllm:.*) \S+$", rf"\1 {value}", SERIES["dp2/load8"][-1][1].decode(), flags=re.MULTILINE)
    async with play() as server:
        for number, body in enumerate([page, page, SERIES["dp2/load8"][0][1].decode(), page]):
            await server.survives(2.0 * number, metrics=body)


async def test_labels_are_cleaned_and_many_of_them_cut() -> None:
    evil = "".join(
        f'vllm:request_success_total{{{LABEL},finished_reason="r{n}\x1b[2J"}} 1\n' for n in range(500)
    )
    ranks = "".join(
        f'vllm:num_requests_running{{engine="\x1b{n}",model_name="\x07m"}} 1\n' for n in range(2000)
    )
    async with play() as server:
        reading = await server.look(metrics=IDLE + evil + ranks)
    assert len(reading.sample.finish_reasons) < 40
    assert len(reading.parts) <= 256


async def test_a_rank_that_is_missing_from_some_looks_is_no_restart_and_no_burst() -> None:
    page = samples.body("vllm/dp2/metrics.txt").decode()
    alone = "\n".join(line for line in page.splitlines() if 'engine="1"' not in line)
    counter = "generation_tokens_total"
    async with play() as vllm:
        for step in range(12):
            whole = step % 4 < 2
            text = page if whole else alone
            text = with_value(text, counter, 5000.0 + 100 * step, 'engine="0",model_name="tiny"')
            if whole:
                text = with_value(text, counter, 9000.0 + 100 * step, 'engine="1",model_name="tiny"')
            reading = await vllm.look(float(step), metrics=text)
            assert reading.events == []
            rate = reading.sample.decode_tok_s
            assert rate in (None, pytest.approx(200.0 if whole else 100.0))
