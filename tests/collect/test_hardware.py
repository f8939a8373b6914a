"""What a machine is made of, from trees of files; and what hides it."""

from __future__ import annotations

from pathlib import Path

import pytest

from agenttop.collect.hardware import PREPARED, hardware, missing
from agenttop.collect.virtual import in_machine, virtual
from tests.collect.host_trees import GIB, cpuinfo, write
from tests.collect.memory_tables import Place, dmidecode, table, udev

UDEV = "run/udev/data/+dmi:id"
DMI = "sys/class/dmi/id"
TWO = [Place(f"DIMM_{channel}1", gib=16 if channel < "C" else 0) for channel in "ABCD"]


def machine(root: Path, sockets: int = 2, cores: int = 2) -> Path:
    """Two threads a core, and the firmware's names."""
    files: dict[str, str | int] = {
        f"{DMI}/sys_vendor": "Supermicro\n",
        f"{DMI}/product_name": "Super Server\n",
    }
    files["proc/cpuinfo"] = cpuinfo(*[3000.0] * sockets * cores * 2)
    half = sockets * cores
    for number in range(half * 2):
        place = f"sys/devices/system/cpu/cpu{number}/topology"
        files[f"{place}/physical_package_id"] = number % half // cores
        files[f"{place}/core_cpus_list"] = f"{number % half},{number % half + half}"
    return write(root, files)


def test_sockets_cores_and_nodes(tmp_path: Path) -> None:
    root = machine(tmp_path)
    for node in (0, 1):
        folder = f"sys/devices/system/node/node{node}"
        size = f"Node {node} MemTotal: {(node + 1) << 20} kB\nNode {node} MemFree: 5 kB\n"
        write(root, {f"{folder}/meminfo": size, f"{folder}/cpulist": f"{node * 2}-{node * 2 + 1}\n"})
    found = hardware(3.0, root)
    assert (found.t, found.sockets, found.cores_physical, found.cores_logical) == (3.0, 2, 4, 8)
    assert (found.numa_nodes, found.numa_total_bytes) == (["0-1", "2-3"], [GIB, 2 * GIB])
    assert found.virtual is None


def test_two_of_four_channels_are_filled(tmp_path: Path) -> None:
    root = write(machine(tmp_path, sockets=1), {UDEV: udev(TWO)})
    found = hardware(0.0, root)
    assert (found.memory_channels, found.memory_channels_total) == (2, 4)
    assert (found.memory_modules, found.memory_slots) == (2, 4)
    assert (found.memory_type, found.memory_mt_s, found.memory_from) == ("DDR4", 3200, "udev")
    assert found.memory_peak_bytes_s == 51.2e9
    assert missing(found, "linux") == []


def test_the_table_itself_is_read_where_it_may_be(tmp_path: Path) -> None:
    root = write(machine(tmp_path, sockets=1), {UDEV: udev(TWO)})
    (root / "sys/firmware/dmi/tables").mkdir(parents=True)
    (root / "sys/firmware/dmi/tables/DMI").write_bytes(table(TWO[:2]))
    found = hardware(0.0, root)
    assert (found.memory_slots, found.memory_from) == (2, "/sys/firmware/dmi/tables/DMI")


def test_what_the_user_has_prepared(tmp_path: Path) -> None:
    root = machine(tmp_path / "root", sockets=1)
    prepared = tmp_path / PREPARED
    prepared.write_text(dmidecode(TWO))
    found = hardware(0.0, root, prepared)
    assert (found.memory_channels, found.memory_from) == (2, PREPARED)
    assert hardware(0.0, root, tmp_path / "absent").memory_from is None


def test_why_nothing_is_known_of_the_modules(tmp_path: Path) -> None:
    bare = machine(tmp_path / "bare")
    told = missing(hardware(5.0, bare), "linux")
    assert {frame.what for frame in told} >= {"host:memory_channels", "host:memory_peak_bytes_s"}
    assert {(frame.t, frame.why) for frame in told} == {
        (5.0, "the firmware's table of memory modules is for root alone")
    }
    assert told[0].fix.startswith("sudo dmidecode -t memory > ")
    assert told[0].fix.endswith(PREPARED)
    inside = write(machine(tmp_path / "inside"), {".dockerenv": ""})
    assert "container" in missing(hardware(0.0, inside), "linux")[0].why
    assert "system" in missing(hardware(0.0, bare), "darwin")[0].why


def test_names_that_tell_no_channels_say_so(tmp_path: Path) -> None:
    unnamed = [Place(f"DIMM{number}", gib=16) for number in (1, 2)]
    found = hardware(0.0, write(machine(tmp_path, sockets=1), {UDEV: udev(unnamed)}))
    assert (found.memory_modules, found.memory_mt_s, found.memory_channels) == (2, 3200, None)
    assert [frame.what for frame in missing(found)] == ["host:memory_channels", "host:memory_peak_bytes_s"]


def test_modules_that_a_hypervisor_made_up_are_not_told(tmp_path: Path) -> None:
    made_up = {UDEV: udev([Place("DIMM 0", gib=16)]), "proc/cpuinfo": cpuinfo(2000.0, flags="hypervisor")}
    found = hardware(0.0, write(machine(tmp_path), made_up | {f"{DMI}/product_name": "KVM\n"}))
    assert (found.memory_modules, found.virtual) == (None, "kvm")
    told = missing(found, "linux")
    assert (told[0].why, told[0].fix) == ("a virtual machine is not told its memory modules", None)


@pytest.mark.parametrize("raw", [b"", b"\0" * 50, b"\x11\x05" * 900, table(TWO)[:60]])
def test_a_broken_table(tmp_path: Path, raw: bytes) -> None:
    root = machine(tmp_path)
    (root / "sys/firmware/dmi/tables").mkdir(parents=True)
    (root / "sys/firmware/dmi/tables/DMI").write_bytes(raw)
    found = hardware(0.0, root)
    assert (found.memory_modules, found.memory_peak_bytes_s, found.memory_from) == (None, None, None)


def test_an_empty_tree(tmp_path: Path) -> None:
    found = hardware(0.0, tmp_path)
    assert (found.sockets, found.cores_physical, found.cores_logical, found.virtual) == (
        None,
        None,
        None,
        None,
    )
    assert (found.numa_nodes, found.memory_modules) == ([], None)


def test_clusters_of_a_board_without_a_table_are_no_sockets(tmp_path: Path) -> None:
    files = {"proc/cpuinfo": "processor\t: 0\nBogoMIPS\t: 50.00\n"}
    for number in range(4):
        place = f"sys/devices/system/cpu/cpu{number}/topology"
        files[f"{place}/physical_package_id"] = str(number // 2)
        files[f"{place}/thread_siblings_list"] = str(number)
    found = hardware(0.0, write(tmp_path, files))
    assert (found.sockets, found.cores_physical) == (None, 4)


def test_this_machine() -> None:
    found = hardware(1.0)
    assert found.cores_logical >= found.cores_physical >= 1
    assert found.memory_channels is None or found.memory_channels <= found.memory_channels_total


FLAGGED = {"proc/cpuinfo": cpuinfo(2000.0, flags="hypervisor")}
PLAIN = {"proc/cpuinfo": cpuinfo(2000.0)}
ARM = {"proc/cpuinfo": "processor\t: 0\nFeatures\t: fp asimd\n"}


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        (PLAIN, None),
        (FLAGGED, "vm"),
        (FLAGGED | {f"{DMI}/product_name": "KVM", f"{DMI}/sys_vendor": "Red Hat"}, "kvm"),
        (FLAGGED | {f"{DMI}/product_name": "Standard PC (Q35)", f"{DMI}/sys_vendor": "QEMU"}, "qemu"),
        (FLAGGED | {f"{DMI}/product_name": "VMware7,1"}, "vmware"),
        (FLAGGED | {f"{DMI}/product_name": "Virtual", f"{DMI}/product_version": "Hyper-V UEFI"}, "hyper-v"),
        (FLAGGED | {f"{DMI}/product_name": "p5.48xlarge", f"{DMI}/sys_vendor": "Amazon EC2"}, "amazon"),
        (PLAIN | {f"{DMI}/product_name": "m7i.metal-24xl", f"{DMI}/sys_vendor": "Amazon EC2"}, None),
        (ARM | {f"{DMI}/product_name": "c7g.metal", f"{DMI}/sys_vendor": "Amazon EC2"}, None),
        (ARM | {f"{DMI}/product_name": "c7g.large", f"{DMI}/sys_vendor": "Amazon EC2"}, "amazon"),
        (ARM | {f"{DMI}/product_name": "Apple Virtualization Generic Platform"}, "apple"),
        (ARM | {"proc/device-tree/hypervisor/compatible": "linux,kvm\0"}, "kvm"),
        (PLAIN | {f"{DMI}/sys_vendor": "QEMU"}, None),  # the CPU would say so
        (PLAIN | {"sys/hypervisor/type": "xen\n"}, "xen"),
        (PLAIN | {"sys/hypervisor/type": "xen\n", "proc/xen/capabilities": "control_d\n"}, None),
        (FLAGGED | {"proc/version": "Linux version 6.6.87.2-microsoft-standard-WSL2"}, "wsl"),
        (PLAIN | {".dockerenv": ""}, "docker"),
        (FLAGGED | {".dockerenv": ""}, "docker in vm"),
        (PLAIN | {"run/.containerenv": ""}, "podman"),
        (PLAIN | {"run/systemd/container": "lxc\n"}, "lxc"),
        (PLAIN | {"proc/1/environ": "PATH=/bin\0container=lxc\0TERM=x\0"}, "lxc"),
        (PLAIN | {"proc/1/environ": "container=oci\0", ".dockerenv": ""}, "docker"),
        (PLAIN | {"proc/1/environ": "container=oci\0"}, "container"),
        (PLAIN | {"proc/1/environ": "container=\x1b[2J\0"}, "container"),
        (PLAIN | {"proc/1/cgroup": "0::/kubepods/besteffort/pod1/2\n"}, "kubernetes"),
        (PLAIN | {"proc/1/cgroup": "4:cpu:/docker/0123\n"}, "docker"),
        (PLAIN | {"proc/1/cgroup": "0::/machine.slice/libpod-0123.scope\n"}, "podman"),
        (PLAIN | {"proc/1/cgroup": "0::/init.scope\n"}, None),
    ],
)  # fmt: skip
def test_whose_machine_it_is(tmp_path: Path, files: dict[str, str], expected: str | None) -> None:
    assert virtual(str(write(tmp_path, files))) == expected


def test_whether_a_hypervisor_is_there() -> None:
    assert [told for told in ("docker", "docker in kvm", "wsl", "vm", "lxc", None) if in_machine(told)] == [
        "docker in kvm",
        "wsl",
        "vm",
    ]
