"""Who holds memory of AMD GPUs: descriptors of processes, and what ROCm's driver shows."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agenttop.collect.gpu.amd.adapter import AmdAdapter
from agenttop.collect.gpu.amd.holders import Holders, parse
from agenttop.model.clock import ManualClock
from tests.collect.amd_trees import GIB, HALO, NAVI, Host, fdinfo, radeon_7900, strix_halo, write

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the driver's files are those of Linux")

RENDER = "/dev/dri/renderD128"


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path)


def held(host: Host, at: float = 100.0, **pools: bool) -> dict[str, dict[int, int | None]]:
    holders = Holders(str(host.root))
    holders.look(at, pools or {NAVI: False, HALO: True})
    return holders.held


def kfd(host: Host, pid: int, amount: int, gpu: int = 51_110, place: int = 0x300) -> None:
    """ROCm's view: node 0 is the processor, node 1 the GPU."""
    write(
        host.root / "sys/class/kfd/kfd",
        {
            "topology/nodes/0/gpu_id": 0,
            "topology/nodes/1/gpu_id": gpu,
            "topology/nodes/1/properties": f"simd_count 192\nlocation_id {place}\ndomain 0",
            f"proc/{pid}/vram_{gpu}": amount,
        },
    )


def test_one_client_behind_several_descriptors_counts_once(host: Host) -> None:
    text = fdinfo(NAVI, 7, vram=5 * GIB, gtt=GIB)
    host.process(400, {"5": (RENDER, text), "6": (RENDER, text), "7": (RENDER, fdinfo(NAVI, 8, vram=GIB))})
    host.process(401, {"5": (RENDER, text)}, "its-child")
    assert held(host) == {NAVI: {400: 6 * GIB}}


def test_a_pool_counts_what_is_mapped_of_ram(host: Host) -> None:
    host.process(400, {"5": (RENDER, fdinfo(HALO, 3, vram=GIB, gtt=30 * GIB))})
    assert held(host) == {HALO: {400: 31 * GIB}}


def test_other_descriptors_are_not_read(host: Host) -> None:
    host.process(400, {"1": ("/dev/pts/0", fdinfo(NAVI, 3, vram=GIB)), "9": ("socket:[1]", "pos:\t0")})
    host.process(401, {"3": (RENDER, fdinfo(NAVI, 4, vram=GIB).replace("amdgpu", "i915"))})
    host.process(402, {"3": (RENDER, fdinfo("0000:99:00.0", 4, vram=GIB))})
    assert held(host) == {}


def test_an_old_kernel_tells_who_and_not_how_much(host: Host) -> None:
    host.process(400, {"5": (RENDER, f"drm-driver:\tamdgpu\ndrm-pdev:\t{NAVI}\ndrm-client-id:\t3")})
    assert held(host) == {NAVI: {400: None}}


def test_older_keys_alone(host: Host) -> None:
    host.process(400, {"5": (RENDER, f"drm-driver:\tamdgpu\ndrm-pdev:\t{NAVI}\ndrm-memory-vram:\t2048 KiB")})
    assert held(host) == {NAVI: {400: 2 * 2**20}}


def test_rocm_and_descriptors_tell_of_the_same_memory(host: Host) -> None:
    host.process(400, {"5": (RENDER, fdinfo(NAVI, 7, vram=5 * GIB))})
    kfd(host, 400, 7 * GIB)
    # ROCm's driver shows those of other users, too.
    write(host.root / "sys/class/kfd/kfd/proc/900", {"vram_51110": GIB})
    assert held(host) == {NAVI: {400: 7 * GIB, 900: GIB}}


def test_in_a_container_the_hosts_numbers_mean_nothing(host: Host) -> None:
    (host.root / "proc/self/ns/pid").unlink()
    (host.root / "proc/self/ns/pid").symlink_to("pid:[4026532999]")
    kfd(host, 5000, 7 * GIB)
    host.process(12, {"5": (RENDER, fdinfo(NAVI, 7, vram=5 * GIB))})
    radeon_7900(host)
    adapter = AmdAdapter(ManualClock(100.0), host.root)
    adapter.open(0.0)
    reading = adapter.sample(0.0)
    assert reading.holders == {NAVI: {12: 5 * GIB}}
    (why,) = [frame for frame in reading.missing if frame.what == f"gpu/{NAVI}:holders"]
    assert why.why == "processes outside of this container are not seen"


def test_processes_of_others_are_missing_with_a_reason(host: Host) -> None:
    strix_halo(host)
    host.process(400, {})
    clock = ManualClock(100.0)
    adapter = AmdAdapter(clock, host.root)
    adapter.open(0.0)
    for _ in range(3):
        reading = adapter.sample(0.0)
        (why,) = [frame for frame in reading.missing if frame.what == f"gpu/{HALO}:holders"]
        assert why.why == "what other users' processes hold is not seen"
        assert why.fix == "run agenttop as the user of the engine"
        clock.advance(11.0)


def test_a_process_that_opens_the_card_later_is_found(host: Host) -> None:
    host.process(400, {"1": ("/dev/null", "pos:\t0")})
    holders = Holders(str(host.root))
    at = 100.0
    while at < 400:  # long past its youth
        holders.look(at, {NAVI: False})
        at += 10.0
    host.process(400, {"5": (RENDER, fdinfo(NAVI, 7, vram=5 * GIB))})
    found = []
    for _ in range(9):
        holders.look(at, {NAVI: False})
        found.append(holders.held)
        at += 10.0
    assert found[-1] == {NAVI: {400: 5 * GIB}}


def test_a_process_that_ends_is_forgotten(host: Host) -> None:
    host.process(400, {"5": (RENDER, fdinfo(NAVI, 7, vram=GIB))})
    holders = Holders(str(host.root))
    holders.look(100.0, {NAVI: False})
    (host.root / "proc/400").rename(host.root / "gone")
    holders.look(105.0, {NAVI: False})
    assert holders.held == {NAVI: {400: GIB}}
    holders.look(110.0, {NAVI: False})
    assert holders.held == {}


@pytest.mark.parametrize("amount", ["-1 KiB", "12 parsecs", "99999999999999999999 KiB", "junk", ""])
def test_amounts_that_cannot_be_right_are_none(amount: str) -> None:
    client = parse(f"drm-driver:\tamdgpu\ndrm-pdev:\t{NAVI}\ndrm-memory-vram:\t{amount}".encode())
    assert client is not None
    assert client.vram is None


LINES = st.lists(
    st.one_of(
        st.binary(max_size=40),
        st.sampled_from([b"drm-driver:\tamdgpu", b"drm-pdev:\t0000:03:00.0", b"drm-client-id:\t"]),
        st.builds(lambda number: b"drm-memory-vram: %d KiB" % number, st.integers(-(2**70), 2**70)),
    ),
    max_size=8,
)


@given(LINES)
def test_any_text(lines: list[bytes]) -> None:
    client = parse(b"\n".join(lines))
    assert client is None or client.vram is None or 0 <= client.vram < 1 << 50


def test_junk_of_rocm(host: Host) -> None:
    kfd(host, 400, GIB)
    nodes = host.root / "sys/class/kfd/kfd/topology/nodes"
    write(nodes, {"1/properties": b"\xff\x00location_id x\n", "2/gpu_id": "x", "3/gpu_id": 9})
    write(host.root / "sys/class/kfd/kfd/proc", {"self/vram_51110": 1, "77/vram_51110": "many"})
    assert held(host) == {}
