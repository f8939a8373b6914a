from agenttop.view.series import WINDOW_S, Series, quantile


def filled(*points: tuple[float, float | None]) -> Series:
    series = Series()
    for t, value in points:
        series.put(t, value)
    return series


def test_one_value_per_second_oldest_first() -> None:
    series = filled((0.1, 1.0), (1.1, 2.0), (2.1, 3.0))
    assert series.last(3, 2.2) == [1.0, 2.0, 3.0]
    assert series.last(5, 2.2) == [None, None, 1.0, 2.0, 3.0]


def test_a_second_skipped_by_a_late_sample_is_no_gap() -> None:
    assert filled((0.99, 1.0), (2.01, 3.0)).last(3, 2.1) == [1.0, 3.0, 3.0]


def test_a_pause_in_the_samples_stays_a_gap() -> None:
    series = filled((0.0, 1.0), (5.0, 2.0))
    assert series.last(6, 5.0) == [1.0, None, None, None, None, 2.0]


def test_a_sample_that_says_nothing_is_a_gap() -> None:
    assert filled((0.0, 1.0), (1.0, None), (2.0, float("nan")), (3.0, 4.0)).last(4, 3.0) == [
        1.0,
        None,
        None,
        4.0,
    ]


def test_a_rate_that_ends_within_its_second_is_not_erased() -> None:
    assert filled((0.2, 5.0), (0.8, None)).last(1, 0.9) == [5.0]


def test_silence_moves_the_window_on() -> None:
    series = filled((0.0, 1.0), (1.0, 2.0))
    assert series.last(2, 3.0) == [1.0, 2.0]
    assert series.last(4, 4.0) == [2.0, None, None, None]
    assert series.last(4, 900.0) == [None] * 4


def test_only_the_last_five_minutes_are_kept() -> None:
    series = filled(*((float(second), float(second)) for second in range(1000)))
    assert series.last(WINDOW_S, 999.0) == [float(second) for second in range(700, 1000)]
    assert series.last(WINDOW_S + 2, 999.0)[:3] == [None, None, 700.0]


def test_columns_keep_their_values_while_they_move_to_the_left() -> None:
    series = filled(*((float(second), float(second)) for second in range(20)))
    before = series.columns(4, 3, 19.0)
    series.put(20.0, 20.0)
    series.put(21.0, 21.0)
    after = series.columns(4, 3, 21.0)
    assert before[1:3] == [(13.0, 14.0), (16.0, 17.0)]
    assert after[:3] == [(13.0, 14.0), (16.0, 17.0), (19.0, 20.0)]
    assert after[3] == (21.0, 21.0)


def test_a_column_without_samples_is_a_gap() -> None:
    series = filled((0.0, 1.0), (1.0, 3.0), (8.0, 5.0))
    assert series.columns(5, 2, 8.0) == [(2.0, 3.0), None, None, None, (5.0, 5.0)]


def test_quantiles_lie_between_neighbours() -> None:
    assert quantile([], 0.5) is None
    assert quantile([3.0], 0.95) == 3.0
    assert quantile([1.0, 2.0], 0.5) == 1.5
    assert quantile([0.0, 10.0, 20.0, 30.0, 40.0], 0.95) == 38.0
