"""States, events, restarts and reasons, look by look."""

from __future__ import annotations

from typing import Any

import msgspec

from agenttop.collect.engine.base import EngineReading
from agenttop.collect.engine.standing import Failure, Standing
from agenttop.model.frames import EngineSample, Event, Missing, SlotSample

URL = "http://127.0.0.1:8080"


def good(t: float, state: str = "ok", **fields: Any) -> EngineReading:
    reading = {"missing": fields.pop("missing", []), "events": fields.pop("events", [])}
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
    assert events(back) == ["engine.restart", "engine.up"]
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
    assert events(other) == ["engine.changed", "engine.up"]
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
