"""Several servers made into one engine: sums of everything or nothing, stable slot numbers, totals."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agenttop.collect.engine import composite
from agenttop.collect.engine.base import EngineReading
from agenttop.collect.engine.composite import Carried, Child, Composite, Merged, Places, Seen, merge
from agenttop.collect.engine.front import Models
from agenttop.collect.engine.http import EngineClient
from agenttop.model.frames import EngineSample, LatencySample, Missing, PartSample, SlotSample
from tests import hostile
from tests.collect import fronts
from tests.collect.frames_check import assert_sane

URL = "http://127.0.0.1:11434"


def seen(part: str, state: str = "ok", missing: list[Missing] | None = None, **fields: Any) -> Seen:
    url = f"http://127.0.0.1:{5000 + len(part)}"
    figures = {"running": 1, "waiting": 0, "slots_total": 2, "decode_tok_s": 20.0, "window_s": 3.0}
    figures |= {"kv_used_tokens": 50, "kv_pool_tokens": 100, "kv_used_fraction": 0.5, "age_s": 0.1}
    sample = EngineSample(t=5.0, engine=url, url=url, name="llama.cpp", state=state, **{**figures, **fields})
    slots = [SlotSample(t=5.0, engine=url, slot=number, phase="idle") for number in range(2)]
    return Seen(child=Child(url=url, part=part), sample=sample, slots=slots, missing=missing or [])


def test_sums() -> None:
    merged = merge(
        6.0, URL, [seen("a"), seen("bb", decode_tok_s=5.5, kv_used_tokens=90, kv_used_fraction=0.9)]
    )
    assert merged.figures["running"] == 2
    assert merged.figures["decode_tok_s"] == 25.5
    assert (merged.figures["slots_total"], merged.figures["window_s"]) == (4, 3.0)
    assert merged.figures["kv_used_fraction"] == pytest.approx(0.7)
    assert merged.figures["kv_fullest_fraction"] == 0.9
    assert merged.parts["bb"].decode_tok_s == 5.5


def test_the_floor_of_one_is_the_floor_of_all() -> None:
    assert merge(6.0, URL, [seen("a"), seen("bb", decode_is_floor=True)]).figures["decode_is_floor"] is True


@pytest.mark.parametrize(
    "other",
    [
        seen("bb", state="busy", age_s=4.0),
        seen("bb", state="unauthorised", note="it needs a key"),
        seen("bb", state="starting"),
        seen("bb", running=None, decode_tok_s=None, kv_used_tokens=None),
    ],
)
def test_a_sum_without_one_of_its_parts_is_none(other: Seen) -> None:
    merged = merge(6.0, URL, [seen("a"), other])
    for name in ("running", "decode_tok_s", "kv_used_tokens"):
        assert merged.figures[name] is None, name
    assert merged.figures.get("kv_used_fraction") is None
    assert merged.parts["a"].decode_tok_s == 20.0
    if other.sample.state != "ok":
        why = {frame.subject_and_field[1]: frame.why for frame in merged.missing}
        assert (why["running"] or "").startswith("bb: ")
        assert merged.parts["bb"].decode_tok_s is None


@pytest.mark.parametrize("state", ["loading", "down"])
def test_nothing_runs_in_a_server_that_loads_or_has_died(state: str) -> None:
    merged = merge(6.0, URL, [seen("a"), seen("bb", state=state, note="it loads")])
    assert (merged.figures["running"], merged.figures["decode_tok_s"]) == (1, 20.0)
    assert {slot.part for slot in merged.slots} == {"a"}
    assert merged.parts["bb"].note == "it loads"
    assert merged.died == (state == "down")


def test_a_sleeping_server_decodes_nothing() -> None:
    asleep = seen("bb", state="asleep", running=0, decode_tok_s=None, kv_used_tokens=0, age_s=60.0)
    merged = merge(6.0, URL, [seen("a"), asleep])
    assert (merged.figures["running"], merged.figures["decode_tok_s"]) == (1, 20.0)
    assert merged.figures["kv_used_tokens"] == 50


def test_no_servers() -> None:
    merged = merge(6.0, URL, [])
    assert merged.figures["running"] == 0
    assert merged.figures["decode_tok_s"] is None
    assert (merged.slots, merged.parts, merged.missing) == ([], {}, [])


def test_reasons_carry_the_fronts_address_and_its_own_cure() -> None:
    told = [
        Missing(
            t=5.0, what="http://127.0.0.1:5001:output_tokens_total", why="off", fix="start it with --metrics"
        ),
        Missing(t=5.0, what="http://127.0.0.1:5001:version", why="unknown"),
        Missing(t=5.0, what="http://127.0.0.1:5001:decode_tok_s", why="but there it is"),
    ]
    one = merge(6.0, URL, [seen("a", missing=told)], fixes={"--metrics": "do that"}).missing
    assert one == [Missing(t=6.0, what=f"{URL}:output_tokens_total", why="off", fix="do that")]
    two = merge(6.0, URL, [seen("a", missing=told), seen("bb", missing=told)]).missing
    assert [(frame.why, frame.fix) for frame in two] == [("a: off", "start it with --metrics")]


def test_latencies_are_those_of_a_lone_server() -> None:
    latency = LatencySample(t=5.0, engine="x", measure="ttft", window_s=60.0, count=3, p50_s=0.1)
    lone = Seen(child=Child(url=URL), sample=seen("a").sample, latencies=[latency])
    assert [each.engine for each in merge(6.0, URL, [lone]).latencies] == [URL]
    assert merge(6.0, URL, [lone, seen("bb")]).latencies == []


def test_slots_keep_their_numbers() -> None:
    places = Places()
    assert places.update({"a": 2, "b": 4}) == {"a": 0, "b": 2}
    assert places.update({"a": 2, "b": 4, "c": 0}) == {"a": 0, "b": 2}
    assert places.update({"b": 4, "c": 3}) == {"b": 2, "c": 6}
    assert places.update({"b": 4, "c": 3, "d": 2}) == {"b": 2, "c": 6, "d": 0}
    assert places.update({"b": 5, "c": 3, "d": 2}) == {"b": 9, "c": 6, "d": 0}


@given(st.lists(st.dictionaries(st.sampled_from("abcdef"), st.integers(0, 9)), max_size=12))
def test_no_two_slots_have_one_number(steps: list[dict[str, int]]) -> None:
    places = Places()
    for counts in steps:
        starts = places.update(counts)
        numbers = [starts[key] + slot for key in starts for slot in range(counts[key])]
        assert len(set(numbers)) == len(numbers)
        assert set(starts) == {key for key, count in counts.items() if count > 0}


def test_totals_do_not_go_back() -> None:
    def sample(total: int | None) -> EngineSample:
        return EngineSample(t=1.0, engine="x", url="x", name="n", state="ok", output_tokens_total=total)

    carried = Carried()
    key = "output_tokens_total"
    assert carried.update({"a": sample(100)})[key] == 100
    assert carried.update({"a": sample(120), "b": sample(5)})[key] == 125
    assert carried.update({"b": sample(7)})[key] == 127  # a has ended
    assert carried.update({"b": sample(2)})[key] == 129  # b was restarted
    assert carried.update({"b": sample(None)})[key] is None
    assert carried.update({})[key] is not None
    assert Carried().update({})[key] is None


def test_models_come_and_go() -> None:
    models = Models("Ollama", URL)
    assert models.update(1.0, ["a"]) == []
    assert models.update(2.0, ["a"]) == []
    assert fronts.texts(models.update(3.0, ["a", "b"])) == ["loaded b"]
    assert fronts.texts(models.update(4.0, ["c"])) == ["swapped a and b for c"]
    assert fronts.texts(models.update(5.0, [])) == ["unloaded c"]
    assert fronts.texts(models.update(6.0, list("defg"))) == ["loaded d and 3 more"]


def test_the_model_that_is_shown_stays_while_it_is_loaded() -> None:
    models = Models("Ollama", URL)
    assert models.shown(["a", "b"]) == "a"
    assert models.shown(["b", "a"]) == "a"
    assert models.shown(["b"]) == "b"
    assert models.shown([], ["x"]) == "x"
    assert models.shown([], ["x", "y"]) is None


_COUNT = st.none() | st.integers(0, 10**9)
_RATE = st.none() | st.floats(0, 1e6)
_SAMPLES = st.fixed_dictionaries(
    {
        "state": st.sampled_from(["ok", "busy", "asleep", "loading", "down", "starting", "unsupported"]),
        "age_s": st.none() | st.floats(0, 100),
        "running": _COUNT,
        "waiting": _COUNT,
        "kv_used_tokens": _COUNT,
        "kv_pool_tokens": _COUNT,
        "kv_used_fraction": st.none() | st.floats(0, 1),
        "decode_tok_s": _RATE,
        "prefill_tok_s": _RATE,
        "window_s": _RATE,
    }
)


@given(st.lists(_SAMPLES, max_size=4))
def test_whatever_the_servers_tell(told: list[dict[str, Any]]) -> None:
    merged = merge(6.0, URL, [seen("m" * (number + 1), **each) for number, each in enumerate(told)])
    sample = EngineSample(t=6.0, engine=URL, url=URL, name="Ollama", state="ok", **merged.figures)
    assert_sane(EngineReading(sample=sample, slots=merged.slots, parts=list(merged.parts.values())))
    lacks = any(each["running"] is None for each in told if each["state"] in ("ok", "busy", "asleep"))
    assert not (lacks and sample.running is not None)
    assert all(isinstance(part, PartSample) for part in merged.parts.values())


async def test_a_server_that_stalls_holds_up_neither_the_others_nor_the_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(composite, "PATIENCE_S", 0.05)
    client = EngineClient(URL, set())
    front = Composite(client)
    with hostile.stalls() as slow, fronts.servers(fronts.llama()) as (quick,):
        children = [Child(url=quick.url, part="a"), Child(url=slow.url, part="b")]
        merged = Merged()
        for _ in range(200):
            merged = await front.look(children)
            if merged.slots:
                break
            await asyncio.sleep(0.01)
        assert {slot.part for slot in merged.slots} == {"a"}
        assert merged.figures["running"] is None
        assert len(slow.asked) <= 2  # one question in flight, and no second
        await client.close()
    assert len(asyncio.all_tasks()) == 1


async def test_a_server_that_has_gone_is_not_asked_any_more() -> None:
    client = EngineClient(URL, set())
    front = Composite(client)
    with fronts.servers(fronts.llama(), fronts.llama()) as (one, other):
        both = [Child(url=one.url, part="a"), Child(url=other.url, part="b")]
        assert (await front.look(both)).figures["slots_total"] == 4
        asked = len(one.asked)
        merged = await front.look(both[1:])
        assert merged.figures["slots_total"] == 2
        assert {slot.slot for slot in merged.slots} == {2, 3}
        assert len(one.asked) == asked
        await client.close()
