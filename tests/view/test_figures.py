import pytest

from agenttop.model.frames import LoadSample, Turn
from agenttop.view.figures import figures, turn_figures
from tests.view import scenes
from tests.view.draw import folded
from tests.view.test_store import agent, slot


def turn(t: float, first: float, **changes: object) -> Turn:
    fields = {
        "t": t,
        "agent": "a1",
        "engine": scenes.URL,
        "profile": "human",
        "turn": 1,
        "t_queued": t - 10,
        "t_sent": t - 10,
        "t_first_token": t - 10 + first,
        "t_last_token": t,
        **changes,
    }
    return Turn(**fields)  # type: ignore[arg-type]


def test_first_token_times_come_from_raw_turns() -> None:
    store = folded([turn(20.0 + number, float(number)) for number in range(1, 6)])
    found = turn_figures(store, scenes.URL)
    assert (found.turns, found.ttft_p50, found.ttft_p95) == (5, 3.0, pytest.approx(4.8))


def test_compactions_and_failures_have_no_first_token_time() -> None:
    store = folded(
        [turn(20.0, 1.0, turn_kind="compact"), turn(21.0, 2.0, t_first_token=None), turn(22.0, 3.0)]
    )
    assert turn_figures(store, scenes.URL).ttft_p50 == 3.0


def test_pace_and_cached_share() -> None:
    store = folded([turn(20.0, 5.0, output_tokens=51, prompt_tokens=100, cached_tokens=75)])
    found = turn_figures(store, scenes.URL)
    assert found.tpot_p50 == pytest.approx(0.1)
    assert found.cached_fraction == 0.75


def test_turns_of_another_engine_do_not_count() -> None:
    store = folded([turn(20.0, 5.0, engine="http://other:1")])
    assert turn_figures(store, scenes.URL).turns == 0


def test_they_follow_the_window() -> None:
    store = folded([turn(20.0, 5.0), turn(250.0, 1.0)], 250.0)
    assert turn_figures(store, scenes.URL).ttft_p50 == 3.0
    store.feed([], 400.0)
    assert turn_figures(store, scenes.URL).ttft_p50 == 1.0


def test_the_rate_of_the_agents_stands_in_where_the_engine_has_none() -> None:
    load = LoadSample(t=5.0, engine=scenes.URL, decode_tok_s=31.5)
    store = folded([scenes.engine(5.0, decode_tok_s=None), load])
    found = figures(store, store.engines[scenes.URL])
    assert found.rated == "load"
    assert found.decode_tok_s == 31.5


def test_the_median_is_over_those_that_decode_now() -> None:
    frames = [scenes.engine(1.0), agent(1.0, "a1", decode_tok_s=10.0), agent(1.0, "a2", decode_tok_s=20.0)]
    frames += [agent(1.0, "a3", state="tool", decode_tok_s=None)]
    store = folded(frames)
    found = figures(store, store.engines[scenes.URL])
    assert (found.per_agent_p50, found.per, found.decoding) == (15.0, "agent", 2)


def test_without_agents_it_is_over_slots() -> None:
    store = folded([scenes.engine(1.0), slot(1.0, 0, phase="decode", decode_tok_s=8.0)])
    found = figures(store, store.engines[scenes.URL])
    assert (found.per_agent_p50, found.per) == (8.0, "slot")
