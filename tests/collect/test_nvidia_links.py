"""PCIe, NVLink, inner counters, instances, health and holders of NVIDIA GPUs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.collect import nvml
from tests.collect.nvml.rig import GIB, Session
from tests.waiting import until

pytestmark = pytest.mark.skipif(nvml.why_not() is not None, reason=str(nvml.why_not()))

NO_COUNTERS: dict[str, object] = {"field__197": None, "field__198": None}
GPM: dict[str, object] = {
    "gpm": 1,
    "gpm__2": 81.5,
    "gpm__3": 34,
    "gpm__5": 22,
    "gpm__10": 67.25,
    "gpm__20": 100,
    "gpm__21": 400,
}


@pytest.fixture
def session(tmp_path: Path) -> Iterator[Session]:
    started = Session(tmp_path)
    yield started
    started.end()


def looks(session: Session, count: int, after: float = 1.0) -> list[dict[str, Any]]:
    return [session.sample(after)[0] for _ in range(count)]


class TestPcie:
    def test_the_counters_go_before_all_else(self, session: Session) -> None:
        session.add(0, **GPM)
        session.do("open")
        session.sample()
        session.gpu(0, field__197="1004000000000 3", field__198="2008000000000 3")
        (sample,) = session.sample(2.0)
        assert sample["pcie_source"] == "counter"
        assert (sample["pcie_sent_bytes_s"], sample["pcie_received_bytes_s"]) == (2e9, 4e9)

    def test_a_wide_type_with_a_narrow_counter_is_not_believed_on_a_fast_link(self, session: Session) -> None:
        session.add(0, field__197="3900000000 3", field__198="3900000000 3", **GPM)
        session.do("open")
        samples = looks(session, 3)
        assert samples[-1]["pcie_source"] == "gpm"
        assert samples[-1]["pcie_received_bytes_s"] == 400 * 2**20

    def test_once_beyond_32_bits_it_is_wide(self, session: Session) -> None:
        session.add(0, field__197="4294960000 3", field__198="4294960000 3")
        session.do("open")
        session.sample()
        session.gpu(0, field__197="4294970000 3", field__198="4294980000 3")
        (sample,) = session.sample()
        assert (sample["pcie_source"], sample["pcie_sent_bytes_s"]) == ("counter", 10_000)

    def test_the_inner_counters_go_before_the_call_that_blocks(self, session: Session) -> None:
        session.add(0, **NO_COUNTERS, **GPM)
        session.set({"0.DeviceGetPcieThroughput.0": 1, "0.DeviceGetPcieThroughput.1": 1})
        session.do("open")
        sample = looks(session, 4)[-1]
        assert sample["pcie_source"] == "gpm"
        assert (sample["pcie_sent_bytes_s"], sample["pcie_received_bytes_s"]) == (100 * 2**20, 400 * 2**20)

    def test_the_call_that_blocks_is_never_in_the_way(self, session: Session) -> None:
        """It hangs for longer than all looks of this test together take."""
        session.add(0, **NO_COUNTERS)
        session.set({"0.block.DeviceGetPcieThroughput": 3000})
        session.set({"0.DeviceGetPcieThroughput.0": 1500, "0.DeviceGetPcieThroughput.1": 250_000})
        session.do("open")
        samples = looks(session, 10, after=0.01)
        assert {sample["pcie_received_bytes_s"] for sample in samples} == {None}
        assert session.missing["pcie_received_bytes_s"] == "the first measurement is on its way"
        assert {sample["util_fraction"] for sample in samples} == {0.57}
        seen = until(lambda: session.sample(0.0)[0]["pcie_received_bytes_s"], timeout_s=30)
        assert seen == 250e6

    def test_nothing_tells(self, session: Session) -> None:
        session.add(0, **NO_COUNTERS)
        session.do("open")
        session.sample()
        why = until(
            lambda: (
                session.sample(0.01)
                and session.missing["pcie_sent_bytes_s"].startswith("this driver")
                and session.missing["pcie_sent_bytes_s"]
            )
        )
        assert why == "this driver does not count what goes over the link"

    def test_a_virtual_gpu(self, session: Session) -> None:
        session.add(0, **NO_COUNTERS, DeviceGetVirtualizationMode=2)
        session.do("open")
        looks(session, 2)
        assert "virtual GPU" in session.missing["pcie_sent_bytes_s"]

    def test_where_memory_is_shared_a_link_means_nothing(self, session: Session) -> None:
        session.add(0, DeviceGetName="NVIDIA GB10", DeviceGetCurrPcieLinkGeneration=1)
        session.set({"0.return.DeviceGetMemoryInfo_v2": 3, "0.return.DeviceGetMemoryInfo": 3})
        session.do("open")
        sample = looks(session, 2)[-1]
        for name in ("pcie_generation", "pcie_width", "pcie_received_bytes_s", "pcie_source"):
            assert sample[name] is None
        assert "share one memory" in session.missing["pcie_generation"]


class TestInnerCounters:
    def test_they_are_taken_between_two_looks(self, session: Session) -> None:
        session.add(0, **GPM)
        session.do("open")
        first, second = looks(session, 2)
        assert first["tensor_active_fraction"] is None
        assert second["sm_active_fraction"] == pytest.approx(0.815)
        assert second["sm_occupancy_fraction"] == pytest.approx(0.34)
        assert second["tensor_active_fraction"] == pytest.approx(0.22)
        assert second["dram_active_fraction"] == pytest.approx(0.6725)

    def test_samples_are_given_back(self, session: Session) -> None:
        session.add(0, **GPM)
        session.add(1, DeviceGetUUID="GPU-2", bus="0000:02:00.0", **GPM)
        session.do("open")
        looks(session, 20)
        session.do("close")
        calls = session.calls()
        assert calls.count("Alloc") == calls.count("Free") == 4
        assert calls[-1] == "Shutdown", "before the library is let go"

    def test_an_older_gpu(self, session: Session) -> None:
        session.add(0)
        session.do("open")
        looks(session, 3)
        assert session.missing["tensor_active_fraction"] == "needs Hopper or a later GPU of a data centre"
        assert "Alloc" not in session.calls()

    @pytest.mark.parametrize("call", ["GpmSampleGet", "GpmMetricsGet"])
    def test_counters_that_another_program_holds_are_tried_again_later(
        self, session: Session, call: str
    ) -> None:
        session.add(0, **GPM)
        session.set({f"0.return.{call}": 19})
        session.do("open")
        sample = looks(session, 4)[-1]
        assert (sample["state"], sample["util_fraction"]) == ("ok", 0.57)
        assert "another program" in session.missing["dram_active_fraction"]
        session.set({f"0.return.{call}": None})
        assert looks(session, 3)[-1]["dram_active_fraction"] is None, "not at once"
        session.sample(70.0)
        assert looks(session, 3)[-1]["dram_active_fraction"] == pytest.approx(0.6725)

    def test_counters_for_root_alone(self, session: Session) -> None:
        session.add(0, **GPM)
        session.set({"0.return.GpmMetricsGet": 4})
        session.do("open")
        looks(session, 3)
        assert "only root" in session.missing["dram_active_fraction"]

    def test_one_metric_that_fails_is_one_figure(self, session: Session) -> None:
        session.add(0, **GPM)
        session.gpu(0, gpm__5__return=3, gpm__3="nan", gpm__10=250)
        session.do("open")
        sample = looks(session, 2)[-1]
        shown = [sample[name] for name in ("tensor_active_fraction", "sm_occupancy_fraction")]
        assert (*shown, sample["dram_active_fraction"]) == (None, None, None)
        assert sample["sm_active_fraction"] == pytest.approx(0.815)


class TestNvLink:
    def test_links_and_what_goes_over_them(self, session: Session) -> None:
        session.add(0)
        session.set({f"0.DeviceGetNvLinkState.{link}": int(link != 2) for link in range(4)})
        session.gpu(0, **{"field__138/4294967295": "1000 3", "field__139/4294967295": "5000 3"})
        session.do("open")
        session.sample()
        session.gpu(0, **{"field__138/4294967295": "2000 3", "field__139/4294967295": "8000 3"})
        (sample,) = session.sample()
        assert sample["nvlink_links"] == 3
        assert (sample["nvlink_sent_bytes_s"], sample["nvlink_received_bytes_s"]) == (
            1000 * 1024,
            3000 * 1024,
        )

    def test_the_inner_counters_tell_it_too(self, session: Session) -> None:
        session.add(0, **GPM, gpm__60=10, gpm__61=20)
        session.set({"0.DeviceGetNvLinkState.0": 1})
        session.do("open")
        sample = looks(session, 2)[-1]
        assert (sample["nvlink_received_bytes_s"], sample["nvlink_sent_bytes_s"]) == (10 * 2**20, 20 * 2**20)

    def test_a_gpu_without_links_has_nothing_to_tell(self, session: Session) -> None:
        session.add(0)
        session.do("open")
        sample = looks(session, 2)[-1]
        assert sample["nvlink_links"] is None
        assert "nvlink_sent_bytes_s" not in session.missing

    def test_links_that_nobody_counts(self, session: Session) -> None:
        session.add(0)
        session.set({"0.DeviceGetNvLinkState.0": 1})
        session.do("open")
        looks(session, 2)
        assert "does not count" in session.missing["nvlink_sent_bytes_s"]


class TestInstances:
    def split(self, session: Session) -> None:
        session.add(0, DeviceGetMigMode=1, DeviceGetMaxMigDeviceCount=7)
        session.set({"0.return.DeviceGetUtilizationRates": 3, "0.mig.0": 4, "0.mig.3": 5, "count": 1})
        for number, size in ((4, 10), (5, 20)):
            session.gpu(
                number,
                DeviceGetName=f"NVIDIA H100 80GB HBM3 MIG 1g.{size}gb",
                DeviceGetUUID=f"MIG-{number}",
                DeviceGetGpuInstanceId=number + 3,
                DeviceGetMemoryInfo_v2__total=size * GIB,
                DeviceGetMemoryInfo_v2__used=GIB,
                DeviceGetComputeRunningProcesses=f"{4000 + number}:{GIB // 2}",
            )
        session.do("open")

    def test_each_instance_has_a_sample_of_its_own(self, session: Session) -> None:
        self.split(session)
        card, first, second = session.sample()
        assert (card["mig"], card["util_fraction"], card["power_w"]) == (True, None, 512.345)
        assert [(each["gpu"], each["mig_instance"], each["parent"]) for each in (first, second)] == [
            ("MIG-4", 7, card["gpu"]),
            ("MIG-5", 8, card["gpu"]),
        ]
        assert first["name"].endswith("MIG 1g.10gb")
        assert (second["mem_used_bytes"], second["mem_total_bytes"]) == (GIB, 20 * GIB)
        for each in (first, second):
            for name in ("power_w", "energy_j", "temperature_c", "pcie_received_bytes_s", "throttle"):
                assert each[name] is None, "it is the card's, and would be counted twice"
        assert session.holders == {"MIG-4": {"4004": GIB // 2}, "MIG-5": {"4005": GIB // 2}}

    def test_instances_come_and_go(self, session: Session) -> None:
        self.split(session)
        assert len(session.sample()) == 3
        session.set({"0.mig.0": None})
        assert [each["gpu"] for each in session.sample(11.0)][1:] == ["MIG-5"]
        session.set({"0.mig.1": 4})
        assert len(session.sample(11.0)) == 3
        session.set({"0.DeviceGetMigMode": 0})
        (card,) = session.sample(11.0)
        assert not card["mig"]

    def test_an_instance_that_vanishes_costs_nothing_else(self, session: Session) -> None:
        self.split(session)
        session.sample()
        session.set({"4.return": 15})
        card, other = session.sample()
        assert (card["state"], other["gpu"]) == ("ok", "MIG-5")

    def test_inner_counters_of_an_instance_are_given_back(self, session: Session) -> None:
        self.split(session)
        session.gpu(0, **GPM)
        looks(session, 15)
        session.do("close")
        assert session.calls().count("Alloc") == session.calls().count("Free") == 6


class TestHealth:
    def test_a_gpu_that_is_well(self, session: Session) -> None:
        session.add(0, field__230="0 1", DeviceGetPcieReplayCounter=3)
        session.set({"0.DeviceGetTotalEccErrors.0.0": 12, "0.DeviceGetTotalEccErrors.1.0": 0})
        session.set({"0.DeviceGetRemappedRows.corr": 1, "0.DeviceGetRemappedRows.unc": 2})
        session.do("open")
        (sample,) = session.sample()
        assert sample["health"] == []
        assert (sample["ecc_corrected_total"], sample["ecc_uncorrected_total"]) == (12, 0)
        assert (sample["remapped_rows_total"], sample["pcie_replays_total"]) == (3, 3)

    def test_what_is_wrong_is_said(self, session: Session) -> None:
        session.add(0, field__230="1 1", DeviceGetRetiredPagesPendingStatus=1)
        session.set({"0.DeviceGetTotalEccErrors.1.0": 2, "0.DeviceGetRemappedRows.corr": 0})
        session.set({"0.DeviceGetRemappedRows.failure": 1, "0.DeviceGetRemappedRows.pending": 1})
        session.do("open")
        assert session.sample()[0]["health"] == [
            "2 uncorrected memory errors since the driver was loaded",
            "a memory row could not be remapped: the GPU needs service",
            "a memory row is remapped at the next reset",
            "a memory page is retired at the next reboot",
            "the driver asks for a reset of the GPU",
        ]

    def test_a_gpu_that_tells_nothing_is_not_called_well(self, session: Session) -> None:
        session.add(0)
        session.do("open")
        assert session.sample()[0]["health"] is None
        assert "ECC is off" in session.missing["ecc_uncorrected_total"]


class TestHolders:
    def test_a_process_that_computes_and_draws_counts_once(self, session: Session) -> None:
        session.add(0, DeviceGetComputeRunningProcesses="10:1000,11:2000")
        session.gpu(0, DeviceGetGraphicsRunningProcesses="11:2100,12:-")
        session.do("open")
        session.sample()
        (held,) = session.holders.values()
        assert held == {"10": 1000, "11": 2100, "12": None}

    def test_they_are_asked_for_now_and_then(self, session: Session) -> None:
        session.add(0, DeviceGetComputeRunningProcesses="10:1000")
        session.do("open")
        session.sample()
        session.gpu(0, DeviceGetComputeRunningProcesses="10:5000")
        session.sample()
        assert list(session.holders.values()) == [{"10": 1000}]
        looks(session, 3)
        assert list(session.holders.values()) == [{"10": 5000}]

    def test_nobody(self, session: Session) -> None:
        session.add(0, DeviceGetComputeRunningProcesses=None)
        session.do("open")
        session.sample()
        assert session.missing["holders"] == "the driver does not tell which processes use this GPU"

    def test_sizes_that_are_not_told(self, session: Session) -> None:
        session.add(0, DeviceGetComputeRunningProcesses="10:-")
        session.do("open")
        session.sample()
        assert "not how much" in session.missing["holders"]


def test_eight_gpus_each_with_its_own_figures(session: Session) -> None:
    for index in range(8):
        session.add(
            index,
            DeviceGetUUID=f"GPU-{index}",
            bus=f"0000:0{index}:00.0",
            DeviceGetUtilizationRates__gpu=10 * index,
            **GPM,
        )
    session.do("open")
    session.sample()
    samples = session.sample()
    assert [sample["index"] for sample in samples] == list(range(8))
    assert [sample["util_fraction"] for sample in samples] == pytest.approx(
        [index / 10 for index in range(8)]
    )
    assert {sample["dram_active_fraction"] for sample in samples} == {0.6725}
