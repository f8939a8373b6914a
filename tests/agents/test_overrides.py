"""Keys set by the user, profiles written back, and saved under another name."""

from __future__ import annotations

import random
import statistics
from pathlib import Path

import msgspec
import pytest

from agenttop import paths
from agenttop.agents.check import parse
from agenttop.agents.distribution import Distribution
from agenttop.agents.overrides import read_settings
from agenttop.agents.profile import as_toml, load, save_as
from agenttop.agents.scale import hasten, scale
from agenttop.agents.settings import child_profile
from agenttop.errors import UsageError
from tests.agents.profiles import profile

BUNDLED = sorted(file.stem for file in paths.bundled_profiles().glob("*.toml"))


def said(name: str, overrides: dict[str, str]) -> str:
    with pytest.raises(UsageError) as caught:
        load(name, overrides)
    return str(caught.value)


def test_settings_are_read_from_the_command_line() -> None:
    assert read_settings(["context.limit=32k", "turn.output={kind='constant',value=2}"]) == {
        "context.limit": "32k",
        "turn.output": "{kind='constant',value=2}",
    }
    for odd in ("x", "=3", "a=", " = "):
        with pytest.raises(UsageError, match="is not KEY=VALUE"):
            read_settings([odd])


def test_values_may_be_written_short() -> None:
    human = load(
        "human",
        {
            "context.limit": "32k",
            "turn.output": '{kind="constant",value=200}',
            "turn.input": "500",
            "start.kind": "every",
            "start.stagger_s": "2m",
            "request.ignore_eos": "false",
            "pacing.human_pause_s": "none",
            "agents": "9",
            "description": "mine",
        },
    )
    assert human.context.limit == 32_000
    assert human.turn.output == Distribution(kind="constant", value=200.0)
    assert human.turn.input.median == 500
    assert (human.start.kind, human.start.stagger_s) == ("every", 120)
    assert human.request.ignore_eos is False
    assert human.pacing.human_pause_s is None
    assert human.pacing.tool_turns is None  # it means nothing without a person
    assert (human.agents, human.description) == (9, "mine")


def test_a_part_of_a_distribution_can_be_set() -> None:
    before = load("human").turn.input
    moved = load("human", {"turn.input.median": "1484"}).turn.input
    assert moved.median == pytest.approx(1484)
    assert moved.sigma == before.sigma
    assert load("human", {"turn.input.max": "900"}).turn.input.max == 900
    assert load("busy", {"pacing.tool_pause_s.median": "4"}).pacing.tool_pause_s.median == 4
    with_person = load("busy", {"pacing.human_pause_s.median": "30"}).pacing.human_pause_s
    assert with_person == Distribution(kind="constant", value=30.0)
    least = load("human", {"context.first.median": "5e-324"}).context.first  # the factor to it is 0
    assert least == Distribution(kind="constant", value=5e-324)


def test_another_way_to_start_lets_go_of_what_belonged_to_the_old_one() -> None:
    for kind in ("at-once", "spread", "steady"):
        start = load("human", {"start.kind": kind}).start
        assert (start.kind, start.stagger_s) == (kind, 0.0)
    assert load("human", {"start.kind": "steady", "start.stagger_s": "5"}).start.stagger_s == 5


def test_sub_agents_can_be_added() -> None:
    sets = {"every": "3", "count": "2", "turns": "4", "first": "1k", "system": "600"}
    made = load("human", {f"children.{key}": value for key, value in sets.items()})
    assert made.children is not None
    child = child_profile(made)
    assert (child.context.system, child.context.tools, child.context.first.median) == (600, 0, 1000)
    assert child.turn.output == made.turn.output
    assert child.children is None


@pytest.mark.parametrize(
    ("overrides", "sentence"),
    [
        ({"contex.limit": "3"}, "--set: contex: not a key of a profile; nearest: context"),
        (
            {"context.limit": "lots"},
            '--set: context.limit: expected a whole number from 256 to 10000000, found "lots"',
        ),
        ({"turn.input.foo": "3"}, "--set: turn.input: foo: not a figure of log-normal; expected max"),
        ({"turn.input.median": "x"}, "--set: turn.input.median: expected a number from 0 to 10000000"),
        ({"turn.output": "{kind=3}"}, "--set: turn.output: kind: expected one of"),
        ({"start.kind": "soon"}, '--set: start.kind: expected one of "at-once", "every"'),
        ({"context.system": "none"}, "--set: context.system: expected a whole number"),
        ({"agents": "[1\n2]"}, "--set: agents: expected a whole number"),
        ({"context.limit": "1\nagents = 3"}, "--set: context.limit: expected a whole number"),
        ({"children.count": "2"}, "children.turns: missing"),
        ({"context": "3"}, "--set: context: expected a section [context]"),
        ({"description": "\u202e"}, "--set: description: expected text in quotes"),  # nothing that shows
    ],
)  # fmt: skip
def test_mistakes_are_one_clear_sentence_each(overrides: dict[str, str], sentence: str) -> None:
    assert sentence in said("human", overrides)


def test_a_contradiction_names_what_was_set() -> None:
    text = said("human", {"context.limit": "2k"})
    assert "human.toml:" in text
    assert "do not fit into the limit (2000), with --set context.limit=2k" in text


@pytest.mark.parametrize(
    ("sets", "sentence"),
    [
        ({"start.kind": "every", "start.cycle_s": "60"}, "means nothing without start.kind spread"),
        ({"start.kind": "spread", "start.stagger_s": "3"}, "contradicts start.kind spread"),
        ({"start.kind": "steady", "context.turns": "2"}, "steady needs contexts that grow"),
        ({"context.shared_document": "100"}, "can be shared only behind a system prompt that is"),
        ({"children.count": "1", "children.turns": "1", "children.first": "9"}, "either every or chance"),
        (
            {"children.count": "1", "children.turns": "1", "children.every": "1", "children.first": "3000"},
            "does not fit into the limit",
        ),
    ],
)  # fmt: skip
def test_what_does_not_go_together(sets: dict[str, str], sentence: str) -> None:
    with pytest.raises(AssertionError, match=sentence.replace("(", r"\(").replace(")", r"\)")):
        profile(sets=sets)


# Distributions from what was seen


def test_values_are_drawn_as_often_as_they_weigh() -> None:
    seen = Distribution(kind="empirical", values=(10.0, 20.0, 300.0), weights=(6.0, 3.0, 1.0))
    rng = random.Random(3)
    drawn = [seen.draw(rng) for _ in range(5000)]
    assert set(drawn) == {10, 20, 300}
    assert drawn.count(10.0) / 5000 == pytest.approx(0.6, abs=0.03)
    assert drawn.count(300.0) / 5000 == pytest.approx(0.1, abs=0.02)
    assert (seen.median, seen.lowest) == (10, 10)
    assert seen.scaled(2).values == (20, 40, 600)


def test_quantiles_are_interpolated() -> None:
    seen = Distribution(kind="empirical", quantiles=(0.0, 100.0, 200.0, 1000.0, 5000.0), max=2000)
    rng = random.Random(4)
    drawn = sorted(seen.draw(rng) for _ in range(8000))
    quartiles = statistics.quantiles(drawn, n=4)
    assert quartiles == pytest.approx([100, 200, 1000], rel=0.08)
    assert max(drawn) == 2000
    assert seen.mean_value == pytest.approx(statistics.mean(drawn), rel=0.05)


@pytest.mark.parametrize(
    "written",
    [
        '{ kind = "empirical" }',
        '{ kind = "empirical", values = [1], quantiles = [1, 2] }',
        '{ kind = "empirical", values = [] }',
        '{ kind = "empirical", values = [1, "x"] }',
        '{ kind = "empirical", values = [1, 2], weights = [1] }',
        '{ kind = "empirical", values = [1, 2], weights = [0, 0] }',
        '{ kind = "empirical", quantiles = [3, 2] }',
        '{ kind = "empirical", quantiles = [3] }',
        '{ kind = "uniform", min = 1, max = 2, values = [1] }',
    ],
)
def test_odd_lists_are_refused(written: str) -> None:
    with pytest.raises(AssertionError, match=r"turn\.input"):
        profile(input=written)


# Written back


@pytest.mark.parametrize("name", BUNDLED)
def test_a_profile_written_as_toml_reads_back_as_the_same(name: str) -> None:
    before = load(name)
    again, problems = parse(as_toml(before), name)
    assert problems == []
    assert again == before


def test_odd_values_survive_being_written() -> None:
    sets = {
        "description": '"say \\"hi\\" \\\\ ünd"',
        "turn.input": '{kind="empirical",values=[1,2.5],weights=[3,1],max=2}',
        "turn.output": '{kind="empirical",quantiles=[1,2,3]}',
        "compaction.kind": "truncate",
        "context.turns": "3",
    }
    before = profile(sets=sets)
    again, problems = parse(as_toml(before), "test")
    assert problems == []
    assert again == before


def test_saving_takes_a_free_name_only() -> None:
    mine = load("human", {"context.limit": "64k"})
    file = save_as(mine, "mine")
    assert file == paths.user_profiles() / "mine.toml"
    saved = load("mine")
    assert msgspec.structs.replace(saved, name="human") == mine
    assert file.read_text(encoding="utf-8").count("# ") > 15  # every key with its meaning
    with pytest.raises(UsageError, match="there is a profile 'mine' already"):
        save_as(mine, "mine")
    with pytest.raises(UsageError, match="'busy' comes with agenttop"):
        save_as(mine, "busy")
    for odd in ("", "../x", "a/b", ".hidden", "x" * 80, "mine.toml", "a b"):
        with pytest.raises(UsageError, match="is no name for a profile"):
            save_as(mine, odd)


def test_a_folder_that_cannot_be_written_is_one_sentence(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("AGENTTOP_PROFILES", str(tmp_path / "file"))
    with pytest.raises(UsageError, match="cannot be written"):
        save_as(load("human"), "mine")


# Fitted to an engine


def test_everything_that_has_a_size_is_fitted() -> None:
    before = load("swarm")
    after = scale(before, 16_384).profile
    factor = after.context.limit / before.context.limit
    assert before.children is not None
    assert after.children is not None
    for name in ("system", "tools"):
        assert getattr(after.context, name) == pytest.approx(getattr(before.context, name) * factor, rel=0.01)
    assert after.children.shared_document == pytest.approx(before.children.shared_document * factor, rel=0.01)
    assert after.children.first.median == pytest.approx(before.children.first.median * factor, rel=0.01)
    assert after.turn.results == "tool"
    faster = hasten(scale(before, None), 2).profile
    assert faster.children is not None
    assert before.children.tool_pause_s is not None
    assert faster.children.tool_pause_s is not None
    assert faster.children.tool_pause_s.mean == pytest.approx((before.children.tool_pause_s.mean or 0) / 2)
