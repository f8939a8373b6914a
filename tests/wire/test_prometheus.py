"""Prometheus text: captured replies, and the edges of the format."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agenttop.wire.prometheus import HEADS, LONGEST_HEAD, Reader, parse, total
from tests.collect import samples


def text(name: str) -> str:
    return samples.body(name).decode()


def plain_samples(body: str) -> int:
    return sum(1 for line in body.splitlines() if line and not line.startswith("#"))


@pytest.mark.parametrize(
    "name",
    [
        "llamacpp/b8672/after-metrics.txt",
        "llamacpp/b11434/after/metrics.txt",
        "vllm/metrics.txt",
        "vllm/dp2/metrics.txt",
        "sglang/metrics.txt",
    ],
)
def test_every_sample_of_a_captured_reply_is_found(name: str) -> None:
    body = text(name)
    assert sum(len(series) for series in parse(body).values()) == plain_samples(body) > 10


def test_values_and_labels_of_vllm() -> None:
    found = parse(text("vllm/metrics.txt"), "vllm:num_requests_")
    labels, value = found["vllm:num_requests_running"][0]
    assert labels == {"engine": "0", "model_name": "tiny"}
    assert value == 0
    assert all(name.startswith("vllm:num_requests_") for name in found)


def test_data_parallel_engines_are_series_of_one_name() -> None:
    found = parse(text("vllm/dp2/metrics.txt"), {"vllm:generation_tokens_total"})
    assert list(found) == ["vllm:generation_tokens_total"]
    series = found["vllm:generation_tokens_total"]
    assert [labels["engine"] for labels, _ in series] == ["0", "1"]
    assert total(found, "vllm:generation_tokens_total") == sum(value for _, value in series) > 0
    assert total(found, "vllm:no_such") is None


def test_a_wanted_name_does_not_match_a_longer_one() -> None:
    body = "a_total 1\na_total_x 2\na 3\n"
    assert parse(body, {"a"}) == {"a": [({}, 3.0)]}
    assert parse(body, {"a", "a_total"}) == {"a_total": [({}, 1.0)], "a": [({}, 3.0)]}
    assert parse(body, set()) == {}
    assert set(parse(body, "a_")) == {"a_total", "a_total_x"}


@pytest.mark.parametrize(
    ("line", "labels", "value"),
    [
        ("m 1", {}, 1.0),
        ("m{} 1", {}, 1.0),
        ("m\t1", {}, 1.0),
        ("m 1.23457e+07 1700000000000", {}, 12345700.0),
        ('m{a="1",} 2', {"a": "1"}, 2.0),
        ('m{a="1", b = "2"} 2', {"a": "1", "b": "2"}, 2.0),
        ('m{a="1"}3', {"a": "1"}, 3.0),
        ('m{path="/v1/{id},x"} 4', {"path": "/v1/{id},x"}, 4.0),
        ('m{a="say \\"hi\\" \\\\ \\n."} 5', {"a": 'say "hi" \\ \n.'}, 5.0),
        ('m{a="\\\\n"} 5', {"a": "\\n"}, 5.0),
        ('m_bucket{le="+Inf"} 6 # {trace_id="z"} 1 1700000000', {"le": "+Inf"}, 6.0),
        ("m +Inf", {}, math.inf),
        ('{"a.b","x"="1"} 7', {"x": "1"}, 7.0),
        ('{"a.b", le="1"} 7', {"le": "1"}, 7.0),
    ],
)
def test_one_line(line: str, labels: dict[str, str], value: float) -> None:
    for body in (line, f"# HELP m text\n{line}\nother 9\n"):
        found = parse(body)
        found.pop("other", None)
        assert list(found.values()) == [[(labels, value)]]


def test_not_a_number() -> None:
    assert math.isnan(parse("m NaN\n")["m"][0][1])


@pytest.mark.parametrize(
    "body",
    [
        "",
        "# HELP m m\n# TYPE m counter\n# EOF\n",
        "<!doctype html><html><body>login</body></html>",
        "[]",
        '{"error": {"code": 501, "message": "no metrics 5"}}',
        'm{a="1"',
        'm{a="1} 2',
        "m",
        "m{}",
        "m abc",
        " m 1",
    ],
)
def test_what_is_no_sample_is_skipped(body: str) -> None:
    assert parse(body) == {}
    assert parse(body + "\ngood 1\n") == {"good": [({}, 1.0)]}


def test_open_metrics_samples_are_found_by_their_own_names() -> None:
    body = "# TYPE vllm:x counter\nvllm:x_total 3\nvllm:x_created 1.7e9\n# EOF\n"
    assert parse(body) == {"vllm:x_total": [({}, 3.0)], "vllm:x_created": [({}, 1.7e9)]}


LABEL_TEXT = st.text(st.characters(exclude_characters="\r", exclude_categories=["Cs"]), max_size=20)


@given(st.lists(st.tuples(LABEL_TEXT, st.floats(allow_nan=False)), min_size=1, max_size=5))
def test_any_label_text_comes_back(series: list[tuple[str, float]]) -> None:
    def escape(value: str) -> str:
        return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")

    body = "".join(f'name{{x="{escape(label)}"}} {value!r}\n' for label, value in series)
    assert parse(body) == {"name": [({"x": label}, value) for label, value in series]}


@given(st.text(max_size=200))
@settings(max_examples=50)
def test_no_text_raises(body: str) -> None:
    parse(body)
    parse(body, "a")
    parse(body, {"a"})


# A reader that reads again


LINES = st.lists(
    st.one_of(
        st.sampled_from(
            [
                "m 1",
                "m 2",
                "m{} 3",
                "m 1 1700000000000",
                'm{a="1"} 4',
                'm{a="1"}5',
                'm{a="1 2"}6',
                'm{a="1 2"} 7',
                'm_bucket{le="+Inf"} 6 # {trace_id="z"} 1 1700000000',
                'm_bucket{le="+Inf"} 8',
                "m NaN",
                "m abc",
                "m_more 9",
                "# HELP m is 5",
                '{"a.b","x"="1"} 7',
                "other 1",
                "m\t1",
                "m 1\r",
                "",
                " m 1",
            ]
        ),
        st.text(max_size=30),
    ),
    max_size=12,
)


@given(st.lists(LINES, min_size=1, max_size=4), st.sampled_from([None, "m", ("m", "m_bucket", "a.b")]))
def test_a_reader_reads_every_text_as_if_it_were_the_first(
    texts: list[list[str]], wanted: str | tuple[str, ...] | None
) -> None:
    reader = Reader(wanted)
    for lines in [*texts, *texts]:
        body = "\n".join(lines)
        assert repr(reader.read(body)) == repr(parse(body, wanted))


def test_a_reader_of_endlessly_new_lines_keeps_a_bounded_number_of_them() -> None:
    reader = Reader("m")
    for start in range(0, HEADS * 2, 5000):
        found = reader.read("\n".join(f'm{{a="{number}"}} 1' for number in range(start, start + 5000)))
        assert len(found["m"]) == 5000
    assert len(reader._heads) <= HEADS
    assert len(reader._labels) <= HEADS
    before = len(reader._heads)
    long = "x" * LONGEST_HEAD
    assert reader.read(f'm{{a="{long}"}} 1') == {"m": [({"a": long}, 1.0)]}
    assert len(reader._heads) == before
