"""Sessions to draw: frames as a node would send them, written out by formula, without a clock or a seed."""

from __future__ import annotations

import math

from agenttop.model.frames import (
    AgentSample,
    EngineSample,
    Event,
    Frame,
    GpuSample,
    HostSample,
    LoadSample,
    Missing,
    OwnSample,
    Plan,
    RecordingState,
    Session,
    SlotSample,
    Turn,
)

URL = "http://127.0.0.1:8080"
GIB = 1024**3


def session(*, demo: bool = True, cores: int = 12) -> Session:
    return Session(
        t=0.0,
        schema=1,
        session="20261130-191459-box1-3f2a",
        started_unix=1_796_066_099.0,
        host="box1",
        os="Linux 6.8",
        cpu="AMD Ryzen 9 7900",
        cores_physical=cores // 2,
        cores_logical=cores,
        ram_total_bytes=64 * GIB,
        agenttop="0.1.0",
        python="3.11.7",
        demo=demo,
        urls=[URL],
    )


def no_gpu() -> Missing:
    return Missing(
        t=0.1,
        what="gpu",
        why="no NVIDIA driver, no AMD card",
        fix="install the NVIDIA driver, if there is an NVIDIA card",
    )


def host(t: float, busy: float = 0.06, cores: int = 12) -> HostSample:
    return HostSample(
        t=t,
        window_s=1.0,
        cpu_fraction=busy,
        cpu_per_core=[min(1.0, busy * (0.4 + (core * 7 % 5) / 3)) for core in range(cores)],
        cpu_max_core_fraction=min(1.0, busy * 1.8),
        iowait_fraction=0.0,
        load_1m=0.4,
        ram_total_bytes=64 * GIB,
        ram_used_bytes=int(11.2 * GIB),
        ram_available_bytes=int(52.8 * GIB),
        ram_cached_bytes=38 * GIB,
        swap_total_bytes=8 * GIB,
        swap_used_bytes=0,
        swap_in_bytes_s=0.0,
        swap_out_bytes_s=0.0,
        disk_read_bytes_s=0.0,
        disk_write_bytes_s=1.1e6,
        net_received_bytes_s=0.1e6,
        net_sent_bytes_s=2.2e6,
        pressure_cpu_fraction=0.0,
        pressure_memory_fraction=0.0,
        pressure_io_fraction=0.002,
    )


def gpu(t: float, index: int = 0, util: float = 0.97) -> GpuSample:
    return GpuSample(
        t=t,
        gpu=f"GPU-{index}",
        index=index,
        vendor="NVIDIA",
        name="NVIDIA GeForce RTX 5090",
        window_s=1.0,
        util_fraction=util,
        mem_util_fraction=0.71,
        mem_used_bytes=int(24.1 * GIB),
        mem_total_bytes=int(31.8 * GIB),
        sm_clock_mhz=2610,
        power_w=486.0,
        power_limit_w=575.0,
        temperature_c=62.0,
        mem_temperature_c=84.0,
        throttle=["power cap"] if util > 0.95 else [],
        throttle_power_fraction=0.12,
        throttle_thermal_fraction=0.01,
        pcie_received_bytes_s=1.2e9,
        pcie_sent_bytes_s=0.3e9,
        pcie_generation=5,
        pcie_generation_max=5,
        pcie_width=16,
        pcie_width_max=16,
    )


def engine(t: float, **changes: object) -> EngineSample:
    fields: dict[str, object] = {
        "t": t,
        "engine": URL,
        "url": URL,
        "name": "llama.cpp",
        "state": "ok",
        "version": "b11549",
        "model": "tiny-random",
        "load_allowed": True,
        "age_s": 0.01,
        "reply_s": 0.003,
        "window_s": 1.0,
        "running": 0,
        "waiting": 0,
        "slots_total": 4,
        "context_limit_tokens": 2048,
        "kv_layout": "split",
        "kv_pool_tokens": 8192,
        "kv_used_tokens": 0,
        "kv_active_tokens": 0,
        "kv_idle_tokens": 0,
        "kv_used_fraction": 0.0,
        "decode_tok_s": 0.0,
        "prefill_tok_s": 0.0,
    }
    return EngineSample(**{**fields, **changes})  # type: ignore[arg-type]


def idle() -> list[Frame]:
    """Eight seconds of a llama.cpp server that nobody uses, on a machine without a GPU."""
    frames: list[Frame] = [
        session(demo=False),
        no_gpu(),
        Event(t=0.4, event="engine.found", text=f"llama.cpp b11549 found at {URL}"),
    ]
    for second in range(1, 9):
        frames += [host(second), engine(second)]
        frames += [
            SlotSample(t=second, engine=URL, slot=slot, phase="idle", context_limit_tokens=2048)
            for slot in range(4)
        ]
    frames += [
        OwnSample(t=8.0, role="console", pid=10, cpu_fraction=0.008, window_s=2.0, memory_bytes=48_000_000),
        OwnSample(t=8.0, role="node", pid=11, cpu_fraction=0.006, window_s=2.0, memory_bytes=44_000_000),
        RecordingState(t=8.0, state="on", path="/home/me/a.agenttop", size_bytes=94_208),
    ]
    return frames


def loading() -> list[Frame]:
    """An engine that reads its model."""
    return [
        session(demo=False),
        no_gpu(),
        host(1.0),
        engine(
            1.0,
            state="loading",
            note="the model is being loaded; it will answer when that is done",
            model=None,
            **dict.fromkeys(FIGURES),
        ),
    ]


def down() -> list[Frame]:
    """Agents ran, then the engine went away; they wait and try again."""
    frames: list[Frame] = running(60)
    frames += [
        host(61.0),
        engine(
            61.0,
            state="down",
            note="connection refused: is the server still running?",
            age_s=2.4,
            **dict.fromkeys(FIGURES),
        ),
        Event(
            t=60.4,
            event="engine.down",
            text=f"{URL} does not answer any more",
            source="engine",
            severity="bad",
        ),
    ]
    for number in range(4):
        frames.append(
            AgentSample(
                t=61.0,
                agent=f"a{number + 1}",
                engine=URL,
                profile="human",
                state="backoff",
                state_since=60.5,
                state_until=64.5,
                turn=7,
                turns_done=6,
                failures=1,
                context_tokens=800,
                context_limit_tokens=1843,
                error="connection refused",
            )
        )
    return frames


FIGURES = (
    "running",
    "waiting",
    "kv_used_tokens",
    "kv_active_tokens",
    "kv_idle_tokens",
    "kv_used_fraction",
    "decode_tok_s",
    "prefill_tok_s",
)


def _wave(second: float, number: int) -> float:
    return 12.5 + 3.0 * math.sin(second / 9 + number) + 1.5 * math.sin(second / 2.3 + 2 * number)


PHASES = ("prefill", "decode", "decode", "decode", "decode", "decode", "tool", "tool")


def running(
    seconds: int = 200,
    agents: int = 4,
    slots: int = 4,
    *,
    gpus: int = 0,
    demo: bool = True,
    unified: bool = False,
) -> list[Frame]:
    """Agents that came one after another and take turns of eight seconds; deterministic."""
    pool = 8192 if not unified else 655_360
    limit = 1843 if not unified else 100_000
    frames: list[Frame] = [
        session(demo=demo),
        Plan(
            t=1.0,
            engine=URL,
            profile="human",
            notes=["context limit 100000 -> 1843 (engine: 2048)"],
            seed=7,
            stagger_s=20.0,
        ),
        Event(t=1.0, event="engine.found", text=f"llama.cpp b11549 found at {URL}"),
        Event(
            t=2.0,
            event="agents.target",
            text=f"target {agents} agents, profile human, one every 20 s",
            source="you",
        ),
    ]
    if not gpus:
        frames.append(no_gpu())
    for second in range(1, seconds + 1):
        frames += [
            host(second, 0.2 + 0.1 * math.sin(second / 11)),
            *(gpu(second, index) for index in range(gpus)),
        ]
        decode = prefill = active_tokens = 0.0
        running_now = 0
        for number in range(agents):
            start = 5 + number * min(20, 60 // agents + 2)
            if second < start:
                frames.append(_agent(second, number, "waiting", limit, start, slots))
                continue
            phase = PHASES[(second - start + 3 * number) % 8]
            turn = (second - start + 3 * number) // 8 + 1
            rate = round(_wave(second, number), 2) if phase == "decode" else None
            context = _context(turn, second, limit)
            frames.append(
                _agent(second, number, phase, limit, start, slots, turn=turn, rate=rate, context=context)
            )
            if phase != "tool":
                running_now += 1
                decode += rate or 0.0
                prefill += 900.0 if phase == "prefill" else 0.0
                active_tokens += context
            if phase == "tool" and PHASES[(second - 1 - start + 3 * number) % 8] == "decode":
                frames.append(_turn(second, number, turn, context))
            if number < slots:
                frames.append(_slot(second, number, phase, context, rate, 2048 if not unified else 131_072))
        for slot in range(agents, slots):
            if second == seconds:
                frames.append(_spare_slot(second, slot, 2048 if not unified else 131_072))
        for number in range(agents):
            if second == 5 + number * min(20, 60 // agents + 2) and number:
                frames.append(
                    Event(t=second, event="agents.started", text=f"a{number + 1} starts", source="driver")
                )
        idle_tokens = 420.0 if not unified else 18_000.0
        frames += [
            engine(
                second,
                running=min(running_now, slots),
                waiting=max(0, running_now - slots),
                slots_total=slots,
                kv_layout="unified" if unified else "split",
                kv_pool_tokens=pool,
                kv_active_tokens=int(active_tokens),
                kv_idle_tokens=int(idle_tokens),
                kv_used_tokens=int(active_tokens + idle_tokens),
                kv_used_fraction=min(1.0, (active_tokens + idle_tokens) / pool),
                context_limit_tokens=2048 if not unified else 131_072,
                decode_tok_s=round(decode, 2),
                prefill_tok_s=prefill,
            ),
            LoadSample(
                t=second,
                engine=URL,
                profile="human",
                target=agents,
                active=sum(second >= 5 + number * min(20, 60 // agents + 2) for number in range(agents)),
                in_flight=running_now,
                window_s=1.0,
                decode_tok_s=round(decode, 2),
                loop_lag_p99_s=0.0006,
                cpu_fraction=0.02,
            ),
        ]
    frames += [
        Event(t=seconds - 41.0, event="mark", text="kettle on", source="you"),
        Event(
            t=seconds - 12.0,
            event="agent.compact",
            text="a1 compacts 1840 → 412 tokens (6.1 s)",
            source="driver",
        ),
        OwnSample(
            t=seconds, role="console", pid=10, cpu_fraction=0.008, window_s=2.0, memory_bytes=48_000_000
        ),
        OwnSample(t=seconds, role="node", pid=11, cpu_fraction=0.006, window_s=2.0, memory_bytes=44_000_000),
        OwnSample(
            t=seconds, role="driver", pid=12, cpu_fraction=0.021, window_s=2.0, memory_bytes=31_000_000
        ),
        RecordingState(t=seconds, state="on", path="/home/me/a.agenttop", size_bytes=4_300_000),
    ]
    frames.sort(key=lambda frame: frame.t)
    return frames


def _context(turn: int, second: int, limit: int) -> int:
    return int(limit * (0.2 + 0.11 * (turn % 8)) + second % 8 * 13)


def _agent(
    second: int,
    number: int,
    state: str,
    limit: int,
    start: int,
    slots: int,
    *,
    turn: int = 0,
    rate: float | None = None,
    context: int | None = None,
) -> AgentSample:
    place = (second - start + 3 * number) % 8
    began = (
        float(second - place)
        if state == "prefill"
        else float(second - max(0, place - 1) if state == "decode" else second - place + 6)
    )
    working = state in ("prefill", "decode")
    return AgentSample(
        t=second,
        agent=f"a{number + 1}",
        engine=URL,
        profile="human",
        state=state,
        state_since=0.0 if state == "waiting" else began,
        state_until=float(start) if state == "waiting" else began + 2 if state == "tool" else None,
        turn=turn,
        turns_done=max(0, turn - 1),
        compactions=turn // 8,
        context_tokens=context,
        context_limit_tokens=limit,
        prompt_tokens=context if working else None,
        cached_tokens=int((context or 0) * 0.93) if working else None,
        prefilled_tokens=int((context or 0) * 0.38) if state == "prefill" else None,
        output_tokens=int(place * 12.5) if state == "decode" else None,
        output_limit_tokens=80 if working else None,
        decode_tok_s=rate,
        ttft_s=None if (turn < 2 and state == "prefill") or turn == 0 else 0.6 + 0.3 * (number + turn % 3),
        output_tokens_total=turn * 63,
        slot=number if working and number < slots else None,
    )


def _slot(second: int, number: int, phase: str, context: int, rate: float | None, limit: int) -> SlotSample:
    serving = phase in ("prefill", "decode")
    return SlotSample(
        t=second,
        engine=URL,
        slot=number,
        phase=phase if serving else "idle",
        task=second // 8 if serving else None,
        context_tokens=context,
        context_limit_tokens=limit,
        prefilled_tokens=int(context * 0.38) if phase == "prefill" else None,
        prefill_tok_s=900.0 if phase == "prefill" else None,
        decode_tok_s=rate,
        agent=f"a{number + 1}" if serving else None,
    )


def _spare_slot(second: int, slot: int, limit: int) -> SlotSample:
    busy = slot in (7, 12)
    return SlotSample(
        t=second,
        engine=URL,
        slot=slot,
        phase="decode" if busy else "idle",
        task=900 + slot if busy else None,
        context_tokens=1200 if busy else 80 if slot % 3 == 0 else 0,
        context_limit_tokens=limit,
        decoded_tokens=60 if busy else None,
        remaining_tokens=40 if busy else None,
        decode_tok_s=11.0 if busy else None,
    )


def _turn(second: int, number: int, turn: int, context: int) -> Turn:
    return Turn(
        t=second,
        agent=f"a{number + 1}",
        engine=URL,
        profile="human",
        turn=turn,
        t_queued=second - 6.0,
        t_sent=second - 6.0,
        t_first_byte=second - 5.4,
        t_first_token=second - 5.4 + 0.3 * (number + turn % 3),
        t_last_token=second - 0.1,
        prompt_tokens=context,
        cached_tokens=int(context * 0.93),
        output_tokens=63,
        context_tokens=context,
        status=200,
        finish_reason="stop",
    )
