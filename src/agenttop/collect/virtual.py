"""Whether this is a virtual machine or a container, and whose, from signs that need no special rights.

Sources: systemd's src/basic/virt.c for the names in DMI; the files that container engines leave.
"""

from __future__ import annotations

import os
import re

from agenttop.collect.gpu.kernel_files import read_bytes, read_text
from agenttop.collect.kernel_tables import whole

_PRODUCTS = (
    ("KVM", "kvm"),
    ("OpenStack", "kvm"),
    ("KubeVirt", "kvm"),
    ("Amazon EC2", "amazon"),
    ("QEMU", "qemu"),
    ("VMware", "vmware"),
    ("VMW", "vmware"),
    ("innotek GmbH", "virtualbox"),
    ("VirtualBox", "virtualbox"),
    ("Xen", "xen"),
    ("HVM domU", "xen"),
    ("Bochs", "bochs"),
    ("Parallels", "parallels"),
    ("BHYVE", "bhyve"),
    ("Hyper-V", "hyper-v"),
    ("Apple Virtualization", "apple"),
    ("Google Compute Engine", "google"),
)
_DMI = ("product_name", "sys_vendor", "board_vendor", "bios_vendor", "product_version")
_METAL = re.compile(r"\.metal(-|$)")
"""Instances of Amazon that are no virtual machines say so in their product name."""
_IN_CGROUP = (
    (re.compile(r"kubepods"), "kubernetes"),
    (re.compile(r"/docker[/-]|/docker$"), "docker"),
    (re.compile(r"libpod"), "podman"),
    (re.compile(r"/lxc[./]"), "lxc"),
    (re.compile(r"/machine\.slice/machine-|/nspawn"), "systemd-nspawn"),
)
_NAME = re.compile(r"[a-z0-9-]{1,24}$")


def virtual(root: str) -> str | None:
    """`docker`, `kvm`, `docker in kvm`, `wsl`; None on a bare machine, as far as can be told."""
    inner, outer = container(root), machine(root)
    return f"{inner} in {outer}" if inner and outer else inner or outer


def in_machine(told: str | None) -> bool:
    """Whether `virtual` told of a hypervisor, and not of a container on a bare machine alone."""
    outer = (told or "").rpartition(" in ")[2]
    return outer in {"vm", "wsl", *(name for _, name in _PRODUCTS)}


def machine(root: str) -> str | None:
    """The hypervisor: `vm` for one that does not say its name."""
    if "microsoft" in (read_text(f"{root}/proc/version") or "").lower():
        return "wsl"
    flagged = has_hypervisor(whole(f"{root}/proc/cpuinfo") or b"")
    named = _named(root)
    if flagged is False and named != "xen":
        return None  # an x86 CPU says it itself; Xen hides it from some guests
    return named or ("vm" if flagged else None)


def has_hypervisor(cpuinfo: bytes) -> bool | None:
    """Whether an x86 CPU says that a hypervisor stands above it; None for other CPUs."""
    flags = re.search(rb"^flags\s*:(.*)$", cpuinfo, re.MULTILINE)
    return b"hypervisor" in flags[1].split() if flags else None


def _named(root: str) -> str | None:
    told = [read_text(f"{root}/sys/class/dmi/id/{name}") or "" for name in _DMI]
    for text in told:
        for start, name in _PRODUCTS:
            if text.startswith(start):
                return None if name == "amazon" and _METAL.search(told[0]) else name
    compatible = read_bytes(f"{root}/proc/device-tree/hypervisor/compatible") or b""
    if compatible.startswith(b"linux,kvm"):
        return "kvm"
    if (read_text(f"{root}/sys/hypervisor/type") or "") == "xen" and not _is_xen_host(root):
        return "xen"
    return None


def _is_xen_host(root: str) -> bool:
    return "control_d" in (read_text(f"{root}/proc/xen/capabilities") or "")


def container(root: str) -> str | None:
    """The engine of the container: `container` for one that does not say its name."""
    told = read_text(f"{root}/run/systemd/container") or _environment(root)
    if told and _NAME.match(told) and told not in ("oci", "wsl"):
        return told
    group = (whole(f"{root}/proc/1/cgroup") or b"").decode("utf-8", "replace")
    for pattern, name in _IN_CGROUP:
        if pattern.search(group):
            return name
    if os.path.exists(f"{root}/run/.containerenv"):  # noqa: PTH110 - `root` is a string for speed elsewhere
        return "podman"
    if os.path.exists(f"{root}/.dockerenv"):  # noqa: PTH110
        return "docker"
    if os.path.exists(f"{root}/run/secrets/kubernetes.io"):  # noqa: PTH110
        return "kubernetes"
    return "container" if told and told != "wsl" else None


def _environment(root: str) -> str | None:
    """What the first process was told by whoever started it; to be read by its own user alone."""
    for pair in (whole(f"{root}/proc/1/environ") or b"").split(b"\0"):
        name, _, value = pair.partition(b"=")
        if name == b"container":
            return value.decode("utf-8", "replace")
    return None
