"""The strip in time: what held a GPU down, how long, and where it began."""

from __future__ import annotations

import math

import msgspec
import pytest

from agenttop.model.frames import Frame, GpuSample
from agenttop.view.held import Held, mean_over, shares_of
from agenttop.view.panels.strip import LENGTHS, legend, letter_of, strip
from agenttop.view.series import WINDOW_S
from agenttop.view.spans import Line, plain, width
from tests.view import machine_scenes, scenes
from tests.view.draw import folded, text_of


def card(t: float, throttle: list[str] | None = None, **changes: object) -> GpuSample:
    fields = {"t": t, "gpu": "GPU-0", "index": 0, "vendor": "nvidia", "name": "RTX", "window_s": 1.0}
    return GpuSample(**{**fields, "throttle": throttle, **changes})  # type: ignore[arg-type]


def drawn(frames: list[Frame], now: float, cells: int = 30) -> Line:
    store = folded(frames, now)
    return strip(store, store.gpus["GPU-0"], cells)


def test_time_counters_count_and_the_mask_stands_in_for_what_is_not_counted() -> None:
    sample = card(1.0, ["power cap", "power brake"], throttle_shares={"power cap": 0.3, "thermal (sw)": 0.0})
    assert shares_of(sample) == {"power cap": 0.3, "thermal (sw)": 0.0, "power brake": 1.0}


def test_a_device_that_counts_kinds_alone_lends_the_share_to_the_reasons_it_names() -> None:
    sample = card(1.0, ["power cap"], throttle_power_fraction=0.4, throttle_thermal_fraction=0.0)
    assert shares_of(sample) == {"power cap": 0.4, "thermal": 0.0}


@pytest.mark.parametrize("state", ["lost", "late", "asleep"])
def test_nothing_is_known_of_a_gpu_that_does_not_answer(state: str) -> None:
    assert shares_of(card(1.0, ["power cap"], state=state)) is None


def test_none_and_no_reason_are_two_things() -> None:
    assert shares_of(card(1.0, None)) is None
    assert shares_of(card(1.0, [])) == {}
    assert plain(drawn([card(float(t)) for t in range(1, 60)], 59.4)).strip() == ""
    assert set(plain(drawn([card(float(t), []) for t in range(1, 301)], 300.4))) == {"▁"}


@pytest.mark.parametrize("odd", [math.nan, math.inf, -math.inf, -3.0, 17.0])
def test_impossible_shares_stay_within_the_possible(odd: float) -> None:
    shares = shares_of(card(1.0, [], throttle_shares={"power cap": odd}))
    assert shares is not None
    assert all(0.0 <= share <= 1.0 for share in shares.values())


def test_reasons_overlap_and_are_never_summed_up() -> None:
    held = Held()
    for t in range(1, 11):
        held.put(card(float(t), [], throttle_shares={"power cap": 0.6, "thermal (sw)": 0.7}))
    assert mean_over(held.series(), WINDOW_S, 10.4) == pytest.approx(0.7)
    assert mean_over(held.series("power"), WINDOW_S, 10.4) == pytest.approx(0.6)
    assert mean_over(held.series("other"), WINDOW_S, 10.4) == 0.0


def test_what_somebody_has_chosen_is_no_trouble() -> None:
    held = Held()
    held.put(card(1.0, ["user clocks"]))
    assert mean_over(held.series(), WINDOW_S, 1.4) == 0.0
    assert list(held.begins) == []
    assert "user clocks" in held.reasons


def test_a_letter_stands_where_a_reason_begins_and_not_where_it_flickers() -> None:
    frames: list[Frame] = [
        card(float(t), ["power cap"] if 100 <= t < 200 and t % 3 else []) for t in range(1, 301)
    ]
    text = plain(drawn(frames, 300.4))
    assert text.count("P") == 1
    assert text.index("P") == 9  # of 30 columns of 10 seconds, the last of which has just begun


def test_the_gravest_of_several_that_begin_together_has_the_letter() -> None:
    frames: list[Frame] = [
        card(float(t), ["power cap", "thermal (hw)"] if t >= 290 else []) for t in range(1, 301)
    ]
    assert "T" in plain(drawn(frames, 300.4))


@pytest.mark.parametrize(
    ("reason", "letter"),
    [
        ("power cap", "P"),
        ("thermal (sw)", "T"),
        ("prochot", "T"),
        ("power brake", "B"),
        ("hw slowdown", "H"),
        ("current limit", "C"),
        ("reliability", "?"),
    ],
)
def test_letters(reason: str, letter: str) -> None:
    assert letter_of(reason) == letter


def test_columns_move_to_the_left_and_do_not_change() -> None:
    frames = machine_scenes.thermal_episode()
    before = plain(drawn([frame for frame in frames if frame.t <= 270], 270.4))
    after = plain(drawn([frame for frame in frames if frame.t <= 280], 280.4))
    # The last column of the picture before is still in the making.
    assert after[:-2] == before[1:-1]


@pytest.mark.parametrize("cells", LENGTHS)
def test_a_strip_has_exactly_its_cells(cells: int) -> None:
    assert WINDOW_S % cells == 0
    assert width(drawn(machine_scenes.thermal_episode(), 300.4, cells)) == cells


def test_the_legend_tells_the_shares_of_the_strips_time() -> None:
    store = folded(machine_scenes.thermal_episode(), 300.4)
    [power, thermal] = text_of(legend(store, store.gpus["GPU-0"]))
    assert power.startswith("power ")
    assert thermal.startswith("thermal ")


def test_of_a_gpu_that_tells_nothing_the_legend_is_a_dash() -> None:
    store = folded([card(1.0)], 1.4)
    assert text_of(legend(store, store.gpus["GPU-0"])) == ["–"]


def test_reasons_without_end_take_no_memory_without_end() -> None:
    held = Held()
    for t in range(1, 500):
        held.put(card(float(t), [f"reason {t}"]))
    assert len(held.reasons) <= 24


def test_a_session_that_runs_faster_than_life_has_longer_quiet_spans() -> None:
    held = Held(20.0)
    for t in range(0, 4000, 20):
        held.put(card(float(t), ["power cap"] if t % 200 == 0 else []))
    assert len(held.begins) == 1


def test_a_seek_forgets_what_held() -> None:
    store = folded([scenes.session(), msgspec.structs.replace(scenes.gpu(1.0), throttle=["power cap"])])
    assert set(store.held) == {"GPU-0"}
    store.feed([], 2.0, reset=True)
    assert store.held == {}


def test_the_first_look_at_counters_tells_no_share() -> None:
    """The mask of one moment is not the share of a second, of a device that counts from the next look on."""
    assert shares_of(card(1.0, ["power cap"], window_s=None)) is None
