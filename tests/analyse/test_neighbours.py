"""Levels on engines that tell more than others, and beside engines that work, too."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from agenttop.analyse.compare import LevelRow, levels_of
from agenttop.analyse.neighbours import busy_beside
from agenttop.commands.compare import render
from agenttop.commands.figures import Figures
from agenttop.model.frames import EngineSample, Frame, Level
from agenttop.record.read import Recording
from tests.analyse.test_compare import engine, load, steady_turns
from tests.record.build import URL, record

OTHER = "http://127.0.0.1:9999"
FRONT = "http://127.0.0.1:4000"


def other(t: float, url: str = OTHER, **changes: object) -> EngineSample:
    return engine(t, engine=url, url=url, name="vLLM", **changes)


def recorded(folder: Path, more: list[Frame]) -> Path:
    frames: list[Frame] = [Level(t=0.0, level=0, agents=2, t_end=101.0), *steady_turns(), *more]
    frames += [load(t + 0.5) for t in range(102)]
    return record(folder / "a.agenttop", sorted(frames, key=lambda frame: frame.t))


def level(folder: Path, more: list[Frame]) -> LevelRow:
    with Recording(recorded(folder, more)) as recording:
        (made,) = levels_of(recording)
    return made


def counting(t: float, **changes: object) -> EngineSample:
    fields: dict[str, object] = {
        "name": "vLLM",
        "preemptions_total": int(t) // 10,
        "prefix_hits_tokens_total": int(60 * t),
        "prefix_queries_tokens_total": int(80 * t),
        "drafted_tokens_total": int(100 * t),
        "accepted_tokens_total": int(62 * t),
        "finish_reasons": {"stop": 5 + int(t), "length": 2},
    }
    return engine(t, **(fields | changes))


class TestCounters:
    def test_their_growth_within_the_window(self, tmp_path: Path) -> None:
        made = level(tmp_path, [counting(float(t)) for t in range(101)])
        assert made.engine_name == "vLLM"
        assert made.engine_hit_fraction == pytest.approx(0.75, abs=0.01)
        assert made.draft_acceptance == pytest.approx(0.62, abs=0.01)
        assert made.preemptions == 10
        assert made.finish_reasons["length"] == 0
        assert 90 <= made.finish_reasons["stop"] <= 100

    @pytest.mark.parametrize(
        "broken",
        [
            [counting(float(t), restarts=int(t > 50)) for t in range(101)],
            [counting(100.0 - t) for t in range(101)],
            [engine(float(t)) for t in range(101)],
            [counting(50.0)],
        ],
        ids=["restarted", "went back", "not told", "one sample"],
    )
    def test_none_where_they_tell_nothing_of_it(self, tmp_path: Path, broken: list[EngineSample]) -> None:
        samples = [msgspec.structs.replace(sample, t=float(t)) for t, sample in enumerate(broken)]
        made = level(tmp_path, [*samples])
        assert (made.engine_hit_fraction, made.draft_acceptance) == (None, None)
        assert made.finish_reasons == {}

    def test_a_table_shows_them_where_an_engine_tells(self, tmp_path: Path) -> None:
        rows = [msgspec.to_builtins(level(tmp_path, [counting(float(t)) for t in range(101)]))]
        table = render(rows, "table")
        assert "engine hits" in table
        assert "accept" in table
        assert "62 %" in table

    def test_and_does_not_name_them_where_none_does(self, tmp_path: Path) -> None:
        rows = [msgspec.to_builtins(level(tmp_path, [engine(float(t)) for t in range(101)]))]
        table = render(rows, "table")
        assert "accept" not in table
        assert "engine hits" not in table


class TestBeside:
    def test_another_engine_that_worked_is_named_with_its_share(self, tmp_path: Path) -> None:
        samples = [
            frame for t in range(101) for frame in (engine(float(t)), other(t + 0.5, running=t % 4 // 3))
        ]
        made = level(tmp_path, [*samples])
        assert made.valid
        assert made.also_busy is not None
        assert made.also_busy.startswith(f"vLLM at {OTHER} in 2")
        text = render([msgspec.to_builtins(made)], "table")
        assert "not alone: a.agenttop level 1 (2 agents): the host also served vLLM" in text.replace(
            "\n  ", " "
        )

    @pytest.mark.parametrize(
        "sample",
        [
            other(1.0, running=0, decode_tok_s=0.0),
            other(1.0),
            other(1.0, running=3, simulated="RTX 5090"),
            other(1.0, running=3, behind=URL),
            other(1.0, url="http://box2:8000", running=3),
        ],
        ids=["idle", "tells nothing", "simulated", "behind it", "another host"],
    )
    def test_what_does_not_share_the_machine_or_the_work_is_not(self, sample: EngineSample) -> None:
        assert busy_beside(URL, [engine(1.0, running=2), sample]) is None

    def test_the_front_of_a_front_is_the_same_work(self) -> None:
        chain = [
            engine(1.0, behind=FRONT),
            other(1.0, url=FRONT, running=2, behind=OTHER),
            other(1.0, running=2),
        ]
        assert busy_beside(URL, chain) is None
        assert busy_beside(OTHER, chain) is None

    def test_two_behind_one_front_are_two(self) -> None:
        pair = [engine(1.0, behind=FRONT), other(1.0, running=2, behind=FRONT)]
        assert busy_beside(URL, pair) == f"vLLM at {OTHER} in 100 % of the time"

    def test_of_a_simulated_engine_the_machine_does_not_matter(self) -> None:
        assert busy_beside(URL, [engine(1.0, simulated="RTX 5090"), other(1.0, running=1)]) is None

    def test_a_stray_request_is_not_told(self) -> None:
        samples = [other(float(t), running=int(t == 7)) for t in range(100)]
        assert busy_beside(URL, samples) is None

    def test_fronts_in_a_ring_end(self) -> None:
        ring = [engine(1.0, behind=OTHER), other(1.0, running=1, behind=URL)]
        assert busy_beside(URL, ring) is None


def test_the_figures_of_a_run_say_where_the_load_went(tmp_path: Path) -> None:
    figures = Figures.of(recorded(tmp_path, [engine(float(t)) for t in range(101)]))
    assert f"load went to llama.cpp at {URL}, m" in figures.as_text()
