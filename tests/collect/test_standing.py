"""States, events, restarts and reasons, look by look."""

from __future__ import annotations

from typing import Any

import msgspec

from agenttop.collect.engine.base import EngineReading
from agenttop.collect.engine.standing import Failure, Standing
from agenttop.collect.engine.steadiness import MANY, STEADY_S
from agenttop.model.frames import EngineSample, Event, LatencySample, Missing, PartSample, SlotSample

URL = "http://127.0.0.1:8080"


def good(t: float, state: str = "ok", **fields: Any) -> EngineReading:
    reading = {key: fields.pop(key, []) for key in ("missing", "events", "parts", "latencies")}
    known = {"name": "llama.cpp", "model": "m", "running": 2, "decode_tok_s": 50.0, "window_s": 3.0}
    sample = EngineSample(t=t, engine=URL, url=URL, state=state, **(known | fields))
    return EngineReading(sample=sample, slots=[SlotSample(t=t, engine=URL, slot=0, phase="idle")], **reading)


REFUSED = Failure(state="down", note=f"nothing listens at {URL}", name="llama.cpp", ended=True)
NETWORK = Failure(state="down", note=f"{URL} cannot be reached", name="llama.cpp")
STALLED = Failure(state="busy", note=f"{URL} takes connections and answers nothing", name="llama.cpp")
LOADING = Failure(state="loading", note="loading the model", name="llama.cpp")


def events(reading: EngineReading) -> list[str]:
    return [event.event for event in reading.events]


def test_before_the_first_answer() -> None:
    sample = Standing(URL).waiting(1.0).sample
    assert (sample.state, sample.name, sample.t) == ("starting", "unknown", 1.0)
    assert sample.note


def test_up_once_and_then_silence() -> None:
    standing = Standing(URL)
    first = standing.answered(1.0, good(0.9), reply_s=0.02)
    assert events(first) == ["engine.up"]
    assert first.events[0].text == f"llama.cpp at {URL} answers with m"
    assert first.sample.age_s is not None
    assert abs(first.sample.age_s - 0.1) < 1e-9
    assert (first.sample.t, first.sample.reply_s, first.slots[0].t) == (1.0, 0.02, 1.0)
    assert events(standing.answered(2.0, good(2.0), None)) == []


def test_late_figures_age_then_are_called_busy_and_their_rates_go() -> None:
    standing = Standing(URL)
    standing.answered(1.0, good(1.0), None)
    soon = standing.waiting(2.5)
    assert (soon.sample.state, soon.sample.age_s, soon.sample.decode_tok_s) == ("ok", 1.5, 50.0)
    assert soon.slots == []
    late = standing.waiting(5.0)
    assert (late.sample.state, late.sample.age_s, late.sample.running) == ("busy", 4.0, 2)
    assert (late.sample.decode_tok_s, late.sample.window_s) == (None, None)
    assert late.sample.note
    assert events(late) == ["engine.busy"]
    assert late.events[0].severity == "warn"
    stalled = standing.failed(11.0, STALLED)
    assert (stalled.sample.state, stalled.sample.age_s, events(stalled)) == ("busy", 10.0, [])
    assert stalled.sample.note == STALLED.note
    again = standing.answered(13.0, good(13.0), None)
    assert events(again) == ["engine.up"]
    assert "answers again, after 12 s" in again.events[0].text
    assert again.sample.restarts == 0


def test_refused_and_back_is_a_restart_counted_once() -> None:
    standing = Standing(URL)
    standing.answered(1.0, good(1.0), None)
    down = standing.failed(2.0, REFUSED)
    assert (down.sample.state, down.sample.running, down.sample.model) == ("down", None, "m")
    assert (events(down), down.events[0].severity) == (["engine.down"], "bad")
    assert events(standing.failed(3.0, REFUSED)) == []
    assert events(standing.failed(4.0, LOADING)) == ["engine.loading"]
    back = standing.answered(5.0, good(5.0), None)
    assert events(back) == ["engine.restart"]  # one change, one event
    assert "away for 4.0 s" in back.events[0].text
    assert back.sample.restarts == 1
    assert standing.answered(6.0, good(6.0), None).sample.restarts == 1


def test_a_network_that_went_away_is_no_restart() -> None:
    standing = Standing(URL)
    standing.answered(1.0, good(1.0), None)
    standing.failed(2.0, NETWORK)
    back = standing.answered(3.0, good(3.0), None)
    assert events(back) == ["engine.up"]
    assert back.sample.restarts == 0


def test_a_restart_the_adapter_saw() -> None:
    standing = Standing(URL)
    standing.answered(1.0, good(1.0), None)
    seen = Event(t=1.5, event="engine.restart", text="restarted", subject=URL)
    reading = standing.answered(2.0, good(2.0, events=[seen]), None)
    assert (events(reading), reading.sample.restarts, reading.events[0].t) == (["engine.restart"], 1, 2.0)


def test_loading_between_two_good_looks_is_a_restart() -> None:
    standing = Standing(URL)
    standing.answered(1.0, good(1.0), None)
    standing.answered(2.0, good(2.0, state="loading", running=None, decode_tok_s=None), None)
    back = standing.answered(3.0, good(3.0), None)
    assert back.sample.restarts == 1


def test_first_start_is_no_restart() -> None:
    standing = Standing(URL)
    standing.failed(1.0, REFUSED)
    standing.failed(2.0, LOADING)
    up = standing.answered(3.0, good(3.0), None)
    assert (events(up), up.sample.restarts) == (["engine.up"], 0)


def test_another_kind_of_engine_at_the_same_address() -> None:
    standing = Standing(URL)
    standing.answered(1.0, good(1.0), None)
    standing.failed(2.0, REFUSED)
    other = standing.answered(3.0, good(3.0, name="vLLM"), None)
    assert events(other) == ["engine.changed"]
    assert (other.sample.restarts, other.sample.name) == (0, "vLLM")


def test_asleep_and_awake() -> None:
    standing = Standing(URL)
    standing.answered(1.0, good(1.0), None)
    assert events(standing.answered(2.0, good(2.0, state="asleep", note="asleep"), None)) == ["engine.asleep"]
    awake = standing.answered(3.0, good(3.0), None)
    assert (events(awake), awake.sample.restarts) == (["engine.up"], 0)
    assert "is awake" in awake.events[0].text


def test_a_reason_is_sent_once_and_taken_back_once() -> None:
    def missing(what: str, why: str) -> Missing:
        return Missing(t=0.0, what=f"{URL}:{what}", why=why)

    standing = Standing(URL)
    first = standing.answered(
        1.0, good(1.0, missing=[missing("waiting", "off"), missing("version", "old")]), None
    )
    assert [frame.what for frame in first.missing] == [f"{URL}:waiting", f"{URL}:version"]
    assert {frame.t for frame in first.missing} == {1.0}
    same = [missing("waiting", "off"), missing("version", "old")]
    assert standing.answered(2.0, good(2.0, missing=same), None).missing == []
    # While it is down or asleep nothing comes back.
    assert standing.failed(3.0, REFUSED).missing == []
    assert standing.answered(4.0, good(4.0, state="asleep"), None).missing == []
    changed = standing.answered(5.0, good(5.0, missing=[missing("version", "older")]), None)
    assert changed.missing == [
        msgspec.structs.replace(missing("version", "older"), t=5.0),
        Missing(t=5.0, what=f"{URL}:waiting"),
    ]


def test_a_model_that_is_swapped_while_the_server_lives() -> None:
    standing = Standing(URL)
    standing.answered(1.0, good(1.0), None)
    swapped = standing.answered(2.0, good(2.0, model="other"), None)
    assert events(swapped) == ["engine.model"]
    assert swapped.events[0].text == f"llama.cpp at {URL} serves other now; it served m"
    assert swapped.sample.restarts == 0
    # None is no model: nothing is loaded for a while, then the same one again.
    assert events(standing.answered(3.0, good(3.0, model=None), None)) == []
    assert events(standing.answered(4.0, good(4.0, model="other"), None)) == []


def test_a_model_that_is_swapped_across_a_restart() -> None:
    standing = Standing(URL)
    standing.answered(1.0, good(1.0), None)
    standing.failed(2.0, REFUSED)
    back = standing.answered(3.0, good(3.0, model="other"), None)
    assert events(back) == ["engine.restart", "engine.model"]
    assert back.sample.model == "other"


def test_another_kind_of_engine_is_no_swap_of_models() -> None:
    standing = Standing(URL)
    standing.answered(1.0, good(1.0), None)
    assert events(standing.answered(2.0, good(2.0, name="vLLM", model="other"), None)) == ["engine.changed"]


def test_replies_that_take_long_are_busy_without_going_back_and_forth() -> None:
    standing = Standing(URL)
    standing.answered(1.0, good(1.0), 0.01, 1.0)
    seen = []
    for t in range(10, 60, 10):
        seen.append(standing.answered(float(t), good(float(t), missing=[]), 2.0, 10.0))
        seen += [standing.waiting(t + 1.0), standing.waiting(t + 5.0)]
    assert {reading.sample.state for reading in seen} == {"busy"}
    assert {reading.sample.poll_every_s for reading in seen} == {10.0}
    assert "asked every 10 s" in (seen[-1].sample.note or "")
    assert [name for reading in seen for name in events(reading)] == ["engine.busy"]
    fresh, soon, late = seen[-3:]
    assert (fresh.sample.decode_tok_s, soon.sample.decode_tok_s, late.sample.decode_tok_s) == (
        50.0,
        50.0,
        None,
    )
    assert (late.sample.age_s, late.sample.running) == (5.0, 2)
    back = standing.answered(60.0, good(60.0), 0.01, 1.0)
    assert (events(back), back.sample.state, back.sample.poll_every_s) == (["engine.up"], "ok", 1.0)


def test_reasons_are_told_while_it_is_busy_with_slow_replies() -> None:
    standing = Standing(URL)
    why = Missing(t=0.0, what=f"{URL}:waiting", why="off")
    assert standing.answered(1.0, good(1.0, missing=[why]), 2.0, 10.0).missing


def part(name: str, **fields: Any) -> PartSample:
    return PartSample(t=0.0, engine=URL, part=name, role="model", **fields)


def test_a_part_that_vanishes_is_gone_once() -> None:
    standing = Standing(URL)
    standing.answered(1.0, good(1.0, parts=[part("a", state="loaded"), part("b", state="loaded")]), None)
    reading = standing.answered(2.0, good(2.0, parts=[part("a", state="loaded")]), None)
    assert [(p.part, p.state, p.t) for p in reading.parts] == [("a", "loaded", 2.0), ("b", "gone", 2.0)]
    reading = standing.answered(3.0, good(3.0, parts=[part("a", state="loaded")]), None)
    assert [p.part for p in reading.parts] == ["a"]
    # Of an engine that is away nothing is said; what is not there when it is back is gone.
    assert standing.failed(4.0, REFUSED).parts == []
    reading = standing.answered(5.0, good(5.0, parts=[part("b")]), None)
    assert [(p.part, p.state) for p in reading.parts] == [("b", None), ("a", "gone")]


def test_latencies_of_a_window_across_a_restart_are_left_out() -> None:
    standing = Standing(URL)
    ttft = LatencySample(t=0.0, engine=URL, measure="ttft", window_s=30.0, count=5, mean_s=0.1)
    assert standing.answered(1.0, good(1.0, latencies=[ttft]), None).latencies[0].t == 1.0
    standing.failed(2.0, REFUSED)
    assert standing.answered(3.0, good(3.0, latencies=[ttft]), None).latencies == []
    assert standing.answered(4.0, good(4.0, latencies=[ttft]), None).latencies


def test_an_engine_that_keeps_falling_over_does_not_flood_the_log() -> None:
    standing = Standing(URL)
    standing.answered(0.0, good(0.0), None)
    told = []
    t = 0.0
    while t < 300:
        t += 1.0
        told += standing.failed(t, REFUSED).events
        t += 1.0
        told += standing.answered(t, good(t), None).events
    names = [event.event for event in told]
    assert names == ["engine.down", "engine.restart"] * (MANY // 2 - 1) + ["engine.down", "engine.unsteady"]
    last = standing.answered(t, good(t), None)
    assert last.sample.restarts == 150  # counted all the same
    while not (calm := standing.answered(t, good(t), None).events):
        t += 1.0
    assert t == 300 + STEADY_S
    assert [event.event for event in calm] == ["engine.steady"]
    assert "llama.cpp is ok" in calm[0].text
    assert "were not told" in calm[0].text
    # From then on as before.
    assert events(standing.failed(t + 1, REFUSED)) == ["engine.down"]


def test_other_events_are_not_held_back() -> None:
    standing = Standing(URL)
    other = Event(t=0.0, event="engine.preempted", text="x", subject=URL)
    for t in range(30):
        assert "engine.preempted" in events(standing.answered(float(t), good(float(t), events=[other]), None))
