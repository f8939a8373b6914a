"""What held clocks down, by reason and by GPU: time counters, samples, worst against mean."""

from __future__ import annotations

import pytest

from agenttop.analyse.held import held_down
from agenttop.model.frames import GpuSample


def gpus(number: int = 0, count: int = 10, **given: object) -> list[GpuSample]:
    return [
        GpuSample(t=float(t), gpu=f"G{number}", index=number, vendor="v", name="n", window_s=1.0, **given)  # type: ignore[arg-type]
        for t in range(count)
    ]


def test_nothing_told_is_not_known_and_told_nothing_is_none():
    assert not held_down(gpus()).looked
    assert held_down(gpus()).kind("power") is None
    quiet = held_down(gpus(throttle=[]))
    assert quiet.looked
    assert quiet.sentence() is None
    assert quiet.kind("power") == (0.0, "")


def test_time_counters_are_weighted_by_their_windows():
    samples = gpus(throttle_shares={"power cap": 0.0}, count=9)
    shares = {"power cap": 1.0}
    late = GpuSample(t=20.0, gpu="G0", index=0, vendor="v", name="n", window_s=11.0, throttle_shares=shares)
    samples.append(late)
    held = held_down(samples)
    assert held.means["power cap"] == pytest.approx(11 / 20)
    assert held.sentence() == "throttled 55 % of this level: power cap (GPU0)"


def test_samples_tell_where_no_counter_does():
    samples = [*gpus(throttle=["thermal (sw)"], count=3), *gpus(throttle=[], count=7)]
    held = held_down(samples)
    assert held.means == {"thermal (sw)": pytest.approx(0.3)}
    assert held.kind("thermal") == (pytest.approx(0.3), "thermal (sw) on GPU0")


def test_the_counter_goes_before_the_samples_unless_it_never_counts():
    held = held_down(gpus(throttle=["power cap"], throttle_shares={"power cap": 0.4, "thermal (hw)": 0.0}))
    assert held.means == {"power cap": pytest.approx(0.4), "thermal (hw)": 0.0}
    stuck = held_down(gpus(throttle=["power cap"], throttle_shares={"power cap": 0.0}))
    assert stuck.means["power cap"] == pytest.approx(1.0)


def test_one_gpu_does_not_hide_among_others():
    samples = [
        *gpus(0, throttle_shares={"power cap": 0.02, "thermal (hw)": 0.0}),
        *gpus(1, throttle_shares={"power cap": 0.4, "thermal (hw)": 0.1}),
    ]
    held = held_down(samples)
    assert held.means["power cap"] == pytest.approx(0.21)
    assert held.sentence() == (
        "throttled 40 % of this level: power cap (GPU1, 21 % on average of 2 GPUs), also 10 % thermal (hw)"
        " (GPU1)"
    )


def test_what_somebody_chose_is_no_trouble():
    held = held_down(gpus(throttle=["user clocks"]))
    assert held.means == {"user clocks": pytest.approx(1.0)}
    assert held.trouble() == {}
    assert held.sentence() is None


def test_counters_of_whole_kinds_as_older_recordings_have_them():
    held = held_down(gpus(throttle_power_fraction=0.25, throttle_thermal_fraction=0.0))
    assert held.means == {"power limit": pytest.approx(0.25), "thermal limit": 0.0}
    named = held_down(
        gpus(throttle=["power cap"], throttle_power_fraction=0.9, throttle_thermal_fraction=0.0)
    )
    assert named.means == {"power cap": pytest.approx(1.0), "thermal limit": 0.0}


def test_two_samples_are_no_series():
    assert not held_down(gpus(throttle=["power cap"], count=2)).looked
