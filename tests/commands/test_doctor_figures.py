"""Every figure of every engine has a value or a reason; no reply leaves one out without a word."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from agenttop.collect.engine.base import EngineReading, UnrecognisedError
from agenttop.collect.engine.recognise import recognise
from agenttop.commands.doctor_figures import (
    FIGURES,
    MISSING,
    NO_REASON,
    QUIET,
    SEEN,
    UNEXPLAINED,
    Row,
    Seen,
    rows,
    unread,
)
from agenttop.model.frames import EngineSample, LatencySample, Missing, SlotSample
from tests.collect import imitations as imitate
from tests.collect import samples

URL = "http://127.0.0.1:8000"


def sample(**figures: Any) -> EngineSample:
    return EngineSample(t=1.0, engine=URL, url=URL, name="vLLM", state="ok", **figures)


def missing(field: str, why: str = "it does not tell", fix: str | None = None) -> Missing:
    return Missing(t=1.0, what=f"{URL}:{field}", why=why, fix=fix)


def by_name(seen: Seen) -> dict[str, Row]:
    return {row.figure: row for row in rows(seen)}


def test_every_figure_has_a_row_whatever_is_known() -> None:
    for seen in (Seen(sample=sample()), Seen(sample=sample(running=3))):
        found = rows(seen)
        assert [row.figure for row in found] == [figure.name for figure in FIGURES]
        assert all(row.text for row in found)


def test_a_figure_that_is_left_out_without_a_word_is_a_mistake() -> None:
    found = by_name(Seen(sample=sample(running=1)))
    assert (found["preemptions"].status, found["preemptions"].text) == (UNEXPLAINED, NO_REASON)
    assert found["decode"].status == UNEXPLAINED  # a request runs
    assert found["TTFT"].status == QUIET  # a long request may have begun before the look
    idle = by_name(Seen(sample=sample(running=0)))
    assert idle["decode"].status == QUIET
    assert idle["preemptions"].status == UNEXPLAINED


def test_a_reason_comes_with_what_would_help() -> None:
    frames = [missing("preemptions_total", "its statistics are off", "start it without --disable-log-stats")]
    row = by_name(Seen(sample=sample(), missing=frames))["preemptions"]
    assert row.status == MISSING
    assert (row.text, row.fix) == ("its statistics are off", "start it without --disable-log-stats")


def test_values_with_their_window() -> None:
    seen = Seen(
        sample=sample(
            decode_tok_s=51.5,
            decode_is_floor=True,
            window_s=3.0,
            running=2,
            sequences_max=6,
            kv_pool_tokens=1000,
            kv_layout="paged",
            kv_used_fraction=0.25,
            per_sequence_tok_s=25.0,
            per_sequence_of=2.0,
            finish_reasons={"stop": 3, "length": 9},
            prefix_hits_tokens_total=30,
            prefix_queries_tokens_total=40,
        ),
        latencies=[
            LatencySample(
                t=1.0, engine=URL, measure="ttft", window_s=60.0, count=4, mean_s=0.02, p50_s=0.015
            ),
            LatencySample(t=1.0, engine=URL, measure="itl", window_s=60.0, count=4, below_s=0.01),
        ],
    )
    found = by_name(seen)
    assert all(
        found[name].status == SEEN for name in ("decode", "slots", "KV pool", "TTFT", "time per token")
    )
    assert found["decode"].text == "at least 51.5 tok/s over 3.0 s"
    assert found["slots"].text == "6 requests at once"
    assert found["KV pool"].text == "1000 tokens, paged"
    assert found["rate per request"].text == "25.0 tok/s, average over 2.0 requests"
    assert found["TTFT"].text == "p50 15 ms, mean 20 ms of 4 over 60 s"
    assert found["time per token"].text.startswith("p50 below 10 ms")
    assert found["finish reasons"].text == "length 9, stop 3 since its start"
    assert found["prefix cache"].text == "75 % of 40 tokens looked up since its start"
    assert found["decode"].value == 51.5


def test_the_last_request_is_named_as_such() -> None:
    row = by_name(Seen(sample=sample(last_decode_tok_s=12.0)))["decode"]
    assert (row.status, row.text) == (SEEN, "12.0 tok/s in the last request")


def test_rates_slot_by_slot() -> None:
    slots = [SlotSample(t=1.0, engine=URL, slot=0, phase="decode", decode_tok_s=30.0)]
    row = by_name(Seen(sample=sample(running=1), slots=slots))["rate per request"]
    assert row.text == "30.0 tok/s, slot by slot"


def test_of_an_engine_that_sleeps_nothing_is_a_mistake() -> None:
    asleep = EngineSample(t=1.0, engine=URL, url=URL, name="vLLM", state="asleep")
    assert UNEXPLAINED not in {row.status for row in rows(Seen(sample=asleep))}


def test_what_is_said_beyond_the_figures_is_kept() -> None:
    frames = [missing("sleep", "watching keeps it awake"), missing("decode_tok_s"), missing("ttft")]
    assert [frame.what for frame in unread(frames)] == [f"{URL}:sleep"]


class Time:
    """A second for every look."""

    now = 1000.0

    def __call__(self) -> float:
        return self.now


async def looked_at(routes: Mapping[str, Any], looks: int = 4) -> EngineReading:
    time = Time()
    server = "llama.cpp" if "/slots" in routes else "uvicorn"
    with imitate.serves(routes, server=server) as host:
        adapter = await recognise(host.url, now=time)
        for _ in range(looks):
            time.now += 1.0
            reading = await adapter.poll()
        await adapter.client.close()
    return reading


LLAMA = {
    f"/{name}": samples.body(f"llamacpp/b11434/idle/{name}.txt") for name in ("props", "slots", "metrics")
}
IMITATIONS = {
    "LLAMA": LLAMA,
    "LLAMA_WITHOUT_METRICS": {**LLAMA, "/metrics": (501, {"error": {"code": 501}})},
    "LLAMA_WITHOUT_SLOTS": {**LLAMA, "/slots": (501, {"error": {"code": 501}}), "/health": {"status": "ok"}},
    "VLLM_WITHOUT_STATISTICS": {**imitate.VLLM, "/metrics": "# TYPE python_info gauge\npython_info 1\n"},
}
IMITATIONS |= {
    name: routes for name, routes in vars(imitate).items() if name.isupper() and isinstance(routes, dict)
}


@pytest.mark.parametrize("name", sorted(IMITATIONS))
async def test_no_engine_leaves_a_figure_out_without_a_word(name: str) -> None:
    try:
        reading = await looked_at(IMITATIONS[name])
    except UnrecognisedError:
        pytest.skip("it is named, and not read")
    seen = Seen(
        sample=reading.sample,
        slots=reading.slots,
        latencies=reading.latencies,
        parts=reading.parts,
        missing=reading.missing,
    )
    silent = {row.figure for row in rows(seen) if row.status == UNEXPLAINED}
    assert not silent, f"{reading.sample.name} says neither these nor why: {', '.join(sorted(silent))}"
