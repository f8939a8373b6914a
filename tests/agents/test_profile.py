"""Profile files: what is read, what is said about mistakes, how they are fitted to an engine."""

from __future__ import annotations

import os
import random
import statistics
from pathlib import Path

import pytest

from agenttop import paths
from agenttop.agents.check import parse
from agenttop.agents.distribution import Distribution
from agenttop.agents.keys import KEYS
from agenttop.agents.profile import Profile, load, names, scale
from agenttop.agents.scale import LEAST_OUTPUT, hasten
from agenttop.errors import AgenttopError, UsageError
from tests.agents.profiles import DEFAULTS, TEXT, profile

GOOD = TEXT.format(**DEFAULTS)


def problems(text: str) -> list[str]:
    found, mistakes = parse(text, "x")
    assert found is None
    return [mistake.sentence("x.toml") for mistake in mistakes]


def test_the_bundled_profiles_load_and_say_what_they_imitate() -> None:
    assert {"human", "busy"} <= set(names())
    for name in names():
        assert load(name).description
        text = (paths.bundled_profiles() / f"{name}.toml").read_text(encoding="utf-8")
        assert text.startswith("# ")
        assert "Where the figures come from" in text


def test_busy_is_twelve_at_once_without_pauses_and_human_has_people() -> None:
    busy, human = load("busy"), load("human")
    assert (busy.agents, busy.start.kind, busy.start.stagger_s) == (12, "at-once", 0)
    assert busy.pacing.tool_pause_s.median == 0
    assert busy.pacing.human_pause_s is None
    assert human.pacing.human_pause_s is not None
    assert human.start.stagger_s > 0
    assert busy.context.limit == human.context.limit == 100_000


def test_calibration_of_the_bundled_sizes() -> None:
    """Percentiles of the recorded sessions, which a log-normal meets to within a factor of 1.4."""
    human = load("human")
    rng = random.Random(1)
    for distribution, p25, p75, p95 in (
        (human.turn.input, 329, 1526, 5803),
        (human.turn.output, 137, 430, 1547),
    ):
        quartiles = statistics.quantiles([distribution.draw(rng) for _ in range(4000)], n=20)
        for drawn, recorded in ((quartiles[4], p25), (quartiles[14], p75), (quartiles[18], p95)):
            assert recorded / 1.45 < drawn < recorded * 1.45


def test_a_profile_survives_the_way_to_the_driver() -> None:
    for name in names():
        scaled = scale(load(name), 4096).profile
        assert Profile.from_settings(scaled.settings()) == scaled


def test_settings_of_something_else_are_refused() -> None:
    with pytest.raises(ValueError, match="description"):
        Profile.from_settings({"name": "x"})


def test_a_users_profile_goes_before_a_bundled_one() -> None:
    folder = paths.user_profiles()
    folder.mkdir(parents=True)
    (folder / "busy.toml").write_text(GOOD)
    (folder / "mine.toml").write_text(GOOD)
    assert load("busy").description == "for tests"
    assert load("mine").name == "mine"
    assert "mine" in names()


def test_an_unknown_name_gets_the_nearest_one() -> None:
    with pytest.raises(UsageError) as caught:
        load("humna")
    assert "no profile 'humna'" in str(caught.value)
    assert "did you mean human?" in str(caught.value)


def test_every_mistake_gets_its_line() -> None:
    text = (
        'description = "x"\n'
        "agnets = 3\n"
        "[context]\n"
        'limit = "lots"\n'
        "system = 100\n"
        'first = { kind = "lognormal", mu = 3 }\n'
        "[turn]\n"
        'input = { kind = "log-normal", mu = 3 }\n'
        "output = 5\n"
        "[compaction]\n"
        "to_fraction = 2\n"
        "summary = true\n"
        "[pacing]\n"
        "tool_pause_s = -1\n"
    )
    found = problems(text)
    assert [line.split(": ")[0] + ": " + line.split(": ")[1] for line in found] == [
        "x.toml:2: agnets",
        "x.toml:4: context.limit",
        "x.toml:6: context.first",
        "x.toml:8: turn.input",
        "x.toml:11: compaction.to_fraction",
        "x.toml:12: compaction.summary",
        "x.toml:14: pacing.tool_pause_s",
    ]
    assert found[0].endswith("not a key of a profile; nearest: agents")
    assert found[1].endswith('expected a whole number from 256 to 10000000, found "lots"')
    assert 'found "lognormal"' in found[2]
    assert found[3].endswith("log-normal needs sigma")


def test_a_missing_key_says_what_belongs_there() -> None:
    found = problems(GOOD.replace("summary = 30\n", ""))
    assert found == [
        "x.toml:13: compaction.summary: missing; expected a whole number from 1 to 10000000 "
        "(output tokens of the request that compacts)"
    ]


def test_a_key_in_the_wrong_section_is_found() -> None:
    assert problems(GOOD + "\n[quux]\ntemperature = 1\n")[0].endswith("quux: not a key of a profile")
    wrong = problems(GOOD.replace("[pacing]", "[pacing]\ntemperature = 1"))
    assert wrong[0].endswith("pacing.temperature: not a key of a profile; nearest: request.temperature")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"system": 1390}, "not one turn fits between 1420 tokens of system prompt, tools and summary"),
        ({"first": 1500}, "do not fit into the limit (1500)"),
        ({"summary": 2000}, "not below context.limit (1500)"),
        ({"input": 1400}, "not one turn fits"),
    ],
)
def test_contradictions(change: dict, said: str) -> None:
    found = problems(TEXT.format(**(DEFAULTS | change)))
    assert said in found[0]
    assert found[0].startswith("x.toml:")


def test_syntax_errors_have_a_line() -> None:
    assert problems('description = "x"\nagents = = 3\n')[0].startswith("x.toml:2: not TOML: ")
    assert problems("a = [")[0].startswith("x.toml:1: not TOML: ")


def test_sizes_may_be_written_short_and_as_dotted_keys() -> None:
    text = GOOD.replace("limit = 1500", 'limit = "32k"')
    made, _ = parse(text, "x")
    assert made is not None
    assert made.context.limit == 32_000
    dotted, _ = parse(
        "request.temperature = 1.5\n" + text.replace("[request]\nqueue_s = 30\nstall_s = 30\n", ""), "x"
    )
    assert dotted is not None
    assert dotted.request.temperature == 1.5


@pytest.mark.parametrize("content", [b"\xff\xfe\x00x", b"x" * 2_000_000])
def test_files_that_are_no_text(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "odd.toml"
    file.write_bytes(content)
    with pytest.raises(UsageError, match="not a profile"):
        load(str(file))


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no such file"):
        load(str(tmp_path / "none.toml"))
    with pytest.raises(UsageError, match="cannot be read"):
        load(f"{tmp_path}/")


# Fitting to an engine


def test_an_engine_with_room_changes_nothing() -> None:
    human = load("human")
    scaled = scale(human, 131_072)
    assert scaled.notes == []
    assert scaled.profile.turn == human.turn
    assert scaled.profile.context.limit == 100_000
    assert scaled.profile.context.engine_limit == 131_072


@pytest.mark.parametrize("name", ["human", "busy"])
@pytest.mark.parametrize("limit", [8192, 16_384, 65_536])
def test_scaling_keeps_the_ratios_and_says_so(name: str, limit: int) -> None:
    before = load(name)
    scaled = scale(before, limit)
    after = scaled.profile
    factor = after.context.limit / before.context.limit
    assert after.context.system == pytest.approx(before.context.system * factor, rel=0.01)
    assert after.context.first.median == pytest.approx(before.context.first.median * factor, rel=0.01)
    assert after.turn.input.median == pytest.approx(before.turn.input.median * factor, rel=0.01)
    wanted = before.turn.output.median * factor
    assert after.turn.output.median == pytest.approx(max(wanted, LEAST_OUTPUT), rel=0.01)
    assert after.compaction.to_fraction == before.compaction.to_fraction
    assert after.pacing == before.pacing
    assert (
        f"context limit 100000 → {after.context.limit} tokens (engine: {limit} per request)" in scaled.notes
    )
    # prompt and output of the last turn, then the wish for a summary and the summary itself
    assert after.context.limit + 64 + after.compaction.summary < limit


def test_tiny_outputs_are_kept_measurable_and_noted() -> None:
    scaled = scale(load("human"), 2048)
    assert scaled.profile.turn.output.median == pytest.approx(LEAST_OUTPUT)
    assert any(f"kept at {LEAST_OUTPUT} tokens" in note for note in scaled.notes)


def test_a_faster_pace_shortens_every_pause_and_says_so() -> None:
    scaled = scale(load("human"), 8192)
    hastened = hasten(scaled, 6.0)
    before, after = scaled.profile.pacing, hastened.profile.pacing
    assert after.tool_pause_s.median == pytest.approx(before.tool_pause_s.median / 6)
    assert before.human_pause_s is not None
    assert after.human_pause_s is not None
    assert after.human_pause_s.median == pytest.approx(before.human_pause_s.median / 6)
    assert hastened.notes[-1] == "pauses are 6 times shorter"
    assert hastened.profile.turn == scaled.profile.turn
    assert hasten(scaled, 1.0) is scaled


def test_an_engine_that_does_not_tell_its_context() -> None:
    scaled = scale(load("human"), None)
    assert scaled.profile == load("human")
    assert scaled.notes == ["the engine tells no context size: nothing was scaled"]


def test_an_engine_too_small_for_agents() -> None:
    with pytest.raises(AgenttopError, match="too small for agents"):
        scale(load("human"), 128)


@pytest.mark.skipif(os.name == "nt", reason="no device files")
def test_a_file_without_end_is_refused(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe.toml"
    os.mkfifo(pipe)
    for path in ("/dev/zero", str(pipe)):
        with pytest.raises(UsageError, match="not a regular file"):
            load(path)


# Distributions


def test_draws_are_bounded_and_fixed_by_the_seed() -> None:
    distribution = Distribution(kind="log-normal", mu=6.0, sigma=2.0, min=50, max=900)
    drawn = [distribution.draw(random.Random(5)) for _ in range(3)]
    assert len(set(drawn)) == 1
    rng = random.Random(6)
    values = [distribution.draw(rng) for _ in range(2000)]
    assert min(values) == 50
    assert max(values) == 900
    assert statistics.median(values) == pytest.approx(403, rel=0.15)


def test_geometric_and_exponential_have_their_means() -> None:
    rng = random.Random(7)
    turns = Distribution(kind="geometric", mean=13.7)
    assert statistics.mean(turns.draw_whole(rng) for _ in range(20_000)) == pytest.approx(13.7, rel=0.05)
    gaps = Distribution(kind="exponential", mean=20)
    assert statistics.mean(gaps.draw(rng) for _ in range(20_000)) == pytest.approx(20, rel=0.05)
    assert {Distribution(kind="geometric", mean=0).draw_whole(rng) for _ in range(50)} == {0}


def test_the_profile_for_tests_is_one() -> None:
    assert profile(limit=2000).context.limit == 2000


# Documentation


def test_the_documentation_has_every_key_and_its_example_is_a_profile(tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs" / "profiles.md").read_text(encoding="utf-8")
    assert [key.path for key in KEYS if f"| `{key.path}` |" not in page] == []
    example = tmp_path / "example.toml"
    example.write_text(page.split("```toml\n")[1].split("```")[0], encoding="utf-8")
    assert load(str(example)).agents == 6
