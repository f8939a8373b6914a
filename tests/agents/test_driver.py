"""The driver process with agents on a real llama.cpp server: what they do, and how they take failures."""

from __future__ import annotations

import itertools
import signal
import struct
import time

import psutil
import pytest

from agenttop.model.commands import HaltAgent, HaltAll, LaunchAgent, PauseAll, Shutdown
from agenttop.model.frames import AgentSample, LoadSample, OwnSample
from tests.agents.driving import DriverProcess, driver
from tests.agents.profiles import profile
from tests.servers import STEADY, free_port
from tests.waiting import until

pytestmark = pytest.mark.engine


def states(process: DriverProcess, agent: str) -> list[str]:
    """The states it went through, repeats left out."""
    seen = [sample.state for sample in process.of(AgentSample) if sample.agent == agent]
    return [state for state, _ in itertools.groupby(seen)]


def test_turns_carry_the_engines_own_counts(llama_server) -> None:
    with driver() as d:
        d.configure(llama_server.url, profile(), 2048)
        d.launch(2)
        d.until(lambda: len(d.turns(agent="a1", turn_kind="turn")) >= 4, "four turns")
        d.send(HaltAll(now=False))
        d.until(lambda: d.state("a1") == d.state("a2") == "stopped", "agents to stop")
        assert d.close() == 0
    turns = d.turns(agent="a1", turn_kind="turn", error_kind=None)
    previous = None
    for turn in turns:
        assert (turn.tokens_from, turn.status, turn.finish_reason) == ("usage", 200, "length")
        assert turn.output_tokens == turn.output_limit_tokens == 40
        assert turn.context_tokens == turn.prompt_tokens + turn.output_tokens
        assert turn.t_queued <= turn.t_sent <= turn.t_first_byte <= turn.t_first_token
        assert turn.t_first_token <= turn.t_last_token <= turn.t
        assert turn.prefill_s > 0
        assert 0 < turn.events <= turn.output_tokens
        arrivals = struct.unpack(f"<{turn.events}I", turn.arrivals)
        assert list(arrivals) == sorted(arrivals)
        assert arrivals[-1] / 1e6 == pytest.approx(turn.t_last_token - turn.t_sent, abs=1e-5)
        if previous is not None:
            assert turn.prompt_tokens > previous.prompt_tokens
            assert turn.cached_tokens > 0.5 * previous.prompt_tokens  # the history goes back word for word
            assert turn.turn == previous.turn + 1
        previous = turn
    assert not d.turns(error_kind="cancelled")
    assert {frame.role for frame in d.of(OwnSample)} == {"driver"}


def test_the_same_seed_gives_the_same_sizes_but_no_cached_prompt(llama_server) -> None:
    sizes = []
    for _ in range(2):
        with driver() as d:
            settings = profile(
                input='{ kind = "log-normal", mu = 3.5, sigma = 0.5 }',
                output='{ kind = "uniform", min = 5, max = 30 }',
            )
            d.configure(llama_server.url, settings, 2048, seed=11)
            d.launch(1)
            turns = d.until(lambda: found if len(found := d.turns(turn_kind="turn")) >= 4 else None, "turns")
            sizes.append([(turn.prompt_tokens, turn.output_tokens) for turn in turns[:4]])
            assert turns[0].cached_tokens < 0.5 * turns[0].prompt_tokens
    assert [output for _, output in sizes[0]] == [output for _, output in sizes[1]]


def test_the_context_is_compacted_by_a_request_and_shrinks(llama_server) -> None:
    with driver() as d:
        d.configure(llama_server.url, profile(limit=900, system=60, first=100, to_fraction=0.35), 2048)
        d.launch(1)
        d.until(lambda: len(d.turns(turn_kind="compact")) >= 2, "two compactions")
        d.send(Shutdown())
        assert d.ended() == 0
    turns = [turn for turn in d.turns() if turn.error_kind is None]
    compact = next(index for index, turn in enumerate(turns) if turn.turn_kind == "compact")
    before, request, after = turns[compact - 1 : compact + 2]
    assert before.context_tokens > 700
    assert request.prompt_tokens > before.context_tokens
    assert request.context_tokens == pytest.approx(0.35 * 900, rel=0.15)
    assert after.prompt_tokens < 0.6 * before.context_tokens
    assert all(turn.prompt_tokens + turn.output_tokens <= 2048 for turn in turns)
    assert all(turn.context_tokens <= 900 * 1.05 for turn in turns)
    assert d.agent("a1").compactions >= 2
    assert all(turn.error_kind in (None, "cancelled") for turn in d.turns())


def test_stopping_all_cancels_at_once_and_frees_the_slots(start_llama) -> None:
    server = start_llama(shape=STEADY, context=8192)
    with driver() as d:
        d.configure(server.url, profile(limit=1800, first=50, output=1100), 2048)
        d.launch(4)
        d.until(lambda: d.load() and d.load().in_flight == 4, "four requests")
        until(lambda: len(server.busy_slots()) == 4, what="four busy slots")
        names = [f"a{n}" for n in range(1, 5)]
        d.until(lambda: {d.state(name) for name in names} == {"decode"}, "all to decode")
        d.send(HaltAll(now=True))
        until(lambda: not server.busy_slots(), what="the slots to come free")
        d.until(lambda: len(d.turns(error_kind="cancelled")) == 4, "four cancelled turns")
        d.until(lambda: all(d.state(f"a{n}") == "stopped" for n in range(1, 5)), "agents to stop")
        event = d.events("agents.cancelled")[0]
        assert event.text == "agents stopped: 4, requests in flight cancelled: 4"
        assert event.source == "driver"
        # what arrived before is not lost
        assert all(turn.output_tokens > 0 and turn.tokens_from == "timings" for turn in d.turns())
        assert d.load().active == 0
        assert d.process.poll() is None


def test_a_queued_request_is_cancelled_too(start_llama) -> None:
    server = start_llama(slots=1, shape=STEADY, context=2048)
    with driver() as d:
        d.configure(server.url, profile(limit=1800, first=50, output=1100), 2048)
        d.launch(2)
        d.until(lambda: {d.state("a1"), d.state("a2")} == {"decode", "queued"}, "one to wait for the slot")
        waiting = next(name for name in ("a1", "a2") if d.state(name) == "queued")
        d.send(HaltAgent(agent=waiting, now=True))
        d.until(lambda: d.state(waiting) == "stopped", "the waiting one to stop")
        turn = d.turns(agent=waiting)[0]
        assert (turn.error_kind, turn.t_first_byte, turn.output_tokens) == ("cancelled", None, None)
        d.until(lambda: d.load() and d.load().active == 1, "the count")


def test_an_agent_that_waits_for_its_start_is_not_active(llama_server) -> None:
    with driver() as d:
        d.configure(llama_server.url, profile(limit=1800, first=200, output=100), 2048)
        d.launch(1)
        d.launch(2, at=3600.0, first=2)
        d.until(lambda: d.turns(agent="a1"), "a turn of the one that has started")
        d.until(lambda: d.load() and d.load().turns_done, "the count")
        assert {(load.active, load.target) for load in d.of(LoadSample) if load.turns_done} == {(1, 3)}


def test_live_counts_rates_and_states_while_streaming(start_llama) -> None:
    server = start_llama(shape=STEADY, context=8192)
    with driver() as d:
        d.configure(server.url, profile(limit=1800, first=200, output=800, pause=30), 2048)
        d.launch(1)
        d.until(lambda: d.state("a1") == "tool", "the pause", 60)
        samples = [sample for sample in d.of(AgentSample) if sample.state == "decode"]
        counts = [sample.output_tokens for sample in samples if sample.output_tokens is not None]
        assert counts == sorted(counts)
        assert len(counts) >= 2
        turn = d.turns()[0]
        assert states(d, "a1")[-2:] == ["decode", "tool"]
        arrivals = struct.unpack(f"<{turn.events}I", turn.arrivals)
        checked = 0
        for sample in samples:
            arrived = [time for time in arrivals if turn.t_sent + time / 1e6 <= sample.t]
            if sample.decode_tok_s is None or len(arrived) < 50 or arrived[-1] - arrived[0] > 2.9e6:
                continue
            assert sample.output_tokens == pytest.approx(len(arrived), rel=0.03)
            truth = (sample.output_tokens - 1) / (arrived[-1] - arrived[0]) * 1e6
            assert sample.decode_tok_s == pytest.approx(truth, rel=0.05)
            checked += 1
        assert checked
        sample = d.agent("a1")
        assert sample.state_until - sample.state_since == pytest.approx(30, abs=0.5)
        assert (sample.prompt_tokens, sample.output_tokens) == (None, None)
        assert sample.context_tokens == turn.context_tokens
        loads = [load for load in d.of(LoadSample) if load.in_flight]
        assert any(load.decode_tok_s for load in loads)
        assert any(load.loop_lag_p99_s is not None for load in loads)
        assert all(load.send_late_p99_s is None or load.send_late_p99_s < 5 for load in loads)
        d.until(lambda: d.load().output_tokens_total == turn.output_tokens, "the total")


def test_pausing_holds_back_turns_and_lets_them_go_on(llama_server) -> None:
    with driver() as d:
        d.configure(llama_server.url, profile(), 2048)
        d.launch(1)
        d.until(lambda: len(d.turns()) >= 2, "two turns")
        d.send(PauseAll(on=True))
        d.until(lambda: d.state("a1") == "paused", "the pause")
        d.launch(1, first=2)  # an agent that comes later is held back, too
        d.until(lambda: d.state("a2") == "paused", "the second one")
        count = len(d.turns())
        loads = len(d.of(LoadSample))
        d.until(lambda: len(d.of(LoadSample)) >= loads + 2, "time to pass")
        assert len(d.turns()) == count
        assert d.load().paused
        d.send(PauseAll(on=False))
        d.until(lambda: len(d.turns(agent="a1")) > count and d.turns(agent="a2"), "both to go on")
        resumed = d.turns(agent="a1")[count]
        assert resumed.t_sent - resumed.t_queued < 1.0  # the pause is not counted as lateness


def test_staggered_starts_keep_their_times(llama_server) -> None:
    with driver() as d:
        d.configure(llama_server.url, profile(pause=60), 2048)
        now = 0.5
        d.send(*(LaunchAgent(agent=f"a{n}", number=n, at=now + 0.4 * n) for n in (1, 2, 3)))
        d.until(lambda: len(d.turns()) == 3, "three turns")
        for turn in d.turns():
            planned = now + 0.4 * int(turn.agent[1:])
            assert turn.t_queued == pytest.approx(planned, abs=1e-6) or turn.t_queued > planned
            assert turn.t_sent >= turn.t_queued
        assert states(d, "a3")[0] == "waiting"


def test_letting_a_turn_finish_before_stopping(start_llama) -> None:
    server = start_llama(shape=STEADY)
    with driver() as d:
        d.configure(server.url, profile(limit=1800, first=50, output=300), 2048)
        d.launch(1)
        d.until(lambda: d.state("a1") == "decode", "decoding")
        d.send(HaltAgent(agent="a1", now=False))
        d.until(lambda: d.state("a1") == "stopped", "the stop")
        turn = d.turns()[-1]
        assert (turn.error_kind, turn.output_tokens) == (None, 300)
        assert "stopping" in states(d, "a1")


# Failures


@pytest.mark.slow
def test_a_killed_server_is_waited_for_and_found_again(start_llama) -> None:
    server = start_llama(shape=STEADY)
    with driver() as d:
        d.configure(server.url, profile(limit=1800, first=50, output=500), 2048)
        d.launch(2)
        d.until(lambda: d.load() and d.load().in_flight == 2 and d.state("a1") == "decode", "decoding")
        server.kill()
        d.until(lambda: len(d.turns(error_kind="restarted")) >= 2, "both streams to be cut by its end")
        d.until(lambda: len(d.turns(error_kind="refused")) >= 2, "refused connections")
        d.until(lambda: d.state("a1") == "backoff", "waiting")
        cut = d.turns(error_kind="restarted")[0]
        assert cut.output_tokens > 0
        assert cut.tokens_from == "timings"
        again = start_llama(shape=STEADY, port=server.port)
        assert again.port == server.port
        d.until(lambda: len(d.events("agent.recovered")) == 2, "both agents to come back", 60)
        assert "is back after" in d.events("agent.recovered")[0].text
        d.until(lambda: all(d.state(name) == "decode" for name in ("a1", "a2")), "decoding again")
        assert d.agent("a1").failures >= 2
        # every try is a turn of its own
        numbers = [turn.turn for turn in d.turns(agent="a1")]
        assert numbers == list(range(1, len(numbers) + 1))


def test_a_frozen_server_is_a_stall(start_llama) -> None:
    server = start_llama(shape=STEADY)
    with driver() as d:
        d.configure(server.url, profile(limit=1800, first=50, output=500, stall_s=1, queue_s=3), 2048)
        d.launch(1)
        d.until(lambda: d.state("a1") == "decode", "decoding")
        server.freeze()
        turn = d.until(lambda: d.turns(error_kind="stall"), "the stall")[0]
        assert "in the middle of the stream" in turn.error
        server.thaw()
        d.until(lambda: d.events("agent.recovered"), "the recovery", 60)


def test_a_wrong_key_is_given_up_on(start_llama) -> None:
    server = start_llama(api_key="secret")
    with driver({"AGENTTOP_TEST_WRONG": "guess", "AGENTTOP_TEST_RIGHT": "secret"}) as d:
        d.configure(server.url, profile(), 2048, api_key_env="AGENTTOP_TEST_WRONG")
        d.launch(1)
        event = d.until(lambda: d.events("agent.gave-up"), "giving up")[0]
        assert event.text == "a1 gave up: 401: Invalid API Key"
        assert [turn.status for turn in d.turns()] == [401]
        assert {turn.error_kind for turn in d.turns()} == {"http-4xx"}
        assert d.state("a1") == "stopped"
        d.configure(server.url, profile(), 2048, api_key_env="AGENTTOP_TEST_RIGHT")
        d.launch(1, first=2)
        d.until(lambda: d.turns(agent="a2", error_kind=None), "a turn with the right key")
        d.configure(server.url, profile(), 2048, api_key_env="AGENTTOP_TEST_UNSET")
        event = d.until(lambda: d.events("driver.no-key"), "the missing key")[0]
        assert "AGENTTOP_TEST_UNSET is not set" in event.text
    assert b"secret" not in d.raw
    assert b"guess" not in d.raw


def test_a_smaller_context_than_promised_is_learnt_not_looped(start_llama) -> None:
    server = start_llama(slots=1, context=1024)
    with driver() as d:
        # fitted to a bigger engine than this: the first long context is refused
        d.configure(server.url, profile(limit=3000, system=300, first=600, input=300), 4096)
        d.launch(1)
        d.until(lambda: d.turns(error_kind="context"), "the refusal")
        d.until(lambda: len(d.turns(turn_kind="turn", error_kind=None)) >= 12, "the agent to work on", 60)
        assert len(d.turns(error_kind="context")) <= 3
        assert "exceeds the available context size" in d.events("agent.context-cut")[0].text
        assert d.agent("a1").context_limit_tokens == int(1024 * 0.85)
        assert all(turn.prompt_tokens < 1024 for turn in d.turns(error_kind=None))


def test_a_full_shared_pool_ends_streams_and_agents_come_back(start_llama) -> None:
    server = start_llama(unified=True, slots=4, context=1024)
    with driver() as d:
        # each request alone fits into the pool, four together do not
        d.configure(server.url, profile(limit=850, first=50, output=250), 1024)
        d.launch(4)
        d.until(lambda: d.turns(error_kind="engine-limit"), "the pool to run full", 60)
        d.until(lambda: d.events("agent.recovered"), "an agent to come back", 60)
        assert d.turns(error_kind="engine-limit")[0].error == "Context size has been exceeded."


def test_nobody_there_at_the_start(start_llama) -> None:
    port = free_port()
    with driver() as d:
        d.configure(f"http://127.0.0.1:{port}", profile(), 2048)
        d.launch(3)
        d.until(lambda: len(d.turns(error_kind="refused")) >= 3, "refusals")
        d.until(lambda: d.state("a1") == "backoff", "waiting")
        start_llama(port=port)
        d.until(lambda: d.turns(error_kind=None), "the engine to be found", 60)


def test_no_control_character_of_the_model_reaches_the_node(llama_server) -> None:
    """The demo model babbles escape codes, and its text goes back to it; neither shows in a frame."""
    with driver() as d:
        d.configure(llama_server.url, profile(output=300), 2048)
        d.launch(2)
        d.until(lambda: len(d.turns(error_kind=None)) >= 6, "turns")
        assert d.close() == 0
    assert b"\x1b" not in d.raw
    assert b"\\u001b" not in d.raw
    assert b"Summary of" not in d.raw
    assert b"# task" not in d.raw
    assert d.raw.decode().isprintable() or "\n" in d.raw.decode()


# The process


def test_it_ends_when_stdin_closes_and_cancels(start_llama) -> None:
    server = start_llama(shape=STEADY)
    with driver() as d:
        d.configure(server.url, profile(limit=1800, first=50, output=1100), 2048)
        d.launch(2)
        d.until(lambda: d.load() and d.load().in_flight == 2, "requests")
        assert d.close() == 0
        until(lambda: not server.busy_slots(), what="the slots to come free")
        assert len(d.turns(error_kind="cancelled")) == 2
        assert d.state("a1") == "stopped"


def test_terminate_ends_it_and_interrupt_does_not(llama_server) -> None:
    with driver() as d:
        d.configure(llama_server.url, profile(pause=0), 2048)
        d.launch(1)
        d.until(lambda: d.turns(), "a turn")
        d.signal(signal.SIGINT)
        count = len(d.turns())
        d.until(lambda: len(d.turns()) > count + 2, "it to go on")
        d.signal(signal.SIGTERM)
        assert d.ended() == 0
        assert d.state("a1") == "stopped"


def test_a_reader_that_lags_loses_samples_but_no_turn(llama_server) -> None:
    with driver() as d:
        d.configure(llama_server.url, profile(output=4), 2048)
        d.launch(4)
        d.until(lambda: d.turns(), "a turn")
        d.stop_reading()

        def tasks() -> list[int]:
            return [slot["id_task"] for slot in llama_server.json("/slots")]

        before = max(tasks())
        until(lambda: min(tasks()) > before, what="agents to go on although nobody reads")
        d.go_on_reading()
        d.send(HaltAll(now=False))
        d.until(lambda: d.load() and d.load().active == 0, "the end")
        for name in ("a1", "a2", "a3", "a4"):
            numbers = [turn.turn for turn in d.turns(agent=name)]
            assert numbers == list(range(1, len(numbers) + 1))


def test_it_works_without_uvloop(llama_server, tmp_path) -> None:
    (tmp_path / "uvloop.py").write_text("raise ImportError('not here')")
    with driver({"PYTHONPATH": str(tmp_path)}) as d:
        d.configure(llama_server.url, profile(), 2048)
        d.launch(2)
        d.until(lambda: len(d.turns(error_kind=None)) >= 4, "turns")
        assert d.close() == 0


def test_bad_orders_are_answered_not_fatal(llama_server) -> None:
    with driver() as d:
        d.process.stdin.write(b'{"do": "dance"}\nnonsense\n')
        d.process.stdin.flush()
        d.launch(1)
        d.until(lambda: len(d.events("driver.bad-order")) == 3, "three complaints")
        d.configure("nonsense", profile())
        d.configure(llama_server.url, profile(), settings={"x": 1})
        d.until(lambda: len(d.events("driver.bad-load")) == 2, "two complaints")
        d.configure(llama_server.url, profile(), 2048)
        d.launch(1)
        d.launch(1)
        d.until(lambda: d.turns(), "a turn")
        assert "a1 runs already" in d.events("driver.bad-order")[-1].text


def test_it_costs_nothing_while_there_are_no_agents(llama_server) -> None:
    with driver() as d:
        d.configure(llama_server.url, profile(), 2048)
        d.launch(1)
        d.until(lambda: d.turns(), "a turn")
        d.send(HaltAll(now=True))
        d.until(lambda: d.state("a1") == "stopped", "the stop")
        count = len(d.frames)
        process = psutil.Process(d.process.pid)
        spent = sum(process.cpu_times()[:2])
        time.sleep(1.0)  # the point is that nothing happens for a while
        assert sum(process.cpu_times()[:2]) - spent <= 0.03
        assert len(d.frames) <= count + 3
