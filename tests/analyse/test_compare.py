"""The row of a level: every figure by hand, what is missing as None, and the verdict in words."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from agenttop.analyse.compare import LevelRow, level_rows, levels_of
from agenttop.analyse.tokens import arrival_times, decode_rate, tokens_between
from agenttop.model.frames import EngineSample, Frame, GpuSample, HostSample, Level, LoadSample, Turn
from agenttop.record.read import Recording
from tests.record.build import URL, arrivals, record, session, session_frames, turn

PROMISED = [
    "file", "host", "agents", "decode_tok_s_per_agent_p50", "decode_tok_s", "prefill_tok_s", "ttft_s_p50",
    "turns", "completions_per_min", "kv_max_fraction", "compactions", "preemptions", "failures", "valid",
    "why_invalid",
]  # fmt: skip
"""The keys scripts rely on."""

Rows = Callable[..., LevelRow]


def load(t: float, agents: int = 2, **changes: object) -> LoadSample:
    return LoadSample(t=t, engine=URL, profile="human", target=agents, active=agents, **changes)  # type: ignore[arg-type]


def engine(t: float, **changes: object) -> EngineSample:
    known: dict[str, object] = {"engine": URL, "url": URL, "name": "llama.cpp", "state": "ok", "model": "m"}
    return EngineSample(t=t, **(known | changes))  # type: ignore[arg-type]


def steady_turns() -> list[Turn]:
    """Two agents until t = 100, each with a turn of 100 tokens every 10 s: TTFT 0.5 s, 20 tok/s."""
    return [
        turn(
            sent=start + offset,
            first=start + offset + 0.5,
            tokens=100,
            rate=20.0,
            agent=agent,
            number=number + 1,
            prompt_tokens=1000,
            cached_tokens=900 if number else 0,
        )
        for number, start in enumerate(range(0, 100, 10))
        for agent, offset in (("a1", 0.5), ("a2", 1.5))
    ]


@pytest.fixture
def row(tmp_path: Path) -> Rows:
    """`row(turns, loads=..., more=...)`: the one level of a session with two agents from t = 0 to 101."""

    def make(
        turns: list[Turn] | None = None,
        *,
        loads: list[LoadSample] | None = None,
        more: list[Frame] | None = None,
        end: float = 101.0,
    ) -> LevelRow:
        frames: list[Frame] = [Level(t=0.0, level=0, agents=2, t_end=end)]
        frames += loads if loads is not None else [load(t + 0.5) for t in range(int(end) + 1)]
        frames += steady_turns() if turns is None else turns
        frames += more or []
        path = record(tmp_path / "a.agenttop", sorted(frames, key=lambda frame: frame.t))
        with Recording(path) as recording:
            (made,) = levels_of(recording)
        return made

    return make


def test_the_promised_keys_are_there(tmp_path: Path) -> None:
    path = record(tmp_path / "a.agenttop", session_frames([(1, 60), (3, 60)]))
    rows = level_rows([path])
    assert [row["agents"] for row in rows] == [1, 3]
    for row in rows:
        assert set(PROMISED) <= set(row)
        assert (row["file"], row["host"], row["valid"], row["why_invalid"]) == (str(path), "box1", True, None)


def test_every_figure_by_hand(row: Rows) -> None:
    more: list[Frame] = []
    for second in range(101):
        t = second + 0.25
        more.append(engine(t, kv_used_tokens=second * 10, kv_pool_tokens=2000, waiting=second % 3))
        more.append(HostSample(t=t, cpu_fraction=second / 200))
        more.append(
            GpuSample(t=t, gpu="g", index=0, vendor="v", name="n", throttle=["power cap"] * (second % 4 == 0))
        )
    made = row(more=more)
    # Both run from the first sample at 0.5 on; the second one's first token comes at 2.0.
    assert (made.t_start, made.warm_up_s, made.window_s, made.t_end) == (0.0, 2.0, 99.0, 101.0)
    assert (made.valid, made.why_invalid) == (True, None)
    # 99 intervals of 0.05 s between 100 tokens.
    assert made.decode_tok_s_per_agent_p50 == pytest.approx(20.0)
    # All tokens but the 20 of a1 before t = 2.0 (1.0, 1.05 ... 1.95).
    assert made.decode_tok_s == pytest.approx((20 * 100 - 20) / 99.0)
    # The two cold prefills end as the window begins; 18 others of 100 tokens lie within it.
    assert made.prefill_tok_s == pytest.approx(18 * 100 / 99.0)
    assert made.ttft_s_p50 == pytest.approx(0.5)
    assert made.itl_s_p50 == pytest.approx(0.05, abs=2e-6)
    assert (made.turns, made.compactions, made.failures) == (20, 0, 0)
    assert made.completions_per_min == pytest.approx(20 * 60 / 99)
    assert made.prefix_hit_fraction == pytest.approx(0.9)
    assert made.kv_max_fraction == pytest.approx(1000 / 2000)
    assert made.waiting_max == 2
    assert made.cpu_max_fraction == pytest.approx(100 / 200)
    assert made.gpu_throttled_fraction == pytest.approx(25 / 99)
    assert made.preemptions is None
    assert (made.engine, made.model, made.profile) == (URL, "m", "human")


def test_the_first_prompt_of_an_agent_is_no_lost_prefix_hit(row: Rows) -> None:
    turns = [made for made in steady_turns() if (made.agent, made.t_sent) != ("a2", 1.5)]
    refused = turn(sent=1.5, agent="a2", number=0, t=1.6, error_kind="http-5xx", error="x")
    # The warm-up waits no longer for a2, whose cold prompt is answered ten seconds later.
    turns = [
        msgspec.structs.replace(made, cached_tokens=0) if (made.agent, made.t_sent) == ("a2", 11.5) else made
        for made in (refused, *turns)
    ]
    assert row(turns).prefix_hit_fraction == pytest.approx(0.9)


def test_stalls_are_those_of_agents_whether_their_requests_failed_or_not(row: Rows) -> None:
    stalled = {20: 1, 21: 1, 22: 2, 50: 1, 51: 3}
    made = row(loads=[load(t + 0.5, stalled=stalled.get(t, 0)) for t in range(102)])
    assert made.stalls == 2 + 3
    assert made.failures == 0


def test_what_was_not_measured_is_none_and_never_zero(row: Rows) -> None:
    bare = [
        msgspec.structs.replace(
            made, cached_tokens=None, prompt_tokens=None, output_tokens=None, arrivals=None
        )
        for made in steady_turns()
    ]
    made = row(bare)
    for name in (
        "decode_tok_s_per_agent_p50",
        "prefill_tok_s",
        "prefix_hit_fraction",
        "itl_s_p50",
        "kv_max_fraction",
        "waiting_max",
        "preemptions",
        "cpu_max_fraction",
        "gpu_throttled_fraction",
        "model",
    ):
        assert getattr(made, name) is None, name
    assert made.decode_tok_s is None
    assert made.turns == 20


def test_preemptions_are_a_difference_and_unknown_after_a_restart(row: Rows) -> None:
    more: list[Frame] = [engine(t + 0.25, preemptions_total=100 + t // 10) for t in range(100)]
    assert row(more=more).preemptions == 9


def test_a_restart_makes_preemptions_unknown_and_the_level_invalid(row: Rows) -> None:
    more: list[Frame] = [engine(t + 0.25, preemptions_total=t, restarts=int(t > 50)) for t in range(100)]
    made = row(more=more)
    assert made.preemptions is None
    assert made.why_invalid == "the engine was restarted"


def test_compactions_and_failures_are_counted_apart(row: Rows) -> None:
    turns = steady_turns()
    turns[6] = msgspec.structs.replace(turns[6], turn_kind="compact")
    turns[8] = msgspec.structs.replace(turns[8], error_kind="stall", error="no byte for 60 s")
    turns[9] = msgspec.structs.replace(turns[9], error_kind="cancelled")
    made = row(turns)
    assert (made.turns, made.compactions, made.failures) == (17, 1, 1)


def test_tokens_of_a_cancelled_request_are_estimated_and_said_to_be(row: Rows) -> None:
    turns = steady_turns()
    # Each event of the others holds two tokens.
    turns = [
        msgspec.structs.replace(made, events=50, arrivals=arrivals([0.5 + i / 10 for i in range(50)]))
        for made in turns
    ]
    turns[-1] = msgspec.structs.replace(turns[-1], output_tokens=None, error_kind="cancelled")
    made = row(turns)
    assert made.decode_tok_s == pytest.approx((20 * 100 - 20) / 99.0)
    assert made.estimated_fraction == pytest.approx(100 / (20 * 100 - 20))


@pytest.mark.parametrize(
    ("why", "arguments"),
    [
        ("too short: 18 s after the warm-up, 30 s are needed", {"end": 20.0}),
        ("too short: 29.9 s after the warm-up, 30 s are needed", {"end": 31.97}),
        ("no turn was completed", {"turns": []}),
        ("only 1 of 2 agents completed a turn", {"turns": [t for t in steady_turns() if t.agent == "a1"]}),
        (
            "only 1 of 2 agents ran all the time",
            {"loads": [load(t + 0.5, 2 - (t == 70)) for t in range(102)]},
        ),
        ("the agents were paused", {"loads": [load(t + 0.5, paused=t == 70) for t in range(102)]}),
        (
            "the recording has a hole of 11 s",
            {"loads": [load(t + 0.5) for t in range(102) if not 50 <= t < 60]},
        ),
        (
            "the client was the limit in 20 % of it (event loop 80 ms late)",
            {
                "loads": [
                    load(t + 0.5, client_limited="event loop 80 ms late" if t % 5 == 0 else None)
                    for t in range(102)
                ]
            },
        ),
        (
            "the engine was not serving for 3 samples (down)",
            {"more": [engine(t + 0.25, state="down" if 40 <= t < 43 else "ok") for t in range(100)]},
        ),
    ],
)
def test_a_level_that_may_not_be_judged_says_why(row: Rows, why: str, arguments: dict[str, object]) -> None:
    made = row(**arguments)
    assert not made.valid
    assert made.why_invalid is not None
    assert why in made.why_invalid.split("; ")


def test_an_engine_that_hangs_is_not_measured_by_those_it_still_serves(row: Rows) -> None:
    loads = [load(float(second), stalled=1) for second in range(100)]
    why = row(steady_turns(), loads=loads).why_invalid
    assert why is not None
    assert "agents were stalled for 50 % of their time" in why


def test_counts_that_cannot_be_right_make_it_invalid(row: Rows) -> None:
    lying = [msgspec.structs.replace(one, output_limit_tokens=5) for one in steady_turns()]
    why = row(lying).why_invalid
    assert why is not None
    assert "token counts cannot be right" in why
    assert "where at most 5 were asked for" in why


def test_many_failures_make_it_invalid(row: Rows) -> None:
    turns = [
        msgspec.structs.replace(made, error_kind="http-5xx") if index % 5 == 0 else made
        for index, made in enumerate(steady_turns())
    ]
    assert row(turns).why_invalid == "4 of 20 requests failed (most: http-5xx)"


def test_a_decode_rate_that_falls_makes_it_unsteady(row: Rows) -> None:
    turns = []
    for index, old in enumerate(steady_turns()):
        sent = old.t_sent or 0.0
        rate = 60.0 - 2 * index
        turns.append(
            turn(sent=sent, first=sent + 0.5, tokens=100, rate=rate, agent=old.agent, number=old.turn)
        )
    made = row(turns)
    assert made.why_invalid is not None
    assert made.why_invalid.startswith("unsteady: the decode rate per agent fell from")
    # Rates 58, 56 ... 22 (the first turn of all lies in the warm-up): medians 53 first, 27 last, 40 of all.
    assert made.decode_drift_fraction == pytest.approx(-26 / 40)


def test_agents_that_never_ran_together_leave_all_figures_empty(row: Rows) -> None:
    made = row(loads=[load(t + 0.5, 1) for t in range(102)])
    assert made.why_invalid == "its 2 agents never ran together for long enough to be judged"
    assert (made.decode_tok_s, made.turns, made.failures) == (None, None, None)


def test_another_engine_beside_it_does_not_count(row: Rows) -> None:
    other = "http://127.0.0.1:9999"
    more: list[Frame] = [
        EngineSample(t=t + 0.25, engine=other, url=other, name="x", state="down", kv_used_fraction=0.99)
        for t in range(100)
    ]
    made = row(more=more)
    assert made.valid
    assert made.kv_max_fraction is None


def test_a_session_without_agents_has_no_level(tmp_path: Path) -> None:
    path = record(tmp_path / "a.agenttop", [engine(1.0), engine(2.0)], first=session(host="quiet"))
    assert level_rows([path]) == []


def test_the_decode_rate_of_a_turn_is_the_inverse_of_its_time_per_output_token() -> None:
    assert decode_rate(turn(sent=0.0, first=1.0, tokens=51, rate=25.0)) == pytest.approx(25.0)
    assert decode_rate(turn(sent=0.0, first=1.0, tokens=1)) is None
    assert decode_rate(turn(sent=0.0)) is None
    assert decode_rate(turn(sent=0.0, first=1.0, tokens=9, error_kind="cut")) is None


def test_tokens_are_spread_over_arrivals_or_else_over_the_time_they_took() -> None:
    made = turn(sent=10.0, first=11.0, tokens=100, rate=10.0)
    assert arrival_times(made)[:2] == pytest.approx([11.0, 11.1])
    assert tokens_between(made, 11.0, 13.0, None) == (20.0, False)
    double = msgspec.structs.replace(made, output_tokens=200)
    assert tokens_between(double, 11.0, 13.0, None) == (40.0, False)
    smooth = msgspec.structs.replace(made, arrivals=None)
    tokens, estimated = tokens_between(smooth, 11.0, 13.0, None)
    assert (tokens, estimated) == (pytest.approx(100 * 2.0 / 9.9), False)
    unknown = msgspec.structs.replace(made, output_tokens=None)
    assert tokens_between(unknown, 11.0, 13.0, None) == (0.0, False)
    assert tokens_between(unknown, 11.0, 13.0, 1.5) == (30.0, True)
