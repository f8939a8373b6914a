"""Several engines and all their kinds: order and focus, parts, latencies, what the screen shows of each."""

from __future__ import annotations

import re

import msgspec
import pytest

from agenttop.model.frames import (
    EngineSample,
    Event,
    Frame,
    LatencySample,
    LoadSample,
    Missing,
    PartSample,
    Turn,
)
from agenttop.view.engines import (
    kinship,
    latencies,
    latency,
    neighbour,
    ordered,
    parts_of,
    place_words,
    short,
)
from agenttop.view.look import Look
from agenttop.view.panels.details import details
from agenttop.view.panels.engines import engines
from agenttop.view.panels.latency import upper
from agenttop.view.panels.missing import missing
from agenttop.view.panels.parts import parts
from agenttop.view.rows import engine_in_focus
from agenttop.view.spans import width
from agenttop.view.store import Store
from tests.view import engine_scenes as kinds
from tests.view import scenes
from tests.view.draw import drawn, folded, text_of

SEVERAL = kinds.several(10)


def focus(store: Store, **look: object) -> str | None:
    engine = engine_in_focus(store, Look(**look))  # type: ignore[arg-type]
    return engine.engine if engine is not None else None


def sample(t: float, port: int, **changes: object) -> EngineSample:
    url = f"http://127.0.0.1:{port}"
    fields: dict[str, object] = {"t": t, "engine": url, "url": url, "name": "vLLM", "state": "ok", **changes}
    return EngineSample(**fields)  # type: ignore[arg-type]


def all_of(frames: list[Frame], engine: str, room: int = 100) -> str:
    store = folded(frames)
    return "\n".join(text_of(details(store, store.engines[engine], room)))


class TestOrder:
    def test_engines_stand_below_their_front_and_in_the_order_of_ports(self) -> None:
        order = [(short(engine.url), depth) for engine, depth in ordered(folded(SEVERAL))]
        assert order == [(":4000", 0), (":8000", 1), (":8080", 0), (":11434", 0), (":30000", 0)]

    def test_engines_that_claim_to_stand_behind_each_other_are_all_listed(self) -> None:
        one, two = "http://127.0.0.1:1", "http://127.0.0.1:2"
        ring = [
            sample(1.0, 1, behind=two),
            sample(1.0, 2, behind=one),
            sample(1.0, 3, behind="http://127.0.0.1:3"),
        ]
        assert {engine.engine for engine, _ in ordered(folded(ring))} == {one, two, "http://127.0.0.1:3"}

    def test_a_front_that_is_not_watched_is_named_by_its_address(self) -> None:
        store = folded([sample(1.0, 1, behind="http://127.0.0.1:99")])
        assert kinship(store, next(iter(store.engines.values()))) == "behind :99"

    @pytest.mark.parametrize(
        ("url", "text"),
        [
            ("http://127.0.0.1:8080", ":8080"),
            ("http://[::1]:8080/base", ":8080/base"),
            ("http://box2:8000", "box2:8000"),
            ("http://[", "http://["),
        ],
    )
    def test_short_addresses(self, url: str, text: str) -> None:
        assert short(url) == text

    def test_round_and_round(self) -> None:
        store, seen = folded(SEVERAL), []
        at: str | None = kinds.PROXY
        for _ in range(5):
            engine = neighbour(store, Look(engine=at), 1)
            assert engine is not None
            seen.append(at := engine.engine)
        assert seen == [kinds.VLLM, kinds.ROUTER, kinds.OLLAMA, "http://127.0.0.1:30000", kinds.PROXY]
        before = neighbour(store, Look(engine=kinds.PROXY), -1)
        assert before is not None
        assert before.engine == "http://127.0.0.1:30000"

    def test_alone_there_is_no_other(self) -> None:
        store = folded(kinds.silent(3))
        assert neighbour(store, Look(), 1) is None
        assert place_words(store, Look()) is None


class TestFocus:
    def test_a_choice_outlives_a_restart(self) -> None:
        store = folded([sample(1.0, 1, running=0), sample(1.0, 2)])
        chosen = "http://127.0.0.1:2"
        store.feed([sample(2.0, 2, state="down")], 2.0)
        assert focus(store, engine=chosen) == chosen
        store.feed([sample(9.0, 2, restarts=1)], 9.0)
        assert focus(store, engine=chosen) == chosen

    def test_a_choice_that_is_gone_gives_way_and_comes_back_with_its_engine(self) -> None:
        store = folded([sample(1.0, 1, running=0), sample(1.0, 2)])
        chosen = "http://127.0.0.1:2"
        store.feed([Event(t=2.0, event="engine.gone", text="gone", subject=chosen)], 2.0)
        assert focus(store, engine=chosen) == "http://127.0.0.1:1"
        store.feed([sample(3.0, 2)], 3.0)
        assert focus(store, engine=chosen) == chosen

    def test_what_is_shown_stays_when_another_engine_is_found(self) -> None:
        store = folded([sample(1.0, 5, running=0)])
        store.feed([sample(2.0, 1, running=0)], 2.0)
        assert focus(store) == "http://127.0.0.1:1"
        assert focus(store, shown="http://127.0.0.1:5") == "http://127.0.0.1:5"

    def test_one_that_tells_figures_comes_before_a_front_and_one_that_tells_none(self) -> None:
        frames = [sample(1.0, 1, front=True, running=3), sample(1.0, 2), sample(1.0, 3, running=0)]
        assert focus(folded(frames)) == "http://127.0.0.1:3"


class TestStore:
    def test_latencies_and_parts_replace_each_other_by_identity(self) -> None:
        store = folded([*kinds.ranks(1.0), *kinds.ranks(2.0), kinds.vllm(2.0), *kinds.vllm_latencies(2.0)])
        assert len(store.parts[kinds.VLLM]) == 4
        assert [found.measure for found in latencies(store, kinds.vllm(2.0))] == [
            "ttft",
            "itl",
            "e2e",
            "queue",
        ]

    @pytest.mark.parametrize(
        "frame",
        [
            kinds.vllm(3.0, restarts=1),
            kinds.vllm(3.0, name="SGLang"),
            Event(t=3.0, event="engine.gone", text="gone", subject=kinds.VLLM),
        ],
        ids=["restart", "another kind", "gone"],
    )
    def test_they_go_with_their_process(self, frame: Frame) -> None:
        store = folded([kinds.vllm(2.0), *kinds.ranks(2.0), *kinds.vllm_latencies(2.0)])
        store.feed([frame], 3.0)
        assert kinds.VLLM not in store.parts
        assert kinds.VLLM not in store.latencies

    def test_an_engine_that_is_away_for_a_moment_keeps_its_name(self) -> None:
        store = folded([kinds.vllm(2.0), *kinds.ranks(2.0)])
        store.feed([kinds.vllm(3.0, name="unknown", state="down"), kinds.vllm(4.0)], 4.0)
        assert len(parts_of(store, kinds.vllm(4.0))) == 4

    def test_a_part_that_is_gone_is_not_listed_any_more(self) -> None:
        store = folded([kinds.router(1.0), *kinds.router_parts(1.0)])
        gone = PartSample(t=2.0, engine=kinds.ROUTER, part="gemma-3-4b", role="model", state="gone")
        store.feed([gone], 2.0)
        assert [part.part for part in parts_of(store, kinds.router(2.0))] == [
            "qwen3-coder-30b",
            "llama-3.3-70b",
        ]

    def test_parts_of_an_engine_that_is_down_are_of_the_past(self) -> None:
        store = folded([kinds.vllm(1.0), *kinds.ranks(1.0)])
        assert parts_of(store, kinds.vllm(2.0, state="down")) == []

    def test_old_latencies_are_not_of_now(self) -> None:
        store = folded([kinds.vllm(1.0), *kinds.vllm_latencies(1.0)])
        store.feed([kinds.vllm(60.0)], 60.0)
        assert latency(store, kinds.vllm(60.0), "ttft") is None

    def test_nothing_counted_is_nothing_known(self) -> None:
        empty = LatencySample(t=1.0, engine=kinds.VLLM, measure="ttft", window_s=60.0, count=0)
        assert latency(folded([kinds.vllm(1.0), empty]), kinds.vllm(1.0), "ttft") is None


class TestLiveScreen:
    def test_an_average_is_called_one(self) -> None:
        text = drawn(kinds.with_ranks(20), 20.4)
        assert "avg/seq 51.3 over 23" in text
        assert "p50/agent" not in text

    def test_the_engines_own_waits_say_whose_they_are(self) -> None:
        text = drawn(kinds.with_ranks(20), 20.4)
        assert "TTFT    p50 190 ms  p95 551 ms  engine, 184 in 60 s" in text
        assert "ITL p50 <10 ms" in text

    def test_a_mean_stands_where_no_median_can_be_told(self) -> None:
        mean = kinds.latency(20.0, kinds.VLLM, "ttft", 0.19, p50_s=None, p95_s=None)
        assert "TTFT    mean 228 ms  p95 –" in drawn([*kinds.with_ranks(20), mean], 20.4)

    @pytest.mark.parametrize("size", [(120, 40), (200, 60)])
    def test_beside_those_of_agents_both_say_whose_they_are(self, size: tuple[int, int]) -> None:
        turn = Turn(
            t=19.0,
            agent="a1",
            engine=kinds.VLLM,
            profile="human",
            turn=1,
            t_queued=10.0,
            t_sent=10.0,
            t_first_token=10.5,
            t_last_token=18.0,
            output_tokens=100,
        )
        lines = drawn([*kinds.with_ranks(20), turn], 20.4, *size).splitlines()
        assert any("agents  TTFT p50 500 ms" in line for line in lines)
        assert any("engine  TTFT p50 190 ms" in line for line in lines)
        assert any("replies in" in line or "wait 4" in line for line in lines)

    @pytest.mark.parametrize(
        ("known", "shown"),
        [
            ({"below_s": 0.01, "p99_s": 0.2}, ["<10 ms", "<10 ms", "<10 ms", "200 ms"]),
            ({"below_s": 0.01}, ["<10 ms", "–", "–", "–"]),
            ({"p50_s": 0.1, "p90_s": 0.3}, ["100 ms", "300 ms", "–", "–"]),
            ({}, ["–", "–", "–", "–"]),
        ],
    )
    def test_a_percentile_is_told_as_far_as_it_is_known(
        self, known: dict[str, float], shown: list[str]
    ) -> None:
        sample = LatencySample(t=1.0, engine="x", measure="itl", window_s=60.0, count=9, **known)
        assert [upper(sample, share) for share in (0.5, 0.9, 0.95, 0.99)] == shown

    def test_reasons_for_waiting(self) -> None:
        assert "run     23/256   wait 4 (capacity 3, deferred 1)   preempt 7" in drawn(
            kinds.with_ranks(20), 20.4
        )

    def test_the_rate_of_the_last_request_is_not_one_of_now(self) -> None:
        text = drawn(kinds.slow_front(20), 20.4)
        assert re.search(r"decode +– tok/s", text)
        assert "last request 43.1" in text

    def test_memory_where_no_pool_is_told(self) -> None:
        text = drawn(kinds.slow_front(20), 20.4)
        assert "14.2 GiB for its models  62 % on GPU" in text
        assert "asked every 5.0 s" in text

    def test_ranks_stand_in_the_rows_that_are_free(self) -> None:
        lines = drawn(kinds.with_ranks(20), 20.4, 80, 24).splitlines()
        assert any(line.startswith(" 2        4     4     205") for line in lines)

    def test_rows_of_several_models_say_whose_they_are(self) -> None:
        text = drawn(kinds.front(20), 20.4, 80, 24)
        assert "   5  –      gemma-3-4b         ▸ decode" in text
        assert "models: 2 loaded, 1 unloaded" in text

    def test_one_that_tells_nothing_says_so_and_what_helps(self) -> None:
        text = drawn(kinds.silent(10), 10.4)
        assert "This server tells no figures" in text
        assert "agents started here get a row each: a, +" in text
        assert "– tok/s" not in text

    def test_failures_of_agents_elsewhere_are_not_this_engines(self) -> None:
        frames = [*SEVERAL, LoadSample(t=10.0, engine=kinds.ROUTER, failures=7, active=1, target=1)]
        for engine, told in ((kinds.ROUTER, True), (kinds.VLLM, False)):
            lines = drawn(frames, 10.4, engine=engine).splitlines()
            line = next(line for line in lines if "│ run  " in line)
            assert ("fail 7" in line) is told

    @pytest.mark.parametrize("engine", [kinds.VLLM, kinds.ROUTER, kinds.OLLAMA, kinds.PROXY])
    @pytest.mark.parametrize("size", [(60, 16), (80, 24), (120, 40), (200, 60)])
    def test_each_can_be_drawn_and_names_its_place(self, engine: str, size: tuple[int, int]) -> None:
        text = drawn(SEVERAL, 10.4, *size, engine=engine)
        assert "cannot be drawn" not in text
        assert "of 5" in text.splitlines()[1]


class TestDetails:
    def test_everything_of_a_vllm(self) -> None:
        text = all_of(kinds.with_ranks(10), kinds.VLLM)
        for figure in (
            "Qwen/Qwen3-32B-FP8",
            "fp8_e4m3",
            "23 of 256",
            "capacity 3, deferred 1",
            "avg/seq 51.3 over 23 sequences",
            "drafts taken   62 %",
            "2.86",
            "1 341 040 tokens",
            "first token, TTFT",
            "<10 ms",
            "stop 8123, length 411, abort 12",
            "requests ended 8 546",
        ):
            assert figure in text, figure

    def test_what_is_not_told_has_no_line(self) -> None:
        text = all_of(kinds.silent(3), kinds.GENERIC)
        assert "Latencies" not in text
        assert "Since the server started" not in text
        assert "an OpenAI-compatible server tells no figures" in text

    def test_an_engine_that_is_away_shows_no_figures_of_the_past(self) -> None:
        text = all_of([*kinds.with_ranks(10), kinds.vllm(11.0, state="down", note="it has gone")], kinds.VLLM)
        assert "it has gone" in text
        assert "Now" not in text
        assert "Ranks" not in text

    @pytest.mark.parametrize("room", [44, 52, 72, 100])
    def test_no_line_is_longer_than_the_room(self, room: int) -> None:
        store = folded(SEVERAL)
        for engine in store.engines.values():
            assert max(width(line) for line in details(store, engine, room)) <= room, engine.engine

    def test_time_until_a_model_is_unloaded_runs_on_between_looks(self) -> None:
        store = folded([kinds.ollama(10.0), *kinds.ollama_parts(10.0)], 40.0)
        assert any("in 4.0 m" in line for line in text_of(parts(store, kinds.ollama(10.0), 100, 5)))


class TestLists:
    def test_more_parts_than_lines_are_summed_up(self) -> None:
        many = [
            PartSample(t=1.0, engine=kinds.VLLM, part=str(rank), role="rank", running=1, waiting=rank % 2)
            for rank in range(16)
        ]
        lines = text_of(parts(folded([kinds.vllm(1.0), *many]), kinds.vllm(1.0), 80, 6))
        assert len(lines) == 6
        assert lines[-1] == " … 12 more ranks, 6 requests wait there"

    @pytest.mark.parametrize("room", [52, 72, 100])
    def test_the_list_keeps_what_is_chosen_in_sight(self, room: int) -> None:
        store = folded([sample(1.0, 8000 + number, model="m" * 70) for number in range(40)])
        chosen = "http://127.0.0.1:8033"
        lines, at = engines(store, room, 10, chosen)
        assert len(lines) == 10
        assert chosen in at.values()
        assert max(width(line) for line in lines) <= room
        assert text_of([lines[next(row for row, url in at.items() if url == chosen)]])[0].startswith("›")

    def test_what_is_missing_is_grouped_by_engine_and_reason(self) -> None:
        lines = text_of(missing(folded(SEVERAL), 72))
        assert lines[0] == "this machine"
        at = lines.index("Ollama at http://127.0.0.1:11434")
        assert lines[at + 1 : at + 4] == [
            "decode, prefill",
            "  Ollama tells no rate of a request while it runs",
            "  update to Ollama 0.30 or later",
        ]

    def test_what_is_missing_of_a_part_stands_with_its_engine(self) -> None:
        frame = Missing(t=1.0, what="http://127.0.0.1:41201:slots", why="off")
        lines = text_of(missing(folded([*kinds.front(3), frame]), 72))
        at = lines.index(f"llama.cpp at {kinds.ROUTER}")
        assert lines[at + 1] == "slots"

    def test_words_of_a_server_cannot_break_a_line(self) -> None:
        rude = msgspec.structs.replace(
            kinds.vllm(1.0), waiting_reasons={"\x1b[31m" * 9: 3}, quantisation="x" * 500, model="\n" * 4
        )
        text = drawn([scenes.session(), rude], 1.2)
        assert "\x1b" not in text
