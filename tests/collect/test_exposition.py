"""Replies by an engine's own names: aliases, ranks, reasons, histograms."""

from __future__ import annotations

from agenttop.collect.engine.exposition import MOST_COUNTS, Catalogue

CATALOGUE = Catalogue(
    ("e:", "e_"),
    {"running": ("running", "old_running"), "done": ("done_total",)},
    ("process_start",),
    {"itl": ("itl_seconds", "tpot_seconds")},
)


def buckets(name: str, counts: dict[str, int], labels: str = "", total: float = 1.0) -> str:
    lines = [f'{name}_bucket{{{labels}le="{edge}"}} {count}' for edge, count in counts.items()]
    bare = f"{{{labels.rstrip(',')}}}" if labels else ""
    return "\n".join([*lines, f"{name}_sum{bare} {total}", ""])


def test_the_newest_name_that_is_there_counts() -> None:
    assert CATALOGUE.read("e:old_running 3\ne:running 2\n").count("running") == 2
    assert CATALOGUE.read("e:old_running 3\n").count("running") == 3
    assert CATALOGUE.read("e_running 4\n").count("running") == 4
    assert not CATALOGUE.read("other:running 4\nprocess_start 3\n").is_the_engines
    assert CATALOGUE.read("e:done_total 1\nprocess_start 3\n").plain("process_start") == 3


def test_series_are_summed_and_nonsense_is_left_out() -> None:
    found = CATALOGUE.read('e:running{engine="0"} 2\ne:running{engine="1"} NaN\ne:running{engine="2"} -1\n')
    assert found.total("running") == 2
    assert found.each("running") == {"0": 2.0, "2": -1.0}
    assert CATALOGUE.read("e:running 1e300\n").total("running") is None


def test_counts_by_a_label_are_fit_for_a_frame() -> None:
    text = (
        'e:done_total{engine="0",why="stop"} 3\ne:done_total{engine="1",why="stop"} 4\n'
        'e:done_total{why="\x1b[2Jlong"} 1\ne:done_total{why="bad"} -2\ne:done_total{why="nan"} NaN\n'
        'e:done_total{why=""} 9\n'
    )
    found = CATALOGUE.read(text).counts("done", "why")
    assert found["stop"] == 7
    assert all(reason.isprintable() for reason in found)
    assert not {"bad", "nan", ""} & found.keys()
    many = "".join(f'e:done_total{{why="{number}"}} 1\n' for number in range(1000))
    assert len(CATALOGUE.read(many).counts("done", "why")) == MOST_COUNTS


def test_histograms_of_several_ranks_are_one() -> None:
    text = buckets("e:itl_seconds", {"0.1": 1, "1": 3, "+Inf": 4}, 'engine="0",', 2.0)
    text += buckets("e:itl_seconds", {"0.1": 0, "1": 1, "+Inf": 1}, 'engine="1",', 0.5)
    histogram = CATALOGUE.read(text).histograms["itl"]
    assert (histogram.counts, histogram.total_s, histogram.count) == ((1, 4, 5), 2.5, 5)


def test_an_older_histogram_stands_in_and_a_broken_one_is_left_out() -> None:
    old = buckets("e:tpot_seconds", {"0.1": 1, "+Inf": 2})
    assert CATALOGUE.read(old).histograms["itl"].count == 2
    broken = buckets("e:itl_seconds", {"0.1": 5, "+Inf": 2})
    assert CATALOGUE.read(broken + old).histograms["itl"].count == 2
    assert CATALOGUE.read(broken).histograms == {}
    assert CATALOGUE.read(buckets("e:itl_seconds", {"0.1": 1})).histograms == {}


def test_sums_that_are_not_true_are_not_read() -> None:
    unsure = Catalogue(("e:",), {}, histograms={"itl": ("itl_seconds",)}, sums=False)
    histogram = unsure.read(buckets("e:itl_seconds", {"0.1": 1, "+Inf": 2})).histograms["itl"]
    assert (histogram.count, histogram.total_s) == (2, None)
