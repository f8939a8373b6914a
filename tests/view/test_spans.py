import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agenttop.view import spans

ANY_LINE = st.lists(
    st.tuples(st.text(max_size=12).map(spans.foreign), st.sampled_from(spans.ROLES)), max_size=6
)


@given(ANY_LINE, st.integers(0, 40))
def test_a_fitted_line_is_exactly_as_wide_as_asked(line: spans.Line, limit: int) -> None:
    assert spans.width(spans.fit(line, limit)) == limit


@given(st.text(max_size=30).map(spans.foreign), st.integers(0, 40))
def test_padding_and_cutting_count_cells(text: str, limit: int) -> None:
    assert spans.cells(spans.cut(text, limit)) <= limit
    assert spans.cells(spans.pad(text, limit)) == limit
    assert spans.cells(spans.right(text, limit)) == limit


@given(st.text(max_size=80))
def test_foreign_text_has_no_control_sequences_and_no_marks_that_take_no_cell(text: str) -> None:
    made_fit = spans.foreign(text)
    assert not any(ord(char) < 32 or 0x7F <= ord(char) < 0xA0 for char in made_fit)
    assert not any(unicodedata.category(char) in ("Mn", "Me", "Cf", "Cs", "Cn") for char in made_fit)


def test_wide_characters_take_two_cells() -> None:
    assert spans.cells("千问") == 4
    assert spans.cut("千问模型", 5) == "千问…"
    assert spans.pad("千问", 5) == "千问 "


def test_cut_text_ends_in_an_ellipsis() -> None:
    assert spans.cut("llama.cpp", 6) == "llama…"
    assert spans.cut("llama", 5) == "llama"
    assert spans.plain(spans.fit([("llama", "text"), (".cpp", "text")], 5)) == "llam…"


@pytest.mark.parametrize("limit", [12, 30, 60])
def test_a_box_has_the_size_it_is_given(limit: int) -> None:
    lines = spans.box([("a title", "accent")], [[("x" * 80, "text")]], limit, 5, [("note", "dim")])
    assert [spans.width(line) for line in lines] == [limit] * 5


def test_spread_keeps_whole_parts_and_leaves_out_what_does_not_fit() -> None:
    parts: list[spans.Line] = [[("one", "text")], [("two", "text")], [("three", "text")]]
    assert spans.plain(spans.spread(parts, 9)) == "one  two"


def test_blocks_of_unequal_height_stand_beside_each_other() -> None:
    left: list[spans.Line] = [[("ab", "text")]]
    right: list[spans.Line] = [[("cd", "text")], [("ef", "text")]]
    assert [spans.plain(line) for line in spans.beside(left, 2, right, 2)] == ["abcd", "  ef"]
