"""Planted facts: whose number came back, and never a leak that was none."""

from __future__ import annotations

import random
import re

import pytest

from agenttop.agents.probe import NUMBERS, Book, Owner, Probe, Probes, Question, judge
from agenttop.agents.text import TextSource

NUMBER = re.compile(r"\d{9}")


def agents(count: int = 4, **settings: object) -> tuple[Book, list[Probe]]:
    book = Book("salt")
    return book, [Probe(Probes(**settings), book, number) for number in range(1, count + 1)]  # type: ignore[arg-type]


def planted(probe: Probe) -> list[tuple[float, str]]:
    return [(depth, NUMBER.findall(line)[0]) for depth, line in probe.plant()]


def test_a_document_holds_its_facts_and_decoys_at_their_depths() -> None:
    _, [probe] = agents(1, depths=(0.2, 0.8), decoys=5)
    lines = probe.plant()
    assert [depth for depth, _ in lines[:2]] == [0.2, 0.8]
    assert len(lines) == 7
    assert all("access code" in line for _, line in lines[:2])
    assert not any("access code" in line for _, line in lines[2:])
    assert len({NUMBER.findall(line)[0] for _, line in lines}) == 7
    assert sum(len(line) + 1 for _, line in lines) <= probe.size_chars


def test_no_two_agents_or_documents_share_a_number() -> None:
    book = Book("other")
    owners = [Owner(a, d, i) for a in (1, 2, 255, 4096) for d in (0, 1, 60) for i in range(NUMBERS)]
    numbers = [book.number(owner) for owner in owners]
    assert len(set(numbers)) == len(numbers)
    assert all(re.fullmatch(r"[1-9]\d{8}", number) for number in numbers)
    for owner in owners:
        book.planted(owner)
    assert [book.owner(number, NUMBERS) for number in numbers] == owners
    assert {book.number(owner)[:4] for owner in owners if owner.agent == 1} == {numbers[0][:4]}


def test_another_session_has_other_numbers() -> None:
    assert Book("one").number(Owner(1, 0, 0)) != Book("two").number(Owner(1, 0, 0))


def test_every_depth_is_asked_for_before_one_comes_again() -> None:
    _, [probe] = agents(1)
    assert not probe.due()  # nothing is planted
    probe.plant()
    turns = [probe.due() for _ in range(7)]
    assert turns == [False, False, True, False, False, True, False]
    assert sorted(probe.ask().depth for _ in range(3)) == [0.15, 0.5, 0.85]
    assert sorted(probe.ask().depth for _ in range(3)) == [0.15, 0.5, 0.85]
    probe.lose()
    assert not any(probe.due() for _ in range(9))
    assert probe.wants_document


def scene() -> tuple[Book, list[str], list[str], Question]:
    """(book, own numbers, those of agent 2, a question for the first fact of agent 1)."""
    book, (one, two, *_) = agents()
    own, other = planted(one), planted(two)
    asked = one.ask()
    while asked.depth != 0.15:
        asked = one.ask()
    return book, [number for _, number in own], [number for _, number in other], asked


@pytest.mark.parametrize("form", ["{}", "The code is {}.", "code: {}\n\n{} it is", "{}</s> and so on 12345"])
def test_right(form: str) -> None:
    book, own, _, asked = scene()
    assert judge(asked, book, form.replace("{}", own[0]), "stop") == ("right", "depth 15%")


@pytest.mark.parametrize("mark", [" ", ",", "-", ".", "_", "\u202f"])
def test_right_in_groups_of_three(mark: str) -> None:
    book, own, _, asked = scene()
    number = own[0]
    text = f"It is {number[:3]}{mark}{number[3:6]}{mark}{number[6:]}!"
    assert judge(asked, book, text, "length")[0] == "right"


def test_wrong_region() -> None:
    book, own, _, asked = scene()
    assert judge(asked, book, own[2], "stop") == ("wrong-region", "depth 15%: the fact of depth 85%")
    assert judge(asked, book, f"{own[4]} or {own[0]}", "stop") == ("wrong-region", "depth 15%: decoy 2")


def test_a_number_of_an_earlier_document() -> None:
    book, [probe] = agents(1)
    earlier = planted(probe)[0][1]
    probe.plant()
    verdict, detail = judge(probe.ask(), book, earlier, "stop")
    assert verdict == "wrong-region"
    assert detail.endswith("a number of an earlier document of this agent")


def test_leaked() -> None:
    book, _, other, asked = scene()
    assert judge(asked, book, f"It is {other[0]}.", "stop") == (
        "leaked",
        "depth 15%: the number is agent 2's",
    )


def test_a_leak_from_an_agent_of_another_driver_process() -> None:
    _, _, _, asked = scene()
    book, away = agents(4)[0], Book("salt")
    number = away.number(Owner(3, 0, 5))
    book.planted(Owner(1, 0, 0))
    assert judge(asked, book, number, "stop")[0] == "leaked"


def test_truncated() -> None:
    book, own, other, asked = scene()
    assert judge(asked, book, f"It is {own[0][:5]}", "length") == (
        "truncated",
        "depth 15%: cut off after 5 digits",
    )
    assert judge(asked, book, "", "length", reasoned=True) == (
        "truncated",
        "depth 15%: reasoning used up the answer",
    )
    assert judge(asked, book, f"It is {own[0][:5]}", "stop")[0] == "no-answer"
    assert judge(asked, book, f"It is {other[0][:5]}", "length")[0] == "no-answer"
    assert judge(asked, book, f"0.{own[0][:5]}", "length")[0] == "no-answer"


def test_no_answer() -> None:
    book, own, _, asked = scene()
    for text in ("", "  ", "I do not know", own[0] + "7", "7" + own[0], own[0][:8]):
        assert judge(asked, book, text, "stop")[0] == "no-answer"
    assert judge(asked, book, "", "stop") == ("no-answer", "depth 15%: empty")


def test_nonsense_never_counts_as_a_leak() -> None:
    """60,000 made-up nine-digit numbers, where 64 agents with 4 documents each have planted theirs."""
    book = Book("salt")
    probes = [Probe(Probes(), book, number) for number in range(1, 65)]
    for _ in range(4):
        for probe in probes:
            probe.plant()
    asked = probes[0].ask()
    rng = random.Random(5)
    verdicts = {"leaked": 0, "no-answer": 0}
    for _ in range(300):
        text = " ".join(str(rng.randrange(10**8, 10**9)) for _ in range(200))
        verdicts[judge(asked, book, text, "length")[0]] += 1
    # 128 agents x 6 documents x 10 numbers in 900 million, 200 numbers each: 0.5 of the 300 on average
    assert verdicts["leaked"] <= 4


def test_generated_text_holds_no_number_that_could_be_planted() -> None:
    text = TextSource("salt", 1).text(400_000)
    assert max(len(digits) for digits in re.findall(r"\d+", text)) < 9
