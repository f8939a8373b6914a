"""`/metrics` of every captured build, and what two scrapes say together."""

from __future__ import annotations

import msgspec
import pytest

from agenttop.collect.engine.http import EngineClient
from agenttop.collect.engine.kinds.llamacpp.metrics import Metrics, MetricsSource, parse_metrics
from agenttop.collect.engine.kinds.llamacpp.slots import Slot, parse_slots
from agenttop.model.clock import ManualClock
from tests.collect import samples


def read(name: str, at: float = 0.0, process: str | None = None) -> Metrics:
    found = parse_metrics(samples.body(f"llamacpp/{name}").decode(), at, process)
    assert found is not None
    return found


@pytest.mark.parametrize(
    "name", ["b11434/idle/metrics.txt", "b11549/idle/metrics.txt", "b11063/idle-metrics.txt"]
)
def test_idle(name: str) -> None:
    metrics = read(name)
    assert (metrics.running, metrics.waiting) == (0, 0)
    assert metrics.counters == (0, 0, 0, 0)


def test_after_load() -> None:
    metrics = read("b11434/after/metrics.txt")
    assert metrics.counters == (4 * 148, 0, 4 * 160, 163)


def test_a_build_without_a_counter_says_none() -> None:
    metrics = read("b8672/after-metrics.txt")
    assert metrics.cached_tokens is None
    assert metrics.output_tokens == 1600


@pytest.mark.parametrize(
    "text", ["", "<html>", "[]", "# TYPE llamacpp:x counter\n", "vllm:num_requests_running 3\n"]
)
def test_a_body_without_samples_of_llama_cpp(text: str) -> None:
    assert parse_metrics(text, 0.0, None) is None


def test_values_that_are_no_counts() -> None:
    text = "llamacpp:requests_processing nan\nllamacpp:requests_deferred -1\nllamacpp:n_decode_total +Inf\n"
    metrics = parse_metrics(text, 0.0, None)
    assert metrics is not None
    assert (metrics.running, metrics.waiting, metrics.decode_calls) == (None, None, None)
    beyond = parse_metrics("llamacpp:prompt_tokens_total 1e308\n", 0.0, None)
    assert beyond is not None
    assert beyond.prompt_tokens is None


def test_large_counters_in_short_form() -> None:
    metrics = parse_metrics("llamacpp:prompt_tokens_total 1.23457e+07\n", 0.0, None)
    assert metrics is not None
    assert metrics.prompt_tokens == 12345700


def test_which_process_answers() -> None:
    before = read("b11434/after/metrics.txt", process="100")
    idle = read("b11434/idle/metrics.txt", process="200")
    assert idle.went_back(before)
    assert idle.is_of_another_process(before)
    assert not before.is_of_another_process(before)
    # Counters of a server that slept begin anew in the same process.
    assert not msgspec.structs.replace(idle, process="100").is_of_another_process(before)
    # Builds that do not mark their process: the counters are all there is.
    unmarked = msgspec.structs.replace(before, process=None)
    assert msgspec.structs.replace(idle, process=None).is_of_another_process(unmarked)
    assert not unmarked.is_of_another_process(unmarked)


def table(*busy: bool, counted: bool = True) -> list[Slot]:
    rows = [
        {
            "id": number,
            "is_processing": works,
            "id_task": 1,
            "n_prompt_tokens_processed": 5 if counted else None,
        }
        for number, works in enumerate(busy)
    ]
    return parse_slots(msgspec.json.encode(rows))


@pytest.mark.parametrize(
    ("slots", "waiting", "every_s"),
    [
        (table(False, False), 0, 10),
        (table(True, False), 0, 10),
        (table(True, True), 0, 2),  # requests may wait
        (table(True, False), 3, 2),  # they did, a moment ago
        (table(True, False, counted=False), 0, 2),  # prefill is told here only
        (None, 0, 1),  # there is nothing else
    ],
)
def test_how_often_it_is_worth_a_scrape(slots: list[Slot] | None, waiting: int, every_s: int) -> None:
    clock = ManualClock()
    source = MetricsSource(EngineClient("http://127.0.0.1:1", [], now=clock.monotonic), wanted=True)
    assert source.due(slots)  # never scraped
    idle = read("b11434/idle/metrics.txt", at=clock.now)
    source.latest = msgspec.structs.replace(idle, waiting=waiting)
    for _ in range(every_s - 1):
        clock.advance(1.0)
        assert not source.due(slots)
    clock.advance(1.0)
    assert source.due(slots)


def test_the_moment_a_slot_comes_free_is_worth_one() -> None:
    clock = ManualClock()
    source = MetricsSource(EngineClient("http://127.0.0.1:1", [], now=clock.monotonic), wanted=True)
    source.latest = read("b11434/idle/metrics.txt", at=clock.now)
    assert not source.due(table(True, True))
    assert source.due(table(True, False))
    assert not source.due(table(True, False))


def test_it_is_not_asked_when_unwanted_or_refused() -> None:
    client = EngineClient("http://127.0.0.1:1", [], now=ManualClock().monotonic)
    assert not MetricsSource(client, wanted=False).due(None)
    source = MetricsSource(client, wanted=True)
    source.refused = True
    assert not source.due(None)
