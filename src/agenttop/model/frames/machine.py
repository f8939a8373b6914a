"""Frames about the machine: host, GPUs, processes."""

from __future__ import annotations

from agenttop.model.frames.base import Frame


class HostSample(Frame, frozen=True, kw_only=True, tag="host"):
    """CPU, memory, disks and network of the host. Rates are over `window_s`."""

    window_s: float | None = None
    cpu_fraction: float | None = None
    """Busy share of all cores; waiting for I/O counts as not busy."""
    cpu_per_core: list[float] | None = None
    """Busy share per logical core, 0..1."""
    cpu_max_core_fraction: float | None = None
    iowait_fraction: float | None = None
    load_1m: float | None = None
    load_5m: float | None = None
    load_15m: float | None = None
    ram_total_bytes: int | None = None
    ram_used_bytes: int | None = None
    """Total minus available."""
    ram_available_bytes: int | None = None
    ram_cached_bytes: int | None = None
    """Page cache. A memory-mapped model lives here and counts as available."""
    swap_total_bytes: int | None = None
    swap_used_bytes: int | None = None
    swap_in_bytes_s: float | None = None
    swap_out_bytes_s: float | None = None
    disk_read_bytes_s: float | None = None
    disk_write_bytes_s: float | None = None
    net_received_bytes_s: float | None = None
    net_sent_bytes_s: float | None = None
    pressure_cpu_fraction: float | None = None
    """Share of the last 10 s in which some task waited for a CPU (Linux PSI)."""
    pressure_memory_fraction: float | None = None
    pressure_io_fraction: float | None = None
    cpu_limit_cores: float | None = None
    """A container's CPU limit, where one is set."""
    ram_limit_bytes: int | None = None
    ram_limited_used_bytes: int | None = None
    steal_fraction: float | None = None
    """Share of the time of all cores that a hypervisor gave to others. Not part of `cpu_fraction`."""
    cpu_mhz: float | None = None
    """Clock of the cores now, mean; and below the fastest any of them may reach."""
    cpu_max_mhz: float | None = None
    cpu_temperature_c: float | None = None
    cpu_power_w: float | None = None
    """Of all CPU packages, over `window_s`, from their energy counters."""
    dram_power_w: float | None = None
    ram_anonymous_bytes: int | None = None
    """Memory of programs that no file stands behind."""
    ram_mapped_bytes: int | None = None
    """The part of the page cache that programs have mapped: a memory-mapped model is in it."""
    ram_shared_bytes: int | None = None
    """Shared memory and tmpfs: counted in the page cache, but cannot be dropped."""
    ram_zfs_cache_bytes: int | None = None
    """Cache of ZFS, where there is one: counted as used, though the file system gives most of it back."""
    major_faults_s: float | None = None
    """Pages per second that a program touched and that had to come from a disk."""
    pressure_memory_full_fraction: float | None = None
    """Share of the last 10 s in which all tasks waited for memory at once (Linux PSI), and below for I/O."""
    pressure_io_full_fraction: float | None = None
    memory_pressure: str | None = None
    """normal, warn, critical: macOS tells this instead."""
    disk_busy_fraction: float | None = None
    """Of the busiest whole disk: share of the window in which it worked on something."""
    disk_busiest: str | None = None
    cpus_allowed: int | None = None
    """Logical cores this process may run on, where these are fewer than there are."""
    cpu_limit_throttled_fraction: float | None = None
    """Share of the periods in which the container's CPU limit stopped it."""
    cpu_limited_used_cores: float | None = None
    """Cores used by the group that has the CPU limit, over the window."""
    swap_limit_bytes: int | None = None
    numa_free_bytes: list[int] | None = None
    """Free memory of each NUMA node, where there are several; refreshed every few seconds."""


class GpuSample(Frame, frozen=True, kw_only=True, tag="gpu"):
    """One GPU. Rates are over `window_s`."""

    gpu: str
    """Stable identity: the UUID where there is one."""
    index: int
    vendor: str
    name: str
    state: str = "ok"
    """ok, asleep (powered down, and left so), lost (it does not answer any more), late (the driver has not
    answered for a while: the figures are of `age_s` ago)."""
    window_s: float | None = None
    driver: str | None = None
    util_fraction: float | None = None
    """Share of the driver's sample period in which at least one kernel ran."""
    mem_util_fraction: float | None = None
    mem_used_bytes: int | None = None
    mem_total_bytes: int | None = None
    sm_clock_mhz: int | None = None
    sm_clock_max_mhz: int | None = None
    mem_clock_mhz: int | None = None
    power_w: float | None = None
    power_limit_w: float | None = None
    temperature_c: float | None = None
    mem_temperature_c: float | None = None
    fan_fraction: float | None = None
    energy_j: float | None = None
    performance_state: int | None = None
    """0 is the fastest P-state."""
    throttle: list[str] | None = None
    """Reasons that hold the clocks down now, e.g. `power cap`; an empty list means none."""
    throttle_power_fraction: float | None = None
    """Share of the window spent held down by a power limit, from the driver's time counters."""
    throttle_thermal_fraction: float | None = None
    pcie_received_bytes_s: float | None = None
    pcie_sent_bytes_s: float | None = None
    pcie_generation: int | None = None
    pcie_generation_max: int | None = None
    pcie_width: int | None = None
    pcie_width_max: int | None = None
    age_s: float | None = None
    """Of a late one: how long ago its figures were true."""
    bus: str | None = None
    """PCI address, `0000:01:00.0`."""
    pci_id: str | None = None
    """Vendor and device on the PCI bus in hexadecimal, `10de:2b85`."""
    parent: str | None = None
    """Of a MIG instance: `gpu` of the card it is a part of, whose power and temperature are shared."""
    mig_instance: int | None = None
    """Of a MIG instance: its number within the card."""
    mig: bool = False
    """The card is split into MIG instances, which stand in samples of their own."""
    memory_kind: str | None = None
    """dedicated; unified (the host's RAM: what is used here is used there); vram+gtt (an APU's carve-out and
    what its driver maps of RAM as one pool: the second part is counted in RAM too)."""
    mem_reserved_bytes: int | None = None
    """Held by the driver itself; not in `mem_used_bytes`."""
    mem_vram_used_bytes: int | None = None
    """The two parts of a vram+gtt pool."""
    mem_vram_total_bytes: int | None = None
    mem_gtt_used_bytes: int | None = None
    mem_gtt_total_bytes: int | None = None
    mem_clock_max_mhz: int | None = None
    hotspot_c: float | None = None
    temperature_limit_c: float | None = None
    """From here the device lowers its clocks."""
    temperature_margin_c: float | None = None
    """Degrees left until then, as the device itself says; else `temperature_limit_c` less `temperature_c`."""
    mem_temperature_limit_c: float | None = None
    fan_rpm: int | None = None
    power_window_s: float | None = None
    """What `power_w` is an average over: 0 for an instant; None where that is not known."""
    power_scope: str | None = None
    """What `power_w` is of: board, chip, socket (an APU's CPU cores included), module."""
    power_limit_default_w: float | None = None
    energy_source: str | None = None
    """counter (the device's own), or power (`power_w` summed up over the session, where there is no counter
    or it does not agree with the power)."""
    throttle_shares: dict[str, float] = {}
    """Share of the window spent held down by each reason, from time counters; the words of `throttle`. A
    reason that is counted and did not occur is 0; one that is not counted is not in it. Reasons overlap."""
    pcie_source: str | None = None
    """counter (every byte), gpm (the driver's average), sample (20 ms of each second), bus (the device's own
    average)."""
    pcie_replays_total: int | None = None
    """Packets sent again: a bad slot or riser shows here."""
    nvlink_links: int | None = None
    """NVLinks that are up."""
    nvlink_received_bytes_s: float | None = None
    nvlink_sent_bytes_s: float | None = None
    sm_active_fraction: float | None = None
    """Share of the window in which the streaming multiprocessors had work, mean over them (GPM)."""
    sm_occupancy_fraction: float | None = None
    """Warps resident, of those that fit (GPM)."""
    tensor_active_fraction: float | None = None
    """Share of the window in which tensor cores worked (GPM)."""
    dram_active_fraction: float | None = None
    """Share of the peak bandwidth of the device's memory that was moved, as the device counts it (GPM)."""
    dram_read_bytes_s: float | None = None
    dram_write_bytes_s: float | None = None
    dram_is_floor: bool = False
    """The meter of `dram_read_bytes_s` and `dram_write_bytes_s` wraps below what the memory can do: it is at
    least that, if it has not wrapped."""
    ecc_corrected_total: int | None = None
    ecc_uncorrected_total: int | None = None
    remapped_rows_total: int | None = None
    health: list[str] | None = None
    """What is wrong with the device, each in a few words; empty when it was asked and is well."""
    visible_only: bool = False
    """`util_fraction` and `mem_used_bytes` are the sum over the processes that may be looked into, where the
    driver tells no more: they are at least that."""


HARMLESS_THROTTLE = frozenset({"user clocks", "sync boost", "display clocks"})
"""Reasons in `GpuSample.throttle` that somebody chose: they hold the clocks down without being trouble."""


class ProcessSample(Frame, frozen=True, kw_only=True, tag="process"):
    """One process of an engine, or one that holds memory of a GPU. Rates are over `window_s`."""

    pid: int
    name: str
    """Of the program, cleaned; never its arguments."""
    parent: int | None = None
    engine: str | None = None
    """The engine it belongs to; None for a stranger."""
    ended: bool = False
    """It is gone; nothing more comes of it."""
    window_s: float | None = None
    cpu_fraction: float | None = None
    """1 is one core."""
    threads: int | None = None
    rss_bytes: int | None = None
    """Resident, shared pages and pages of mapped files included."""
    pss_bytes: int | None = None
    """Resident, shared pages divided among those who share them. Costly to ask: looked at rarely."""
    file_bytes: int | None = None
    """Resident pages of mapped files: of a memory-mapped model, what of it is in RAM."""
    anonymous_bytes: int | None = None
    swapped_bytes: int | None = None
    major_faults_s: float | None = None
    read_bytes_s: float | None = None
    """From disks, mapped files included."""
    gpu_memory: dict[str, int] = {}
    """Bytes held on GPUs, by `GpuSample.gpu`; one without the number is not in it."""
    gpus: list[str] = []
    """GPUs it uses, whether or not the driver tells how much of them."""


class Hardware(Frame, frozen=True, kw_only=True, tag="hardware"):
    """What the machine is made of: sent once, and again when more is known."""

    sockets: int | None = None
    cores_physical: int | None = None
    cores_logical: int | None = None
    numa_nodes: list[str] = []
    """CPUs of each node as the kernel writes them, `0-15,32-47`; empty on a machine with one."""
    numa_total_bytes: list[int] = []
    memory_type: str | None = None
    """DDR5, LPDDR5X, ..."""
    memory_mt_s: int | None = None
    """Configured speed, million transfers a second; of the slowest module."""
    memory_modules: int | None = None
    """Slots with a module in them, of `memory_slots`."""
    memory_slots: int | None = None
    memory_channels: int | None = None
    """Channels with a module in them, where the firmware names them so that they can be counted."""
    memory_channels_total: int | None = None
    memory_peak_bytes_s: float | None = None
    """What the populated channels can move at that speed; None where either is not known."""
    memory_from: str | None = None
    """Where this was read: `dmidecode`, `/sys/firmware/dmi`, ..."""
    virtual: str | None = None
    """The hypervisor or container it runs in, where that can be told: kvm, docker, wsl, ..."""
