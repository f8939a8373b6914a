"""A conversation grows, is compacted, and knows its size; sizes are learnt from the engine's counts."""

from __future__ import annotations

import re
import time

import msgspec
import pytest

from agenttop.agents.conversation import Conversation, Message
from agenttop.agents.plan import AgentPlan
from agenttop.agents.prefix import Prefixes, schemas
from agenttop.agents.profile import load, scale
from agenttop.agents.ratio import Parts, TokenRatio
from agenttop.agents.settings import child_profile
from agenttop.agents.text import TextSource
from tests.agents.profiles import profile

CHARS_PER_TOKEN = 2.7
TEMPLATE = 9


def count(messages: list[Message]) -> int:
    """A tokenizer that agenttop knows nothing about: fixed ratio, and a template round each message."""
    return sum(round(len(message.content) / CHARS_PER_TOKEN) + TEMPLATE for message in messages)


def reply_of(tokens: int) -> str:
    return "y" * round(tokens * CHARS_PER_TOKEN)


def started(**changes: object) -> Conversation:
    return Conversation(profile(**changes), TextSource("salt", 1), TokenRatio())


def turn(conversation: Conversation, input_tokens: int, output_tokens: int) -> int:
    """One turn against the tokenizer above; returns the size of its prompt."""
    conversation.ask(input_tokens)
    prompt = count(conversation.messages)
    conversation.answered(
        reply_of(output_tokens), prompt_tokens=prompt, output_tokens=output_tokens, fed_back=output_tokens
    )
    return prompt


def test_roles_alternate_and_the_history_is_kept() -> None:
    conversation = started()
    for _ in range(3):
        turn(conversation, 60, 40)
    assert [message.role for message in conversation.messages] == ["system", *["user", "assistant"] * 3]
    before = [message.content for message in conversation.messages]
    conversation.ask(60)
    assert [message.content for message in conversation.messages[:-1]] == before


def test_requested_and_real_sizes_agree_after_three_turns() -> None:
    conversation = started(limit=200_000, system=5000, first=3000)
    sizes = [800, 650, 900, 700, 1200, 500, 650]
    contexts = [0]
    errors = []
    for number, size in enumerate(sizes):
        prompt = turn(conversation, size, 200)
        errors.append((prompt - contexts[-1] - size) / size)
        contexts.append(prompt + 200)
        assert conversation.context_tokens == contexts[-1], number
    assert all(abs(error) < 0.03 for error in errors[3:]), errors


def test_the_context_is_the_engines_count() -> None:
    conversation = started()
    conversation.ask(60)
    conversation.answered("hi", prompt_tokens=321, output_tokens=12, fed_back=12)
    assert conversation.context_tokens == 333
    conversation.ask(60)
    conversation.answered("hi", prompt_tokens=None, output_tokens=None, fed_back=0)
    assert conversation.context_tokens is None


def test_a_compaction_returns_to_the_target() -> None:
    conversation = started(limit=3000, to_fraction=0.4, system=200, summary=100)
    for summary_tokens in (100, 3, 2500):  # as planned, much too short, much too long
        while not conversation.must_compact(60, 40):
            turn(conversation, 60, 40)
        assert conversation.context_tokens is not None
        assert conversation.context_tokens > 2800
        request = conversation.summary_request()
        assert request[-1].role == "user"
        assert request[-1].content.endswith("Summarise all of the above.")
        assert len(request) == len(conversation.messages) + 1
        conversation.compact(reply_of(summary_tokens), summary_tokens)
        real = count(conversation.messages)
        assert real == pytest.approx(conversation.target, rel=0.05), summary_tokens
        assert [message.role for message in conversation.messages] == ["system", "user"]
        turn(conversation, 60, 40)
        assert [message.role for message in conversation.messages] == ["system", "user", "assistant"]
    assert conversation.compactions == 3


def test_the_system_prompt_survives_a_compaction_word_for_word() -> None:
    conversation = started()
    turn(conversation, 60, 40)
    system = conversation.messages[0].content
    conversation.compact("short", 2)
    assert conversation.messages[0].content == system


def test_a_fresh_compaction_is_not_compacted_again() -> None:
    conversation = started()
    while not conversation.must_compact(60, 40):
        turn(conversation, 60, 40)
    conversation.compact("s", 1)
    assert not conversation.must_compact(10_000, 10_000)


def test_planned_sizes_are_cut_to_what_fits() -> None:
    conversation = started(limit=1500, to_fraction=0.3)
    input_tokens, output_tokens = conversation.fit(50_000, 50_000)
    assert 0 < input_tokens + output_tokens + 100 <= 1500
    turn(conversation, 60, 40)
    input_tokens, output_tokens = conversation.fit(50_000, 50_000)
    assert conversation.target + input_tokens + output_tokens <= 1500


def test_cutting_gets_harder_and_never_empty() -> None:
    conversation = started(limit=3000, to_fraction=0.4, system=300)
    while not conversation.must_compact(60, 40):
        turn(conversation, 60, 40)
    conversation.ask(60)
    sizes = []
    for number in range(6):
        conversation.cut(0.5**number)
        sizes.append(count(conversation.messages))
        assert all(message.content for message in conversation.messages)
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[0] == pytest.approx(1200, rel=0.1)
    assert sizes[-1] < 100


def test_cutting_never_makes_a_small_context_larger() -> None:
    conversation = started(limit=4000, to_fraction=0.6, system=300)
    conversation.ask(500)
    before = count(conversation.messages)
    sizes = []
    for number in range(3):
        conversation.cut(0.5**number)
        sizes.append(count(conversation.messages))
    assert before > sizes[0] > sizes[1] > sizes[2]


def test_a_smaller_engine_lowers_the_limit() -> None:
    conversation = started()
    conversation.shrink_to(1000)
    assert conversation.limit == 850
    conversation.shrink_to(5000)
    assert conversation.limit == 850


def test_no_prompt_ever_passes_the_engines_limit() -> None:
    for engine_limit in (1024, 4096, 40_000):
        for name in ("human", "busy"):
            fitted = scale(load(name), engine_limit).profile
            ratio = TokenRatio()
            ratio.learn(Parts(chars=2700), 1000)
            for number in range(3):
                plan = AgentPlan(fitted, 5, number)
                conversation = Conversation(fitted, TextSource("salt", number), ratio)
                for _ in range(150):
                    step = plan.next()
                    sizes = conversation.fit(step.input, step.output)
                    if conversation.must_compact(*sizes):
                        wanted = conversation.output_room(fitted.compaction.summary)
                        assert count(conversation.summary_request()) + wanted <= engine_limit
                        conversation.compact(reply_of(wanted), wanted)
                    conversation.ask(sizes[0])
                    output = conversation.output_room(sizes[1])
                    prompt = count(conversation.messages)
                    assert prompt + output <= engine_limit
                    conversation.answered(
                        reply_of(output), prompt_tokens=prompt, output_tokens=output, fed_back=output
                    )


def test_the_next_request_of_a_100k_context_takes_under_two_milliseconds() -> None:
    conversation = started(limit=200_000, system=5000, first=15_000)
    encoder = msgspec.json.Encoder()
    while (conversation.context_tokens or 0) < 100_000:
        turn(conversation, 1500, 400)

    def build() -> float:
        began = time.process_time()
        conversation.ask(651)
        body = encoder.encode({"messages": conversation.messages, "max_tokens": 216, "stream": True})
        took = time.process_time() - began
        conversation.answered("x" * 600, prompt_tokens=None, output_tokens=200, fed_back=200)
        assert len(body) > 250_000
        return took

    assert min(build() for _ in range(10)) < 0.002


# Text and ratio


def test_text_has_the_wanted_size_and_no_two_agents_begin_alike() -> None:
    sources = [TextSource("run1", 1), TextSource("run1", 2), TextSource("run2", 1)]
    openings = [source.opening(4000) for source in sources]
    assert [len(opening) for opening in openings] == [4000] * 3
    assert len({opening[:40] for opening in openings}) == 3
    assert TextSource("run1", 1).opening(4000) == openings[0]
    assert len(sources[0].text(1)) == 1
    first, second = sources[0].text(5000), sources[0].text(5000)
    assert first != second


def test_text_is_plain() -> None:
    text = TextSource("x", 1).opening(200_000)
    assert text.isascii()
    assert all(char == "\n" or char.isprintable() for char in text)


def test_the_ratio_settles_and_survives_nonsense() -> None:
    ratio = TokenRatio()
    for chars, output, tokens in ((4000, 0, 1000), (2000, 150, 660), (9000, 80, 2330), (800, 300, 500)):
        ratio.learn(Parts(chars=chars, output_tokens=output, messages=0), tokens)
    assert ratio.tokens_per_char == pytest.approx(0.25, rel=0.03)
    before = ratio.tokens_per_char
    ratio.learn(Parts(chars=1000), 0)
    ratio.learn(Parts(chars=1000), -5)
    ratio.learn(Parts(), 70)
    assert ratio.tokens_per_char == before
    for _ in range(20):
        ratio.learn(Parts(chars=10, messages=1), 10**9)
    assert 0 < ratio.tokens_per_char <= 4


# What conversations begin with, and how they are shortened


def test_shared_texts_are_the_same_in_every_driver_and_unlike_any_other_session() -> None:
    swarm = load("swarm")

    def prepared(salt: str, learnt: int) -> Prefixes:
        ratio = TokenRatio()
        ratio.learn(Parts(chars=4000), 1300)  # the sample that every driver has counted
        prefixes = Prefixes(salt, ratio)
        prefixes.prepare(swarm)
        for _ in range(learnt):  # what happens later differs between drivers
            ratio.learn(Parts(chars=3000, messages=1), 1500)
        return prefixes

    one, other = prepared("s", 0), prepared("s", 5)
    for context in (swarm.context, child_profile(swarm).context):
        made = [
            each.of(context, TextSource("s", number)) for each in (one, other) for number in (1, 2, "3.1")
        ]
        assert len({(prefix.system, prefix.document) for prefix in made}) == 1
    parents, children = swarm.context, child_profile(swarm).context
    assert one.of(parents, TextSource("s", 1)).system != one.of(children, TextSource("s", 1)).system
    assert (
        prepared("t", 0).of(parents, TextSource("t", 1)).system[:20]
        != one.of(parents, TextSource("s", 1)).system[:20]
    )


@pytest.mark.parametrize("chars", [200, 1500, 5000, 60_000])
def test_schemas_have_the_wanted_size_and_are_plain_json(chars: int) -> None:
    made = schemas(TextSource("a b/ü", 3), chars)
    assert abs(made.chars - max(chars, 500)) <= 520
    tools = msgspec.json.decode(made.json)
    names = [tool["function"]["name"] for tool in tools]
    assert all(re.fullmatch(r"[A-Za-z0-9_-]{1,64}", name) for name in names)
    assert len(set(names)) == len(names)
    assert "\\" not in bytes(made.json).decode()
    assert made.names[0] != schemas(TextSource("a b/ü", 4), chars).names[0]


@pytest.mark.parametrize("biggest", [40, 400, 4000])
def test_truncation_leaves_the_newest_within_the_target(biggest: int) -> None:
    conversation = started(limit=9000, to_fraction=0.3, system=200, first=300)
    for number in range(12):
        turn(conversation, biggest if number == 9 else 60, 40)
    system, last = conversation.messages[0].content, conversation.messages[-1].content
    conversation.truncate()
    assert conversation.messages[0].content == system
    assert conversation.messages[-1].content == last
    assert conversation.messages[1].role == "user"
    assert all(message.content for message in conversation.messages)
    assert count(conversation.messages) <= conversation.target * 1.03
    assert count(conversation.messages) > conversation.target * 0.5 or biggest == 40
    roles = [message.role for message in conversation.messages[1:]]
    assert roles == ["user", "assistant"] * (len(roles) // 2)
    turn(conversation, 60, 40)


def test_a_reply_larger_than_the_target_survives_a_truncation_behind_a_user() -> None:
    conversation = started(limit=2000, to_fraction=0.3)
    turn(conversation, 60, 1500)
    conversation.truncate()
    assert [message.role for message in conversation.messages] == ["system", "user", "assistant"]
    assert conversation.messages[1].content


def test_lines_are_planted_where_they_shall_stand_and_a_question_comes_last() -> None:
    conversation = started(limit=50_000, first=9000)
    plain = started(limit=50_000, first=9000)
    plain.ask(9000)
    lines = [(0.15, "the code of amber is 123456789"), (0.85, "the code of cedar is 987654321")]
    conversation.ask(9000, planted=lines, question="What is the code of amber?")
    text = conversation.messages[1].content
    assert len(text) == len(plain.messages[1].content)
    assert text.endswith("\nWhat is the code of amber?")
    for depth, line in lines:
        assert f"\n{line}\n" in text
        assert text.index(line) / len(text) == pytest.approx(depth, abs=0.01)
