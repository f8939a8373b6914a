"""Several cards: nothing that matters of any of them is left out."""

from __future__ import annotations

import msgspec
import pytest

from agenttop.view.panels import gpu
from tests.view import scenes
from tests.view.draw import drawn, folded, text_of

SIZES = [(80, 24), (100, 30), (120, 40), (200, 60)]


@pytest.mark.parametrize("size", SIZES, ids="{0[0]}x{0[1]}".format)
def test_two_cards_each_with_util_memory_temperature_power_and_what_holds_it_down(
    size: tuple[int, int],
) -> None:
    text = drawn(scenes.running(40, gpus=2, demo=False), 40.4, *size)
    for figure in ("97 %", "24.1 / 31.8 GiB", "62 °C", "486 / 575 W", "by power cap"):
        assert text.count(figure) == 2, figure


@pytest.mark.parametrize("cards", [4, 8])
@pytest.mark.parametrize("size", [(120, 40), (200, 60)], ids="{0[0]}x{0[1]}".format)
def test_four_and_eight_cards_have_all_of_it_too(cards: int, size: tuple[int, int]) -> None:
    text = drawn(scenes.running(40, gpus=cards, demo=False), 40.4, *size)
    for figure in ("24.1 / 31.8 GiB", "62 °C", "486 ", "held"):
        assert text.count(figure) == cards, figure


def test_cards_without_a_line_are_summed_up_and_the_worst_of_them_is_said() -> None:
    cards = [scenes.gpu(1.0, index, 0.5 + index / 20) for index in range(8)]
    cards[6] = msgspec.structs.replace(cards[6], temperature_c=91.0, throttle=["thermal (hw)"])
    cards[7] = msgspec.structs.replace(cards[7], state="lost")
    lines = text_of(gpu.gpu(folded([scenes.session(), *cards]), 80, 2))
    assert len(lines) == 2
    assert lines[0].startswith("GPU0")
    for told in ("7 more", "1 NOT OK", "util 55 to 85 %", "to 91 °C", "1 held down"):
        assert told in lines[1], told


def test_a_card_that_tells_nothing_does_not_spoil_the_others() -> None:
    silent = msgspec.structs.replace(
        scenes.gpu(1.0, 1),
        util_fraction=None,
        mem_used_bytes=None,
        temperature_c=None,
        power_w=None,
        throttle=None,
    )
    lines = text_of(gpu.gpu(folded([scenes.session(), scenes.gpu(1.0), silent]), 47, 6))
    assert len(lines) == 6
    assert "24.1 / 31.8 GiB" in lines[1]
    assert "held by –" in lines[5]
