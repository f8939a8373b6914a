"""Which agent a slot serves: only what the counts show beyond doubt."""

from agenttop.model.frames import AgentSample, SlotSample
from agenttop.node.join import Joiner

URL = "http://127.0.0.1:8080"


def agent(name, prompt=None, state="decode", turn=1, cached=None):
    return AgentSample(
        t=1,
        agent=name,
        engine=URL,
        profile="human",
        state=state,
        state_since=0,
        turn=turn,
        prompt_tokens=prompt,
        cached_tokens=cached,
    )


def slot(number, held=None, decoded=None, task=7, phase="decode", cached=None):
    return SlotSample(
        t=1,
        engine=URL,
        slot=number,
        phase=phase,
        task=task,
        context_tokens=held,
        decoded_tokens=decoded,
        cached_tokens=cached,
    )


def joined(slots):
    return {sample.slot: sample.agent for sample in slots}


def test_a_slot_is_joined_when_its_prompt_size_is_one_agents_alone():
    slots = [slot(0, held=520, decoded=20), slot(1, held=905, decoded=5, task=8)]
    assert joined(Joiner().join(slots, [agent("a1", 900), agent("a2", 500)])) == {0: "a2", 1: "a1"}


def test_two_agents_of_the_same_prompt_size_are_not_guessed():
    slots = [slot(0, held=520, decoded=20), slot(1, held=510, decoded=10, task=8)]
    assert joined(Joiner().join(slots, [agent("a1", 500), agent("a2", 500)])) == {0: None, 1: None}


def test_a_pair_holds_while_task_and_turn_last_even_when_the_counts_drift():
    joiner = Joiner()
    assert joined(joiner.join([slot(0, held=520, decoded=20)], [agent("a1", 500)])) == {0: "a1"}
    assert joined(joiner.join([slot(0, held=590, decoded=60)], [agent("a1", 500)])) == {0: "a1"}


def test_the_agent_learns_its_slot_for_as_long_as_the_request_lasts():
    joiner = Joiner()
    joiner.join([slot(2, held=520, decoded=20)], [agent("a1", 500)])
    assert joiner.slot_of(agent("a1", 500)) == 2
    assert joiner.slot_of(agent("a1", 500, state="tool")) is None
    assert joiner.slot_of(agent("a1", 700, turn=2)) is None
    assert joiner.slot_of(agent("a2", 500)) is None


def test_a_pair_ends_with_the_task():
    joiner = Joiner()
    joiner.join([slot(0, held=520, decoded=20)], [agent("a1", 500)])
    assert joined(joiner.join([slot(0, held=120, decoded=20, task=9)], [agent("a1", 500)])) == {0: None}


def test_a_pair_ends_with_the_turn():
    joiner = Joiner()
    joiner.join([slot(0, held=520, decoded=20)], [agent("a1", 500)])
    assert joined(joiner.join([slot(0, held=520, decoded=20)], [agent("a1", 700, turn=2)])) == {0: None}


def test_idle_slots_and_pausing_agents_are_never_joined():
    assert joined(Joiner().join([slot(0, held=520, decoded=20, phase="idle")], [agent("a1", 500)])) == {
        0: None
    }
    assert joined(Joiner().join([slot(0, held=520, decoded=20)], [agent("a1", 500, state="tool")])) == {
        0: None
    }


def test_a_stranger_beside_the_agents_stays_a_stranger():
    slots = [slot(0, held=520, decoded=20), slot(1, held=3000, decoded=100, task=8)]
    assert joined(Joiner().join(slots, [agent("a1", 500)])) == {0: "a1", 1: None}


def test_while_prefilling_the_share_from_the_cache_tells():
    slots = [
        slot(0, phase="prefill", cached=300, held=310, decoded=0),
        slot(1, phase="prefill", cached=0, task=8),
    ]
    agents = [agent("a1", state="prefill", cached=300), agent("a2", state="prefill", cached=0)]
    assert joined(Joiner().join(slots, agents)) == {0: "a1", 1: None}


def test_a_build_that_tells_the_whole_prompt_while_prefilling_is_joined_by_it():
    slots = [slot(0, phase="prefill", held=222, decoded=0, cached=0)]
    agents = [agent("a1", 222, state="prefill", cached=0), agent("a2", 400, state="prefill", cached=0)]
    assert joined(Joiner().join(slots, agents)) == {0: "a1"}
