import pytest

from agenttop.errors import UsageError
from agenttop.model import units
from agenttop.model.text import clean


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("30s", 30), ("22m", 1320), ("1h30m", 5400), ("90", 90), ("1.5m", 90), ("1h2m3s", 3723)],
)
def test_durations_are_read_as_people_write_them(text, seconds):
    assert units.parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["", "soon", "-3s", "3x", "s", "1m2h"])
def test_what_is_no_duration_is_refused_in_one_sentence(text):
    with pytest.raises(UsageError, match="is not a duration"):
        units.parse_duration(text)


@pytest.mark.parametrize("text", ["9" * 400, "9" * 400 + "h", "100000h"])
def test_a_duration_beyond_reason_is_refused(text):
    with pytest.raises(UsageError, match="is too long"):
        units.parse_duration(text)


@pytest.mark.parametrize(("text", "seconds"), [("12:34", 754), ("1:02:03", 3723), ("90s", 90), ("0:00", 0)])
def test_session_times_may_be_clocks_or_durations(text, seconds):
    assert units.parse_clock(text) == seconds


@pytest.mark.parametrize("text", ["1:2:3:4", "a:b", ":", "1:"])
def test_what_is_no_time_is_refused(text):
    with pytest.raises(UsageError):
        units.parse_clock(text)


def test_missing_is_a_dash_in_every_unit():
    formats = (
        units.clock,
        units.seconds,
        units.rate,
        units.count,
        units.size,
        units.byte_rate,
        units.percent,
    )
    assert {form(None) for form in formats} == {"–"}


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (0, "0"),
        (5.24, "5.2"),
        (99.94, "99.9"),
        (412.3, "412"),
        (3912, "3.9k"),
        (51_500, "52k"),
        (1_200_000, "1.2M"),
    ],
)
def test_rates_take_at_most_five_characters(value, shown):
    assert units.rate(value) == shown
    assert len(shown) <= 5


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (0.019, "19 ms"),
        (0.9994, "999 ms"),
        (1.84, "1.8 s"),
        (42, "42 s"),
        (119, "119 s"),
        (312, "5.2 m"),
        (7200, "2.0 h"),
    ],
)
def test_durations_take_at_most_six_characters(value, shown):
    assert units.seconds(value) == shown
    assert len(shown) <= 6


@pytest.mark.parametrize(
    "value", [0, 1, 999, 1000, 1024, 8192, 9999, 10_000, 99_949, 999_499, 999_500, 1e9, 1e12, 1e15]
)
def test_counts_never_grow_wide(value):
    assert len(units.count(value)) <= 7


def test_foreign_text_loses_every_control_sequence():
    hostile = "ok\x1b[2J\x1b]0;owned\x07 \x9b31m \u202eevil\u2066\r\nnext\x00"
    shown = clean(hostile)
    assert "\x1b" not in shown
    assert not any(ord(letter) < 32 or 0x7F <= ord(letter) < 0xA0 for letter in shown)
    assert "\u202e" not in shown
    assert shown.startswith("ok")


def test_long_foreign_text_is_cut():
    assert clean("x" * 1000, 20) == "x" * 19 + "…"
