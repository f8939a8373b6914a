"""Memory channels from the firmware's names of slots: machines as they are sold, and broken tables."""

from __future__ import annotations

import struct
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agenttop.collect.memory_slots import Build, Slot, build, channels, transfers
from agenttop.collect.smbios import slots_of_dmidecode, slots_of_table, slots_of_udev, structures
from tests.collect.memory_tables import OPTANE, Place, array, device, dmidecode, structure, table, udev

X299 = [
    Place(
        f"DIMM_{channel}{slot}",
        "NODE 1",
        16 if slot == 1 and channel in "AB" else 0,
        rated=3200,
        configured=2600,
    )
    for channel in "ABCD"
    for slot in (1, 2)
]
"""Four channels with two slots each; two are filled."""
AM5 = [
    Place(f"DIMM {slot}", f"P0 CHANNEL {channel}", 32 if slot else 0, "DDR5", 5600, 5200)
    for channel in "AB"
    for slot in (0, 1)
]
ONE_SIDED = [
    Place(f"DIMM {slot}", f"P0 CHANNEL {channel}", 32 if channel == "A" else 0, "DDR5", 5600, 5600)
    for channel in "AB"
    for slot in (0, 1)
]
ALDER_LAKE = [
    Place(f"Controller{controller}-ChannelA-DIMM{slot}", "BANK 0", 32 * slot, "DDR5", 6000, 6000)
    for controller in (0, 1)
    for slot in (0, 1)
]
EPYC = [Place("DIMM 0", f"P0 CHANNEL {channel}", 64, "DDR5", 4800, 4800) for channel in "ABCDEFGHIJKL"]
TWO_XEONS = [
    Place(
        f"CPU{socket}_DIMM_{channel}1",
        f"BANK {'ABCDEFGH'.index(channel)}",
        32 * (socket == 0),
        "DDR5",
        4800,
        4400,
    )
    for socket in (0, 1)
    for channel in "ABCDEFGH"
]
STRIX_HALO = [
    Place("DIMM 0", f"P0 CHANNEL {channel}", 16, "LPDDR5", 8532, 8000, bits=32) for channel in "ABCDEFGH"
]


def of(kind: str, mt_s: int, modules: tuple[int, int], channels: tuple[int, int], gb_s: float) -> Build:
    """Each pair: filled, of how many."""
    return Build(
        kind=kind,
        mt_s=mt_s,
        modules=modules[0],
        slots=modules[1],
        channels=channels[0],
        channels_total=channels[1],
        peak_bytes_s=gb_s * 1e9,
    )


MACHINES = [
    (X299, 1, of("DDR4", 2600, (2, 8), (2, 4), 41.6)),
    (AM5, 1, of("DDR5", 5200, (2, 4), (2, 2), 83.2)),
    (ONE_SIDED, 1, of("DDR5", 5600, (2, 4), (1, 2), 44.8)),
    (ALDER_LAKE, 1, of("DDR5", 6000, (2, 4), (2, 2), 96.0)),
    (EPYC, 1, of("DDR5", 4800, (12, 12), (12, 12), 460.8)),
    (TWO_XEONS, 2, of("DDR5", 4400, (8, 16), (8, 16), 281.6)),
    (STRIX_HALO, 1, of("LPDDR5X", 8000, (8, 8), (8, 8), 256.0)),
]


@pytest.mark.parametrize(("places", "sockets", "expected"), MACHINES)
@pytest.mark.parametrize(
    "read",
    [
        lambda places: slots_of_table(table(places)),
        lambda places: slots_of_udev(udev(places)),
        lambda places: slots_of_dmidecode(dmidecode(places)),
    ],
    ids=["table", "udev", "dmidecode"],
)
def test_machines(
    places: list[Place], sockets: int, expected: Build, read: Callable[[list[Place]], list[Slot]]
) -> None:
    assert build(read(places), sockets) == expected


def named(*names: str, by_bank: bool = False) -> list[Slot]:
    if by_bank:
        return [Slot(locator=f"DIMM {number}", bank=name) for number, name in enumerate(names)]
    return [Slot(locator=name, bank=f"BANK {number}") for number, name in enumerate(names)]


@pytest.mark.parametrize(
    ("names", "count"),
    [
        (("DIMM_A1", "DIMM_A2", "DIMM_B1", "DIMM_B2"), 2),
        (("P1-DIMMA1", "P1-DIMMB1", "P2-DIMMA1", "P2-DIMMB1"), 4),
        (("DIMM_P0_A0", "DIMM_P0_A1", "DIMM_P0_B0"), 2),
        (("Controller0-DIMMA2", "Controller1-DIMMB2"), 2),
        (("DDR4_A1", "DDR4_B1"), 2),
        (("SODIMM A", "SODIMM B"), 2),
        (("CPU0_DIMM_A", "CPU0_DIMM_B", "CPU0_DIMM_L"), 3),
        (("A1", "A2", "A3", "B1"), None),  # Dell: a socket and a number
        (("DIMM_A1", "DIMM_A4"), None),
        (("DIMM1", "DIMM2", "DIMM3"), None),
        (("DIMM 0", "DIMM 1"), None),
        (("PROC 1 DIMM 1A", "PROC 1 DIMM 2B"), None),
        (("XMM1", "XMM2"), None),
        (("DIMM_A1", "unnamed"), None),
        (("DIMM_A1", "DIMM_A2"), None),  # two slots of one channel: not on any board
        (("", ""), None),
    ],
)
def test_names_of_slots(names: tuple[str, ...], count: int | None) -> None:
    found = channels(named(*names))
    assert (len(set(found)) if found else None) == count


@pytest.mark.parametrize(
    ("banks", "sockets", "count"),
    [
        (("P0 CHANNEL A", "P0 CHANNEL B", "P1 CHANNEL A", "P1 CHANNEL B"), 2, 4),
        (("P0_Node0_Channel0_Dimm0", "P0_Node0_Channel1_Dimm0"), 1, 2),
        (("NODE 0 CHANNEL 0 DIMM 0", "NODE 0 CHANNEL 0 DIMM 1", "NODE 0 CHANNEL 2 DIMM 0"), 1, 2),
        (("CHANNEL A DIMM0", "CHANNEL B DIMM0"), 1, 2),
        (("CHANNEL A DIMM0", "CHANNEL B DIMM0", "Channel A DIMM0", "Channel B DIMM0"), 2, None),
        (("channel-a", "Channel-B"), 1, 2),
        (("P0 CHANNEL A",) * 8, 1, None),
        (("BANK 0", "BANK 1"), 1, None),
        (("Not Specified", "Not Specified"), 1, None),
        (("CHANNELLED", "CHANNELLING"), 1, None),
    ],
)
def test_names_of_banks(banks: tuple[str, ...], sockets: int, count: int | None) -> None:
    found = channels(named(*banks, by_bank=True), sockets)
    assert (len(set(found)) if found else None) == count


def test_places_of_the_same_name_tell_nothing() -> None:
    assert channels([Slot(locator="DIMM 0", bank="P0 CHANNEL A")] * 2) is None


@pytest.mark.parametrize(
    ("kind", "rated", "configured", "expected"),
    [
        ("DDR5", 5600, 4200, 4200),
        ("DDR5", 4800, 6000, 6000),  # an overclocked profile
        ("DDR4", 2400, 1600, 1600),
        ("DDR4", 3200, 1600, None),  # the clock
        ("DDR4", 2133, 1067, None),
        ("DDR3", 1600, 1333, 1333),
        ("DDR4", None, 1200, None),
        ("DDR4", None, None, None),
        ("DDR5", 5600, 65_535, None),
        ("DDR5", 5600, 1, None),
        (None, None, 3200, 3200),
    ],
)
def test_a_clock_is_not_taken_for_transfers(
    kind: str | None, rated: int | None, configured: int | None, expected: int | None
) -> None:
    assert transfers(Slot(kind=kind, rated_mt_s=rated, configured_mt_s=configured)) == expected


def test_the_slowest_module_counts_and_one_that_does_not_tell_leaves_it_unknown() -> None:
    places = [Place("DIMM_A1", gib=16, configured=2933), Place("DIMM_B1", gib=16, configured=2666)]
    found = build(slots_of_table(table(places)))
    assert (found.mt_s, found.peak_bytes_s) == (2666, pytest.approx(2 * 8 * 2666e6))
    places[0].configured = 0
    found = build(slots_of_table(table(places)))
    assert (found.mt_s, found.peak_bytes_s, found.channels) == (None, None, 2)


def test_half_a_module_of_ddr5_is_not_guessed_to_be_whole() -> None:
    places = [Place(f"DIMM_{channel}1", gib=16, kind="DDR5", bits=32) for channel in "AB"]
    assert build(slots_of_table(table(places))).peak_bytes_s is None


def test_soldered_memory_without_its_width_has_no_peak() -> None:
    places = [Place("DIMM 0", f"P0 CHANNEL {c}", 16, "LPDDR5", 6400, 6400, bits=0xFFFF) for c in "AB"]
    found = build(slots_of_table(table(places)))
    assert (found.kind, found.channels, found.peak_bytes_s) == ("LPDDR5", 2, None)


def test_what_is_no_ram_does_not_count() -> None:
    places = [
        Place("DIMM_A1", gib=16),
        Place("DIMM_A2", gib=128, technology=OPTANE),
        Place("BIOS", gib=1, kind="Flash"),
        Place("DIMM_B1", gib=16),
    ]
    for slots in (
        slots_of_table(table(places)),
        slots_of_udev(udev(places)),
        slots_of_dmidecode(dmidecode(places)),
    ):
        found = build(slots)
        assert (found.modules, found.slots, found.channels) == (2, 2, 2)


def test_devices_of_another_array_are_no_system_memory() -> None:
    raw = array(1) + array(1, handle=0x2000, use=4) + device(Place("A", gib=8), 1)
    raw += device(Place("VGA", gib=8, array=0x2000), 2)
    assert [slot.locator for slot in slots_of_table(raw)] == ["A"]


def test_a_table_without_filled_slots_is_not_believed() -> None:
    assert build(slots_of_table(table([Place("DIMM_A1"), Place("DIMM_B1")]))) is None
    assert build([]) is None


def test_firmware_of_before_2_7_tells_no_configured_speed() -> None:
    slots = slots_of_table(table([Place("DIMM_A1", gib=8), Place("DIMM_B1")], length=0x1C))
    assert [slot.configured_mt_s for slot in slots] == [None, None]
    assert (slots[0].rated_mt_s, slots[0].filled, slots[1].filled) == (3200, True, False)


def test_speeds_beyond_16_bits_stand_elsewhere() -> None:
    (slot,) = slots_of_table(table([Place("DIMM_A1", gib=8, rated=70_000, configured=0xFFFF)]))
    assert (slot.rated_mt_s, slot.configured_mt_s) == (70_000, 0xFFFF)


def test_a_string_that_is_not_there_is_empty_and_controls_are_taken_out() -> None:
    fields = bytearray(device(Place("a", gib=8), 1)[4:0x5C])
    fields[0x10 - 4], fields[0x11 - 4] = 9, 1
    (slot,) = slots_of_table(structure(17, 1, bytes(fields), "bad\x1b[2Jname" + "x" * 500))
    assert slot.locator == ""
    assert slot.bank.startswith("bad [2Jname")
    assert len(slot.bank) <= 64


@pytest.mark.parametrize("places", [X299, STRIX_HALO])
def test_a_table_that_is_cut_gives_the_slots_before_the_cut(places: list[Place]) -> None:
    raw = table(places)
    whole = slots_of_table(raw)
    for length in range(0, len(raw), 7):
        found = slots_of_table(raw[:length])
        assert found == whole[: len(found)]
    assert slots_of_table(raw[: len(raw) // 2])


@given(st.binary(max_size=600))
def test_nonsense_is_no_table(raw: bytes) -> None:
    for one in (raw, struct.pack("<BBH", 17, 0x5C, 1) + raw, array(2) + raw):
        list(structures(one))
        build(slots_of_table(one))
    text = raw.decode("latin-1")
    build(slots_of_udev(text))
    build(slots_of_udev(f"E:MEMORY_DEVICE_0_SIZE={text}\nE:MEMORY_DEVICE_0_TYPE=DDR5"))
    build(slots_of_dmidecode(f"Handle 0x1, DMI type 17, 2 bytes\n\tSize: {text}\n"))


def test_a_hundred_thousand_devices_are_cut() -> None:
    assert len(slots_of_table(array(1) + device(Place("DIMM_A1", gib=8), 1) * 5000)) == 256


def test_an_older_systemd_knows_no_ddr5() -> None:
    text = udev(AM5).replace("TYPE=DDR5", "TYPE=<OUT OF SPEC>")
    found = build(slots_of_udev(text), 1)
    assert (found.kind, found.mt_s, found.channels) == (None, 5200, 2)
    assert found.peak_bytes_s is None, "how wide a module is depends on its kind"


def test_older_dmidecode_calls_it_a_clock() -> None:
    text = dmidecode(X299).replace("Configured Memory Speed: 2600 MT/s", "Configured Clock Speed: 2600 MHz")
    assert build(slots_of_dmidecode(text)).mt_s == 2600
