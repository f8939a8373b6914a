"""Presets: complete, with sources, and any bad file refused in one sentence."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from agenttop.errors import UsageError
from agenttop.sim import memory, presets
from agenttop.sim.options import WIRES, EngineOptions

FILES = [file for file in sorted(presets.FOLDER.rglob("*.toml")) if file.stem != "tiny"]  # which is made up

HOSTS = {"rtx-5090", "rtx-pro-6000", "strix-halo", "2x4090", "rtx-3090", "2x3090", "2x3090-nvlink", "h100",
         "h200", "m3-ultra", "m4-max"}  # fmt: skip
NEEDS_SOURCE = ("bandwidth_bytes_s", "bandwidth_reached", "flops_s", "flops_reached", "weights_bytes",
                "in_ram_fraction", "kv_overhead", "layer_s", "step_factor", "usable_bytes")  # fmt: skip


def test_all_hosts_and_models_are_there() -> None:
    assert set(presets.hosts()) >= HOSTS
    assert len(presets.models()) >= 8
    for name in presets.hosts():
        host = presets.host(name)
        assert host.key == name
        assert host.gpus == 1 or host.link is not None
        assert host.gpu.idle_w < host.gpu.limit_w <= host.gpu.demand_w
        assert 0 < host.gpu.flops_reached < 1
        assert 0 < host.gpu.bandwidth_reached < 1
        assert host.unified_memory == (host.gpu.pcie_generation is None)
    for name in presets.models():
        model = presets.model(name)
        assert model.kv_layers <= model.layers
        assert model.active_params <= model.params
    for wire in WIRES:
        assert presets.engine(wire).step_s > 0


@pytest.mark.parametrize("file", FILES, ids=lambda file: f"{file.parent.name}/{file.stem}")
def test_a_number_that_matters_has_its_source_beside_or_above_it(file: Path) -> None:
    lines = file.read_text(encoding="utf-8").splitlines()
    for above, line in zip(["", *lines], lines, strict=False):
        key = re.match(r"(\w+) =", line)
        if key and key[1] in NEEDS_SOURCE:
            assert "#" in line or above.startswith("#"), f"{file.name}: {line}"


def test_every_model_fits_a_host_or_is_refused_with_the_arithmetic() -> None:
    fits: set[str] = set()
    for host in map(presets.host, presets.hosts()):
        for model in map(presets.model, presets.models()):
            for wire in WIRES:
                refusal, plan = "", None
                try:
                    plan = memory.plan(host, model, EngineOptions(wire=wire))
                except UsageError as refused:
                    refusal = str(refused)
                if plan is None:
                    assert "GiB" in refusal or "tokens" in refusal
                    continue
                assert plan.pool_tokens >= plan.context_tokens > 0
                assert plan.used_per_gpu_bytes <= host.gpu.memory_bytes
                fits.add(model.key)
    assert fits == set(presets.models())


def test_the_mixture_of_experts_uses_the_share_its_name_says() -> None:
    assert presets.model("qwen3-coder-30b-a3b-4bit").active_params == pytest.approx(3.0e9, rel=0.1)
    assert presets.model("qwen3.5-122b-a10b-offload").active_params == pytest.approx(9.5e9, rel=0.1)
    assert presets.model("qwen3-32b-4bit").active_params == 32e9


def test_an_unknown_name_is_answered_with_the_nearest_and_all() -> None:
    with pytest.raises(UsageError, match=r"rtx-5080.*did you mean rtx-5090.*known: 2x3090"):
        presets.host("rtx-5080")
    with pytest.raises(UsageError, match="known: qwen3"):
        presets.model("\x1b[31mgpt")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("name = ", "not a TOML file"),
        ("name = 'x'\n", "gpu"),
        ("name = 'x'\nspeed = 3\n", "unknown field"),
        ("\udcff", "not a TOML file"),
    ],
)
def test_a_bad_file_is_refused_in_one_sentence(tmp_path: Path, text: str, says: str) -> None:
    file = tmp_path / "mine.toml"
    file.write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(UsageError, match=says) as caught:
        presets.host(str(file))
    assert "mine.toml" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_missing_file_is_said() -> None:
    with pytest.raises(UsageError, match="cannot be read"):
        presets.model("/nowhere/at/all.toml")


def test_a_host_of_ones_own_is_loaded_from_its_path(tmp_path: Path) -> None:
    text = (presets.FOLDER / "hosts" / "rtx-5090.toml").read_text(encoding="utf-8")
    file = tmp_path / "two-5090.toml"
    file.write_text(text.replace('name = "RTX 5090"', 'name = "2x RTX 5090"\ngpus = 2'), encoding="utf-8")
    host = presets.host(str(file))
    assert (host.key, host.name, host.gpus) == ("two-5090", "2x RTX 5090", 2)
