"""Ray Serve LLM: the captured pages of Ray's metrics port, how they are found, and nonsense."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agenttop.collect.engine.base import ChangedError, UnrecognisedError
from agenttop.collect.engine.kind import Circumstances
from agenttop.collect.engine.kinds.ray_serve import pages
from agenttop.collect.engine.kinds.vllm.metrics import read_ray
from agenttop.collect.engine.recognise import recognise
from agenttop.collect.process import Command, ServerProcess
from tests.collect import imitations as imitate
from tests.collect import samples
from tests.collect.scripted import Played

PAGES = [(at, body.decode()) for at, body in samples.series("ray_serve/metrics.jsonl.gz")]
MODELS = {
    "object": "list",
    "data": [
        {
            "id": "tiny",
            "object": "model",
            "owned_by": "organization-owner",
            "permission": [],
            "metadata": {"model_id": "tiny", "input_modality": "text", "max_request_context_length": 2048},
        }
    ],
}


def port(page: str = PAGES[0][1], **options: Any) -> Played:
    """Ray's metrics port, which answers every path with its page."""
    return Played("Ray Serve LLM", {"/metrics": page, "/v1/models": page}, **options)


async def test_a_captured_run_of_the_metrics_port() -> None:
    async with port() as server:
        readings = [await server.look(at, metrics=page) for at, page in PAGES]
        asked = server.asked
    first, last = readings[0].sample, readings[-1].sample
    assert (first.name, first.model, first.state, first.front) == ("Ray Serve LLM", "tiny", "ok", True)
    assert (first.decode_tok_s, first.window_s, first.poll_every_s) == (None, None, 10.0)
    assert (last.running, last.waiting, last.waiting_reasons) == (6, 2, {"capacity": 2})
    assert last.kv_used_fraction == 0.25
    assert last.finish_reasons == {"stop": 8, "length": 4}
    assert last.output_tokens_total == 4800 + 5100
    assert last.decode_tok_s == pytest.approx((4800 + 5100 - 1200 - 1560) / 30, rel=0.01)
    assert last.per_sequence_of == 6
    assert last.window_s == pytest.approx(30, abs=0.1)
    roles = [(part.role, part.running, part.kv_used_fraction) for part in readings[-1].parts]
    assert roles == [("replica", 3, 0.25)] * 2
    assert sum(part.decode_tok_s or 0 for part in readings[-1].parts) == pytest.approx(last.decode_tok_s)
    assert asked == ["/v1/models", *["/metrics"] * len(PAGES)]


async def test_sums_that_ray_makes_up_give_no_mean() -> None:
    """All times are 25 ms; Ray's sums say 17.5, the middle of the bucket."""
    async with port() as server:
        readings = [await server.look(at, metrics=page) for at, page in PAGES]
    itl = [each for each in readings[-1].latencies if each.measure == "itl"]
    assert itl[0].count > 0
    assert itl[0].mean_s is None
    assert itl[0].p50_s is not None
    assert 0.010 <= itl[0].p50_s <= 0.025


async def test_the_page_is_asked_every_ten_seconds() -> None:
    async with port() as server:
        readings = [await server.look(float(second)) for second in range(25)]
        assert server.asked.count("/metrics") == 3
    assert {reading.sample.running for reading in readings} == {6}


async def test_gauges_that_ray_has_forgotten_are_missing_and_not_zero() -> None:
    gone = "\n".join(line for line in PAGES[-1][1].splitlines() if "num_requests" not in line)
    async with port() as server:
        await server.look(0.0)
        reading = await server.look(10.0, metrics=gone)
        told = server.why(reading)
    assert (reading.sample.running, reading.sample.waiting) == (None, None)
    assert "forgets" in (told["running"] or "")
    assert reading.sample.output_tokens_total is not None


async def test_a_counter_that_has_not_moved_yet_is_not_a_slower_engine() -> None:
    """The page is asked a little before Ray's next round: nothing new, and the rate stays."""
    async with port() as server:
        for at, page in PAGES:
            before = await server.look(at, metrics=page)
        again = await server.look(PAGES[-1][0] + 10.0)
        later = [await server.look(PAGES[-1][0] + 10.0 * rounds) for rounds in range(2, 9)]
    assert again.sample.decode_tok_s == before.sample.decode_tok_s
    assert later[-1].sample.decode_tok_s == 0.0


async def test_a_page_without_figures_of_vllm_says_what_to_switch_on() -> None:
    bare = "\n".join(line for line in PAGES[0][1].splitlines() if "vllm" not in line)
    async with port(bare) as server:
        reading = await server.look()
        told = server.why(reading)
        fixes = {frame.what.rpartition(":")[2]: frame.fix for frame in reading.missing}
    assert reading.sample.running is None
    assert "nothing of vLLM's" in (told["decode_tok_s"] or "")
    assert "log_engine_metrics" in (fixes["decode_tok_s"] or "")


async def test_where_metrics_may_not_be_asked_they_are_not() -> None:
    async with port(seen=Circumstances(metrics=False)) as server:
        reading = await server.look()
        assert server.asked == ["/v1/models"]
        assert "--no-metrics" in str([frame.fix for frame in reading.missing])


def discovery(root: Path, pid: int, targets: list[str], folder: str = "tmp/ray/session_latest") -> None:
    """Ray's file, and the process it is of, below `root`."""
    (root / "proc" / str(pid)).mkdir(parents=True, exist_ok=True)
    (root / folder).mkdir(parents=True, exist_ok=True)
    content = [{"labels": {"job": "ray"}, "targets": targets}]
    (root / folder / "prom_metrics_service_discovery.json").write_text(json.dumps(content))


def proxy(pid: int = 7, **environment: str) -> ServerProcess:
    return ServerProcess(pid=pid, command=Command(["ray::ProxyActor"]), environment=environment)


async def test_the_api_leads_to_the_metrics_ports_of_this_host(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = pages.ports
    monkeypatch.setattr(pages, "ports", lambda process: found(process, tmp_path))
    page = {"body": PAGES[0][1]}
    with (
        imitate.serves({"/metrics": lambda: page["body"]}, kind="Ray Serve LLM") as export,
        imitate.serves({"/metrics": "ray_dashboard_api_requests_count_total 1\n"}) as dashboard,
    ):
        ports = [each.url.rpartition(":")[2] for each in (export, dashboard)]
        discovery(tmp_path, 7, ["203.0.113.9:1", *(f"127.0.0.1:{each}" for each in ports), "127.0.0.1:1"])
        seen = Circumstances(process=proxy())
        async with Played("Ray Serve LLM", {"/v1/models": MODELS}, seen) as api:
            for at, body in PAGES:
                page["body"] = body
                reading = await api.look(at)
            told = api.why(reading)
            assert api.asked == ["/v1/models"]
        assert {line.split(" ")[1] for line in (*export.asked, *dashboard.asked)} == {"/metrics"}
    sample = reading.sample
    assert (sample.model, sample.context_limit_tokens, sample.pid) == ("tiny", 2048, 7)
    assert sample.running == 6
    assert sample.decode_tok_s == pytest.approx(238.0, rel=0.01)
    assert "context_limit_tokens" not in told


@pytest.mark.parametrize(
    ("process", "why"),
    [
        (None, "cannot be seen"),
        (ServerProcess(pid=7, command=Command(["docker-proxy"])), "cannot be seen"),
        (proxy(), "not where it usually is"),
    ],
)
async def test_an_api_whose_metrics_ports_are_not_found_says_so(
    process: ServerProcess | None, why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pages, "ports", lambda process: [])
    async with Played("Ray Serve LLM", {"/v1/models": MODELS}, Circumstances(process=process)) as api:
        reading = await api.look()
        told = api.why(reading)
        fixes = {frame.what.rpartition(":")[2]: frame.fix for frame in reading.missing}
    assert (reading.sample.state, reading.sample.model, reading.sample.running) == ("ok", "tiny", None)
    assert why in (told["running"] or "")
    assert "--metrics-export-port" in (fixes["running"] or "")


def test_the_file_of_another_user_or_another_host_leads_nowhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert pages.ports(proxy(), tmp_path) == []
    discovery(tmp_path, 7, ["203.0.113.9:8080", "127.0.0.1:99999", "x", "127.0.0.1:8081", "[::1]:8082"])
    assert pages.ports(proxy(), tmp_path)[:1] == [8081]
    assert 8080 not in pages.ports(proxy(), tmp_path)
    discovery(tmp_path, 7, ["127.0.0.1:8090"], "elsewhere/ray")
    assert pages.ports(proxy(RAY_TMPDIR="/elsewhere"), tmp_path) == [8090]
    own = (tmp_path / "proc" / "7").stat().st_uid

    class Other:
        st_uid = own + 1

    real = Path.stat
    monkeypatch.setattr(
        Path, "stat", lambda self, **options: Other() if self.name == "7" else real(self, **options)
    )
    assert pages.ports(proxy(), tmp_path) == []


@pytest.mark.parametrize(
    "content", ["", "[]", "{}", "[" * 10_000, '[{"targets": 3}]', '[{"targets": ["\\u0000:1"]}]']
)
def test_odd_files_lead_nowhere(content: str, tmp_path: Path) -> None:
    discovery(tmp_path, 7, [])
    (tmp_path / "tmp/ray/session_latest/prom_metrics_service_discovery.json").write_text(content)
    assert pages.ports(proxy(), tmp_path) == []


async def test_both_are_recognised_and_vllm_claims_neither() -> None:
    for routes in (
        {"/v1/models": MODELS},
        dict.fromkeys(("/v1/models", "/metrics", "/props", "/"), PAGES[0][1]),
    ):
        with imitate.serves(routes) as server:
            made = await recognise(server.url)
            assert made.name == "Ray Serve LLM"
            await made.client.close()


async def test_a_page_that_is_too_long_for_a_question_is_still_recognised() -> None:
    """A node with a few replicas has megabytes, at every path."""
    page = PAGES[0][1] + "".join(f'ray_tasks{{n="{number:060}"}} 1\n' for number in range(20_000))
    assert len(page) > 1_000_000
    with imitate.serves(dict.fromkeys(("/v1/models", "/metrics", "/props", "/version", "/"), page)) as server:
        made = await recognise(server.url)
        assert made.name == "Ray Serve LLM"
        assert (await made.poll()).sample.running == 6
        await made.client.close()


async def test_an_application_that_serves_no_model() -> None:
    async with Played("Ray Serve LLM", {"/v1/models": {"hello": "world"}}) as server:
        with pytest.raises(UnrecognisedError):
            await server.look()


async def test_another_server_on_the_metrics_port() -> None:
    async with port() as server:
        await server.look(0.0)
        with pytest.raises(ChangedError):
            await server.look(10.0, metrics="<html>")


def test_replicas_are_told_by_their_worker_where_there_is_no_name() -> None:
    """Older wrappers of vLLM set no ReplicaId; counters may lack their suffix."""
    old = re.sub(r'ReplicaId="[^"]*",', "", PAGES[0][1]).replace("_tokens_total{", "_tokens{")
    found = read_ray(old, 0.0)
    assert found is not None
    assert len({part.name for part in found.parts}) == 2
    assert (found.running, found.output) == (6, 2760)


def test_several_models_on_one_node() -> None:
    first, second = re.findall(r'ReplicaId="([^"]+)"', PAGES[0][1])[0], PAGES[0][1]
    mixed = "\n".join(
        line.replace('model_name="tiny"', 'model_name="other"') if f'"{first}"' in line else line
        for line in second.splitlines()
    )
    found = read_ray(mixed, 0.0)
    assert found is not None
    assert found.model is None
    assert {part.model for part in found.parts} == {"tiny", "other"}


def test_the_pool_is_the_sum_of_the_replicas_that_have_told_it() -> None:
    found = read_ray(PAGES[0][1], 0.0)
    assert found is not None
    if found.pool.tokens is not None:
        assert found.pool.tokens == 2 * 999 * 16
    half = "\n".join(line for line in PAGES[0][1].splitlines() if "cache_config_info" not in line)
    found = read_ray(half, 0.0)
    assert found is not None
    assert (found.pool.tokens, found.pool.used, found.pool.fraction) == (None, None, 0.25)


_LINES = [line for line in PAGES[1][1].splitlines() if line.startswith("ray_vllm_")]
_VALUES = st.sampled_from(["NaN", "+Inf", "-1", "1e300", "0", "7", "", "abc"])


@given(
    changes=st.lists(st.tuples(st.integers(0, len(_LINES) - 1), _VALUES), max_size=30),
    dropped=st.sets(st.integers(0, len(_LINES) - 1), max_size=40),
    junk=st.text(max_size=60),
)
@settings(max_examples=20, deadline=None, suppress_health_check=list(HealthCheck))
async def test_no_nonsense_reaches_a_frame(
    changes: list[tuple[int, str]], dropped: set[int], junk: str
) -> None:
    lines = list(_LINES)
    for index, value in changes:
        lines[index] = f"{lines[index].rpartition(' ')[0]} {value}"
    mutated = "\n".join([junk, *(line for index, line in enumerate(lines) if index not in dropped)])
    async with port() as server:
        for number, body in enumerate([PAGES[0][1], mutated, PAGES[2][1], mutated, mutated]):
            await server.survives(10.0 * number, metrics=body)
    async with Played("Ray Serve LLM", {"/v1/models": junk}) as server:
        await server.survives()
        await server.survives(100.0, **{"v1/models": MODELS})
