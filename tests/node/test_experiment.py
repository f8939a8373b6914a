"""Ramps, levels that settle, the search for the knee: a real node, a real driver, a real llama.cpp server."""

from pathlib import Path

import pytest

from agenttop.model import commands as c
from agenttop.model.frames import Event, Finding, Level, LoadSample
from agenttop.record.read import Recording
from tests.node.live import live
from tests.servers import free_port

QUICK, BRISK = (str(Path(__file__).with_name(f"{name}.toml")) for name in ("quick", "brisk"))


def ramp(url, first, last, step=1, hold_s=1.5, **fields):
    return c.Ramp(first=first, last=last, step=step, hold_s=hold_s, engine=url, profile=QUICK, **fields)


def events(session, name):
    return [event for event in session.of(Event) if event.event == name]


@pytest.mark.slow
def test_a_ramp_climbs_and_leaves_its_last_agents_running(llama_server):
    with live(urls=[llama_server.url], record=False) as session:
        session.source.send(ramp(llama_server.url, 1, 3))
        session.until(lambda: events(session, "ramp.end"))
        levels = session.of(Level)
        assert [(level.agents, level.of, level.origin) for level in levels] == [
            (1, 3, "ramp"),
            (2, 3, "ramp"),
            (3, 3, "ramp"),
        ]
        assert all(level.t_end == pytest.approx(level.t + 1.5) for level in levels)
        assert events(session, "ramp.end")[0].text == "the ramp has reached 3 agents, which go on"
        turns = len(session.turns)
        session.until(lambda: session.load.active == 3 and len(session.turns) > turns + 3)
        # Those of the first level are still the ones that run: their conversations went on.
        assert {"a1", "a2", "a3"} == {
            name for name, one in session.agents().items() if one.state != "stopped"
        }


@pytest.mark.slow
def test_a_level_of_a_ramp_is_held_once_all_its_agents_run(llama_server):
    with live(urls=[llama_server.url], record=False) as session:
        session.source.send(ramp(llama_server.url, 3, 3, hold_s=1.5, stagger_s=1.0))
        session.until(lambda: events(session, "ramp.end"))
        (level,) = session.of(Level)
        assert level.t_end == pytest.approx(level.t + 2.0 + 1.5, abs=0.3)
        assert "held once all of them run" in events(session, "run.level")[0].text
        loads = session.of(LoadSample)
        assert all(load.active < 3 for load in loads if load.t < level.t + 1.9)
        session.until(lambda: session.load.active == 3)
        # It was not the user who set its agents off.
        assert {event.source for event in events(session, "agents.target")} == {"node"}


@pytest.mark.slow
def test_a_level_too_short_for_its_staggered_starts_says_so(llama_server, tmp_path):
    with live(urls=[llama_server.url], out=tmp_path / "short.agenttop") as session:
        plan = c.RunPlan(engine=llama_server.url, profile=QUICK, levels=[3], seconds=2.0, stagger_s=60.0)
        session.source.send(plan)
        session.until_ended(60)
        assert "the staggered starts of the agents take 2.0 m" in session.event("run.starts").text
        assert max(load.active for load in session.of(LoadSample)) == 1


@pytest.mark.slow
def test_steering_by_hand_ends_a_ramp_with_a_sentence(llama_server):
    with live(urls=[llama_server.url], record=False) as session:
        session.source.send(ramp(llama_server.url, 1, 4, hold_s=600.0))
        session.until(lambda: session.load and session.load.active == 1)
        session.source.send(c.AddAgents(count=1))
        session.until(lambda: session.load.active == 2)
        assert "steered by hand" in events(session, "ramp.end")[0].text
        assert len(session.of(Level)) == 1
        session.source.send(c.SetTarget(target=1))
        session.until(lambda: session.load.active == 1)


def test_stopping_all_stops_a_ramp_and_not_the_session(llama_server):
    with live(urls=[llama_server.url], record=False) as session:
        session.source.send(ramp(llama_server.url, 2, 8, hold_s=600.0))
        session.until(lambda: session.load and session.load.active == 2)
        session.source.send(c.StopAll())
        session.until(lambda: session.load.active == 0)
        assert events(session, "ramp.end")[0].text == "the ramp was stopped before its end"
        session.source.send(ramp(llama_server.url, 1, 1, hold_s=0.5))
        session.until(lambda: len(events(session, "ramp.end")) == 2)


@pytest.mark.slow
def test_going_down_takes_new_agents_and_counts_no_failures(llama_server):
    with live(urls=[llama_server.url], record=False) as session:
        session.source.send(ramp(llama_server.url, 3, 1, step=2, hold_s=3.0))
        session.until(lambda: events(session, "ramp.end"))
        first, second = session.of(Level)
        assert (first.cold, second.cold) == (False, True)
        assert {name for name, one in session.agents().items() if one.state != "stopped"} == {"a4"}
        assert session.newest(LoadSample).failures == 0
        late = [turn for turn in session.turns if turn.t_queued > second.t + 0.1]
        assert {turn.agent for turn in late} == {"a4"}


def test_a_ramp_with_the_load_in_force_needs_one(llama_server):
    with live(urls=[llama_server.url], record=False) as session:
        session.source.send(c.Ramp(first=1, last=2, step=1, hold_s=1.0))
        assert "no load is set up yet" in session.until(lambda: session.event("command.refused")).text
        session.source.send(c.StartAgents(engine=llama_server.url, profile=QUICK, target=2, seed=7))
        session.until(lambda: session.load and session.load.active == 2)
        session.source.send(c.Ramp(first=2, last=3, step=1, hold_s=1.0))
        session.until(lambda: events(session, "ramp.end"))
        assert not any(level.cold for level in session.of(Level)), "the agents that run stay"


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"first": 0}, "at least one agent"),
        ({"last": 9999}, "out of range"),
        ({"hold_s": 0.0}, "time to hold"),
    ],
)
def test_a_ramp_that_cannot_be_is_refused(fields, says):
    url = f"http://127.0.0.1:{free_port()}"
    wish = {"first": 1, "last": 2, "step": 1, "hold_s": 1.0, "engine": url, "profile": QUICK, **fields}
    with live(urls=[url], record=False) as session:
        session.source.send(c.Ramp(**wish))
        assert says in session.until(lambda: session.event("command.refused")).text


def test_a_run_cannot_be_steered_by_hand(llama_server):
    with live(urls=[llama_server.url], record=False) as session:
        session.source.send(c.RunPlan(engine=llama_server.url, profile=QUICK, levels=[1], seconds=600.0))
        session.until(lambda: session.load and session.load.active == 1)
        session.source.send(c.AddAgents(count=1))
        assert "a run is in progress" in session.until(lambda: session.event("command.refused")).text
        session.source.send(ramp(llama_server.url, 1, 2))
        session.until(lambda: len(events(session, "command.refused")) == 2)
        assert session.load.active == 1


@pytest.mark.slow
def test_levels_settle_and_say_how_they_ended(llama_server, tmp_path):
    out = tmp_path / "settled.agenttop"
    with live(urls=[llama_server.url], out=out) as session:
        plan = c.RunPlan(engine=llama_server.url, profile=QUICK, levels=[1, 2], seconds=14.0, settle=True)
        session.source.send(plan)
        assert session.until_ended(110) == "the run has ended"
        ends = events(session, "run.level-end")
        assert len(ends) == 2
        assert all(" steady" in end.text for end in ends)
        assert [level.t_end for level in session.of(Level)] == [None, None]
    with Recording(out) as recording:
        assert recording.finished


@pytest.mark.slow
def test_the_knee_of_a_real_engine_is_searched_within_the_budget(llama_server, tmp_path):
    out = tmp_path / "knee.agenttop"
    budget_s = 50.0
    with live(urls=[llama_server.url], out=out) as session:
        session.source.send(
            c.FindKnee(engine=llama_server.url, profile=BRISK, most=4, budget_s=budget_s, slo="ttft<=20s")
        )
        assert session.until_ended(100) == "the search has ended"
        levels = session.of(Level)
        assert levels[0].agents == 1
        assert len(levels) >= 2, "one level is no search"
        assert levels[0].purpose == "climb"
        assert all(1 <= level.agents <= 4 and level.origin == "search" for level in levels)
        assert session.event("run.end").t - levels[0].t <= budget_s + 5.0
        finding = session.newest(Finding)
        assert session.event("run.found").text == finding.sentence
    report = finding.report
    assert report["search"]["levels"] == len(levels)
    found = report["knee"]["agents"]
    assert found is None or found in {level.agents for level in levels}
    with Recording(out) as recording:
        assert recording.of(Finding)[-1].sentence == finding.sentence
        assert len(recording.of(Level)) == len(levels)


@pytest.mark.parametrize("settle", [False, True])
def test_a_run_whose_agents_have_all_given_up_fails_at_once(start_sim, settle):
    sim = start_sim(fault="4xx=404", speedup=20.0)
    with live(urls=[sim.url], record=False) as session:
        seconds = 3600.0
        session.source.send(
            c.RunPlan(engine=sim.url, profile=BRISK, levels=[2, 4], seconds=seconds, settle=settle)
        )
        ended = session.until_ended(60)
        assert ended.startswith("the run failed: no agent is left")
        assert len(session.of(Level)) == 1, "no further level is tried"
