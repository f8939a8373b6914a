import math
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agenttop.view import glyphs

COLUMN = st.none() | st.floats(0, 1e6).map(lambda value: (value, value))


@given(st.none() | st.floats(-1, 3), st.integers(1, 40))
def test_a_bar_has_its_length(fraction: float | None, length: int) -> None:
    assert sum(len(text) for text, _ in glyphs.bar(fraction, length)) == length


@given(st.floats(0, 1), st.floats(0, 1), st.integers(4, 60))
def test_a_pool_has_its_length_and_shows_what_is_held(active: float, idle: float, length: int) -> None:
    parts = glyphs.pool(active * 1000, idle * 1000, 2000, length)
    text = "".join(part for part, _ in parts)
    assert len(text) == length
    if idle * 1000 > 1 and active < 0.9:
        assert glyphs.IDLE in text


def test_something_above_zero_always_shows() -> None:
    assert glyphs.filled(0.0001, 10) == "▏"
    assert glyphs.filled(0.0, 10) == ""
    assert glyphs.filled(1.0, 3) == "███"
    assert glyphs.filled(7.0, 3) == "███"


def test_a_spark_shows_gaps_zeros_and_the_highest() -> None:
    columns = [None, (0.0, 0.0), (5.0, 5.0), (10.0, 10.0)]
    assert glyphs.spark(columns) == " ▁▄█"
    assert glyphs.spark([(0.0, 0.0), None]) == "▁ "


PAIR = st.tuples(COLUMN, COLUMN)


@given(st.lists(PAIR, min_size=2, max_size=30), st.integers(1, 8))
def test_an_area_has_its_size_and_no_glyph_but_braille(
    pairs: list[tuple[glyphs.Column, glyphs.Column]], height: int
) -> None:
    columns = [column for pair in pairs for column in pair]
    top = glyphs.nice_top(max((column[1] for column in columns if column), default=0.0))
    lines = glyphs.area(columns, height, top)
    assert len(lines) == height
    assert {len(line) for line in lines} == {len(columns) // 2}
    assert all(char == " " or 0x2800 < ord(char) < 0x2900 for line in lines for char in line)


def test_a_short_spike_never_vanishes() -> None:
    lines = glyphs.area([(1.0, 40.0), (1.0, 1.0)], 4, 40.0)
    assert lines[0] == chr(0x2801)
    assert lines[3] != " "


def test_a_gap_in_an_area_is_blank_and_a_zero_is_not() -> None:
    assert glyphs.area([None, None], 1, 10.0) == [" "]
    assert glyphs.area([(0.0, 0.0), (0.0, 0.0)], 1, 10.0) == [chr(0x2800 + 0x40 + 0x80)]


@pytest.mark.parametrize(
    ("value", "top"), [(0, 1), (0.7, 0.8), (41, 50), (61, 80), (100, 100), (101, 150), (3900, 4000)]
)
def test_a_chart_ends_at_a_round_number(value: float, top: float) -> None:
    assert glyphs.nice_top(value) == pytest.approx(top)


@given(st.integers(0, 300))
def test_a_trend_covers_whole_seconds(room: int) -> None:
    cells = glyphs.trend_cells(room)
    assert glyphs.TREND_S % cells == 0
    assert cells <= max(room, 6)


def test_every_glyph_is_one_cell_and_no_emoji() -> None:
    emoji = set("▶◀⏸⏺⏵✂✔✖⚠⚙★☆●"[:-1])
    used = {glyph for glyph, _ in (*glyphs.STATES.values(), *glyphs.SEVERITY.values())}
    assert all(len(glyph) == 1 and unicodedata.east_asian_width(glyph) not in "WF" for glyph in used)
    assert not used & emoji


@pytest.mark.parametrize(
    ("parts", "text"),
    [
        ((4, 4, 8), "██▒▒░░░░"),
        ((0.1, 0.1, 0.1), "█·······"),
        ((0, 4, 4), "▒▒░░····"),
        ((16, 16, 16), "████████"),
        ((0, 0, 0), "········"),
        ((math.nan, math.inf, 8), "░░░░····"),
    ],
)
def test_parts_side_by_side_are_as_long_as_the_whole(parts: tuple[float, ...], text: str) -> None:
    named = [(part, glyph, "text") for part, glyph in zip(parts, "█▒░", strict=True)]
    drawn = "".join(piece for piece, _ in glyphs.stacked(named, 16, 8))
    assert drawn == text
