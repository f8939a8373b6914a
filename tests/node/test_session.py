"""Whole sessions: a real node, a real driver, a real llama.cpp server."""

import os
import signal
from array import array
from pathlib import Path

import pytest

from agenttop.commands.doors import running
from agenttop.model import commands as c
from agenttop.model.clock import SystemClock
from agenttop.model.frames import (
    AgentSample,
    EngineSample,
    Event,
    Level,
    LoadSample,
    OwnSample,
    Plan,
    SlotSample,
)
from agenttop.record.read import Recording
from agenttop.stream.lines import AttachSource
from tests.node.live import Live, live
from tests.servers import STEADY, free_port
from tests.waiting import gone, until

QUICK = str(Path(__file__).with_name("quick.toml"))


def start(session, url, target=2, **options):
    session.source.send(c.StartAgents(engine=url, profile=QUICK, target=target, **options))


def test_agents_run_compact_and_are_recorded_to_the_last_turn(start_llama, tmp_path):
    server = start_llama()
    out = tmp_path / "session.agenttop"
    with live(urls=[server.url], out=out) as session:
        start(session, server.url, target=3)
        session.until(lambda: session.newest(Plan))
        session.until(lambda: sum(turn.turn_kind == "compact" for turn in session.turns) >= 2, 60)
        session.source.send(c.StopAll())
        session.until(lambda: session.load and session.load.active == 0)
        session.source.send(c.Quit())
        assert session.until_ended() == "ended by the user"
        turns = session.turns
    assert turns
    assert all(turn.output_tokens for turn in turns if turn.error_kind is None)
    recording = Recording(out)
    assert recording.session.session == session.session.session
    assert len(recording.turns()) == len(turns)
    assert {event.event for event in recording.events()} >= {
        "agents.target",
        "agents.stop-all",
        "session.end",
    }
    assert not out.with_name(out.name + "-wal").exists()
    recording.close()


@pytest.mark.slow
def test_slots_are_joined_with_agents_and_their_rates_agree_with_the_drivers_counts_within_5_percent(
    start_llama, tmp_path
):
    server = start_llama(shape=STEADY, context=16384)
    profile = tmp_path / "long.toml"  # one long reply each, and prompts of different sizes
    text = Path(QUICK).read_text().replace("min = 40, max = 80", "min = 2200, max = 2300")
    text = text.replace("limit = 1200", "limit = 3900")
    profile.write_text(text.replace("first = 120", 'first = { kind = "uniform", min = 100, max = 400 }'))
    with live(urls=[server.url], record=False) as session:
        session.source.send(c.StartAgents(engine=server.url, profile=str(profile), target=3))

        def looks():
            """Looks at slots whose whole window lay within one request of a known agent."""
            begun = {
                agent.agent: agent.state_since for agent in session.of(AgentSample) if agent.state == "decode"
            }
            return [
                slot
                for slot in session.of(SlotSample)
                if slot.agent
                and slot.decode_tok_s
                and slot.agent in begun
                and slot.t > begun[slot.agent] + 4.0
            ]

        session.until(lambda: len(looks()) >= 24, 90, "ten seconds or so of three slots")
        seen = looks()
        session.source.send(c.StopAll())
        session.until(lambda: len({turn.agent for turn in session.turns}) == 3)
    arrivals = {
        turn.agent: [turn.t_sent + offset / 1e6 for offset in array("I", turn.arrivals)]
        for turn in session.turns
    }
    windows = {sample.t: sample.window_s for sample in session.of(EngineSample)}
    for agent in arrivals:
        shown = counted = 0.0
        for slot in (slot for slot in seen if slot.agent == agent):
            window = windows[slot.t]
            shown += slot.decode_tok_s
            counted += sum(slot.t - window < t <= slot.t for t in arrivals[agent]) / window
        assert shown == pytest.approx(counted, rel=0.05)


def test_stopping_all_gives_up_a_start_that_waits_for_its_engine():
    url = f"http://127.0.0.1:{free_port()}"
    with live(urls=[url], record=False) as session:
        start(session, url)
        session.source.send(c.StopAll())
        session.until(lambda: [event for event in session.of(Event) if event.event == "agents.stop-all"])
        session.source.send(c.SetTarget(target=1))
        refused = session.until(
            lambda: [event for event in session.of(Event) if event.event == "command.refused"]
        )
    assert "no load is set up yet" in refused[0].text


def test_stopping_all_frees_the_slots_of_the_engine(start_llama):
    server = start_llama(shape=STEADY)
    with live(urls=[server.url], record=False) as session:
        start(session, server.url, target=4)
        session.until(lambda: len(server.busy_slots()) >= 3, 60, "three busy slots")
        session.source.send(c.StopAll())
        session.until(lambda: not server.busy_slots(), 10, "all slots free")
        session.until(lambda: session.load.active == 0 and session.load.target == 0)
        assert session.event("agents.stop-all")


@pytest.mark.slow
def test_adding_removing_and_stopping_one_are_events_with_the_right_numbers(llama_server):
    with live(urls=[llama_server.url], record=False) as session:
        start(session, llama_server.url, target=1)
        session.until(lambda: session.load and session.load.active == 1)
        session.source.send(c.AddAgents(count=2))
        session.until(lambda: session.load.active == 3)
        session.source.send(c.StopAgent(agent="a2"))
        session.until(lambda: session.load.active == 2 and session.load.target == 2)
        session.source.send(c.AddAgents(count=-1))
        session.until(lambda: session.load.active == 1 and session.load.target == 1)
        assert {name for name, agent in session.agents().items() if agent.state != "stopped"} == {"a1"}
        session.source.send(c.SetTarget(target=2))
        session.until(lambda: session.load.active == 2)
        assert "a4" in session.agents()


def test_another_load_in_place_of_the_one_that_runs_is_an_event(llama_server, tmp_path):
    other = tmp_path / "other.toml"
    other.write_text(Path(QUICK).read_text())
    with live(urls=[llama_server.url], record=False) as session:
        start(session, llama_server.url, target=2)
        session.until(lambda: session.load and session.load.active == 2)
        session.source.send(c.StartAgents(engine=llama_server.url, profile=str(other), target=2))
        replaced = session.until(lambda: session.event("agents.replaced"))
        assert replaced.text == "2 agents of quick replaced by other"
        session.until(lambda: session.load.active == 2 and session.load.profile == "other")
        session.source.send(c.SetTarget(target=1))
        assert session.until(lambda: session.event("agents.fewer")).text == "agents 2 → 1 (other)"


def test_load_goes_only_where_it_is_allowed(start_llama):
    server = start_llama()
    with live(urls=[], record=False, discover=True) as session:
        session.until(
            lambda: any(e.subject == server.url for e in session.of(Event) if e.event == "engine.found"), 30
        )
        start(session, server.url)
        refusal = session.until(lambda: session.event("command.refused"))
        assert "found, not named" in refusal.text
        assert server.busy_slots() == []
        start(session, server.url, confirmed=True)
        session.until(lambda: session.event("engine.confirmed"))
        session.until(lambda: session.turns)


@pytest.mark.parametrize(
    ("command", "says"),
    [
        (c.AddAgents(count=1), "no load is set up"),
        (c.StopAgent(agent="a9"), "no agent a9"),
        (
            c.StartAgents(engine="http://127.0.0.1:9", profile="human", target=1),
            "not an engine of this session",
        ),
    ],
)
def test_what_cannot_be_done_is_refused_in_a_sentence(command, says):
    with live(urls=["http://127.0.0.1:1"], record=False) as session:
        session.source.send(command)
        assert says in session.until(lambda: session.event("command.refused")).text


def test_a_wrong_profile_is_refused_with_the_line_and_key(llama_server, tmp_path):
    broken = tmp_path / "broken.toml"
    broken.write_text(Path(QUICK).read_text().replace("limit = 1200", 'limit = "much"'))
    with live(urls=[llama_server.url], record=False) as session:
        session.source.send(c.StartAgents(engine=llama_server.url, profile=str(broken), target=1))
        refusal = session.until(lambda: session.event("command.refused"))
        assert "context.limit" in refusal.text


@pytest.mark.slow
def test_a_run_against_an_engine_that_is_down_fails_and_says_so():
    with live(urls=["http://127.0.0.1:1"], record=False) as session:
        session.source.send(
            c.RunPlan(engine="http://127.0.0.1:1", profile="human", levels=[1], seconds=600.0)
        )
        assert "cannot take load: nothing listens" in session.until_ended(30)


@pytest.mark.slow
def test_a_run_goes_through_its_levels_and_ends_by_itself(llama_server, tmp_path):
    out = tmp_path / "run.agenttop"
    with live(urls=[llama_server.url], out=out) as session:
        plan = c.RunPlan(engine=llama_server.url, profile=QUICK, levels=[1, 3], seconds=4.0)
        session.source.send(plan)
        assert session.until_ended(60) == "the run has ended"
        assert [level.agents for level in session.of(Level)] == [1, 3]
        assert max(load.active for load in session.of(LoadSample)) == 3
        assert session.source.wait_exit(10) == 0
    assert running() == []


def test_the_server_restarting_in_mid_run_is_survived_and_marked(start_llama):
    server = start_llama()
    with live(urls=[server.url], record=False) as session:
        start(session, server.url)
        session.until(lambda: len(session.turns) > 2, 60)
        server.kill()
        session.until(lambda: session.engine.state == "down", 30)
        assert session.event("engine.down")
        session.until(
            lambda: [turn for turn in session.turns if turn.error_kind in ("cut", "refused", "restarted")], 30
        )
        again = start_llama(port=server.port)
        session.until(lambda: session.engine.state == "ok" and session.engine.restarts == 1, 30)
        assert session.event("engine.restart")
        done = sum(turn.error_kind is None for turn in session.turns)
        session.until(lambda: sum(turn.error_kind is None for turn in session.turns) > done + 2, 60)
        assert all(slot.decode_tok_s is None or slot.decode_tok_s >= 0 for slot in session.of(SlotSample))
        again.stop()


def test_a_killed_driver_is_reported_and_the_session_goes_on(llama_server):
    with live(urls=[llama_server.url], record=False) as session:
        start(session, llama_server.url)
        driver = session.until(lambda: session.newest(OwnSample, role="driver"))
        os.kill(driver.pid, signal.SIGKILL)
        session.until(lambda: session.event("driver.lost"))
        session.until(lambda: all(agent.state == "stopped" for agent in session.agents().values()))
        begun = len(session.turns)
        start(session, llama_server.url)
        session.until(lambda: len(session.turns) > begun)
        session.until(lambda: not llama_server.busy_slots() or session.turns)


def test_a_killed_node_takes_its_driver_along_and_leaves_a_whole_recording(start_llama, tmp_path):
    server = start_llama()
    out = tmp_path / "killed.agenttop"
    with live(urls=[server.url], out=out) as session:
        start(session, server.url)
        driver = session.until(lambda: session.newest(OwnSample, role="driver"))
        session.until(lambda: len(session.turns) >= 3, 60)
        session.until(lambda: session.now > session.turns[0].t + 1.5)  # all but the last second is safe
        seen = session.now
        session.source.process.kill()
        assert "unexpectedly" in session.until_ended()
        until(lambda: gone(driver.pid), what="the end of the driver")
        until(lambda: not server.busy_slots(), what="free slots")
    recording = Recording(out)
    assert recording.duration >= seen - 2.0
    assert recording.turns()
    recording.close()
    assert running() == []


def test_the_session_outlives_its_console_and_is_found_again(start_llama):
    server = start_llama()
    with live(urls=[server.url], record=False) as session:
        start(session, server.url)
        session.until(lambda: session.turns)
        node = session.source.process.pid
        session.source.close()  # the console is gone, as with kill -9: the pipe is closed, nothing was said
        (door,) = until(lambda: [door for door in running() if door.pid == node and door.consoles == 0])
        again = Live(AttachSource(door, SystemClock()))
        again.until(lambda: again.session)
        assert again.session == session.session
        first = len(again.turns)
        assert again.event("agents.target"), "the past is handed over"
        again.until(lambda: len(again.turns) > first)
        again.source.send(c.StopAll())
        again.until(lambda: again.load and again.load.active == 0)
        again.source.send(c.Leave())
        again.source.close()
        until(lambda: gone(node), what="the end of a node with no console and no agents")
        session.source.process.wait()


def test_an_idle_session_ends_with_its_console():
    with live(urls=["http://127.0.0.1:1"], record=False) as session:
        session.source.close()
        assert session.source.wait_exit(20) == 0


def test_a_hang_up_of_the_terminal_does_not_reach_the_node(llama_server):
    with live(urls=[llama_server.url], record=False) as session:
        start(session, llama_server.url, target=1)
        session.until(lambda: session.turns)
        os.kill(session.source.process.pid, signal.SIGHUP)
        seen = len(session.turns)
        session.until(lambda: len(session.turns) > seen)


def test_a_polite_signal_ends_the_session_in_order(llama_server, tmp_path):
    out = tmp_path / "term.agenttop"
    with live(urls=[llama_server.url], out=out) as session:
        start(session, llama_server.url, target=1)
        session.until(lambda: session.turns)
        os.kill(session.source.process.pid, signal.SIGTERM)
        assert session.until_ended() == "ended by signal SIGTERM"
    assert not out.with_name(out.name + "-wal").exists()


def test_a_load_is_set_up_once(start_llama, tmp_path):
    """What is found out about the engine for it is asked, and told, once."""
    server = start_llama()
    with live(urls=[server.url], out=tmp_path / "session.agenttop") as session:
        session.source.send(c.StartAgents(engine=server.url, profile="human", target=1))
        session.until(lambda: session.event("agents.no-tools"))
        session.until(lambda: session.newest(SlotSample, phase="prefill") or session.turns)
        assert [event.event for event in session.of(Event)].count("agents.no-tools") == 1
