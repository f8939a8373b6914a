"""Power of a Jetson from the meters on its supply rails (INA3221).

Source: the kernel's `hwmon/ina3221` document (`inN_input` in mV, `currN_input` in mA, `inN_label`), and the
driver of JetPack 4 and before (`rail_name_N`, `in_powerN_input` in mW).

Rules
- The rail that feeds the whole module is the power; where a board has none (AGX Orin, AGX Xavier), the rail
  that feeds the GPU is, and says so: rails overlap, and a sum of them would count some of it twice.
- A rail named NC is not connected.
"""

from __future__ import annotations

import msgspec

from agenttop.collect.gpu.kernel_files import folders, plain, read_text

MODULE = ("VDD_IN", "POM_5V_IN")
"""Rails that feed the whole module: Orin NX and Nano, Xavier NX, TX2; Nano."""
GPU = ("VDD_GPU_SOC", "VDD_GPU", "GPU", "VDD_SYS_GPU", "POM_5V_GPU", "VDD_CPU_GPU_CV")
"""Rails that feed the GPU, and what shares them."""
_MOST_MW = 200_000
_MOST_MV = 60_000
_MOST_MA = 60_000


class Rail(msgspec.Struct, frozen=True, kw_only=True):
    """One supply rail."""

    label: str
    power: str | None = None
    """File of milliwatts; else both of the others."""
    voltage: str = ""
    current: str = ""

    @property
    def scope(self) -> str:
        """What it feeds, in the words of `GpuSample.power_scope`."""
        return "module" if self.label in MODULE else "chip"

    def watts(self) -> float | None:
        """What it carries now."""
        if self.power is not None:
            milliwatts = plain(self.power, _MOST_MW)
            return None if milliwatts is None else milliwatts / 1000
        voltage, current = plain(self.voltage, _MOST_MV), plain(self.current, _MOST_MA)
        return None if voltage is None or current is None else voltage * current / 1e6


def rail(root: str) -> Rail | None:
    """The rail to tell: that of the module before that of the GPU; None where no meter can be read."""
    found = {rail.label: rail for rail in [*_hwmon(root), *_iio(root)]}
    return next((found[label] for label in (*MODULE, *GPU) if label in found), None)


def _hwmon(root: str) -> list[Rail]:
    found = []
    place = f"{root}/sys/class/hwmon"
    for name in folders(place):
        if read_text(f"{place}/{name}/name") == "ina3221":
            for number in "123":
                begin = f"{place}/{name}"
                label = read_text(f"{begin}/in{number}_label")
                voltage, current = f"{begin}/in{number}_input", f"{begin}/curr{number}_input"
                if label:
                    found.append(Rail(label=label, voltage=voltage, current=current))
    return found


def _iio(root: str) -> list[Rail]:
    found = []
    place = f"{root}/sys/bus/i2c/drivers/ina3221x"
    for chip in folders(place):
        for device in folders(f"{place}/{chip}"):
            if device.startswith("iio:device"):
                for number in "012":
                    begin = f"{place}/{chip}/{device}"
                    label = read_text(f"{begin}/rail_name_{number}")
                    if label:
                        found.append(Rail(label=label, power=f"{begin}/in_power{number}_input"))
    return found
