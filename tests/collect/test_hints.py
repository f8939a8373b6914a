"""Which engine a command line starts, and where it listens. No process, no socket."""

from __future__ import annotations

import shlex

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agenttop.collect.containers import belongs, forwarded
from agenttop.collect.engine.kinds.llamacpp import KIND
from agenttop.collect.hints import is_own, judge, kind_of, kind_of_image, port_in, usual_ports
from agenttop.collect.process import Command


@pytest.mark.parametrize(
    ("command", "name"),
    [
        ("llama-server -m x.gguf --port 8081", "llama.cpp"),
        ("/opt/llama.cpp/build/bin/llama-server -m x", "llama.cpp"),
        (r"'C:\llama\llama-server.exe' -m x", "llama.cpp"),
        (r"'C:\Program Files\Ollama\ollama.exe' serve", "Ollama"),
        ("python -m agenttop.demo.server --model x", "llama.cpp"),
        ("/usr/bin/python3.12 -m llama_cpp.server", "llama-cpp-python"),
        ("/usr/bin/python3 /usr/local/bin/vllm serve Qwen/Qwen3-8B", "vLLM"),
        (r"'C:\Python312\python.exe' 'C:\Python312\Scripts\vllm.exe' serve x", "vLLM"),
        ("python -m vllm.entrypoints.openai.api_server --model x", "vLLM"),
        ("python3 -X dev -u -W ignore -m vllm.entrypoints.openai.api_server", "vLLM"),
        ("VLLM::APIServer_0", "vLLM"),
        ("vllm-rs serve x", "vLLM"),
        ("python -m sglang.launch_server --model-path x", "SGLang"),
        ("/usr/local/bin/ollama serve", "Ollama"),
        ("text-generation-launcher --model-id x", "TGI"),
        ("python koboldcpp.py x.gguf", "KoboldCpp"),
        ("llama-swap --config x", "llama-swap"),
        ("mlx_lm.server --model x", "mlx_lm"),
        # a title instead of a command line
        ("'/opt/bin/python3 -m sglang.launch_server --port 30001'", "SGLang"),
        # started by something else
        ("uv run vllm serve x --port 8001", "vLLM"),
        ("uv run --with vllm python -m vllm.entrypoints.openai.api_server", "vLLM"),
        ("conda run -n inference --no-capture-output vllm serve x", "vLLM"),
        ("mpirun -n 2 --allow-run-as-root trtllm-serve x", "TensorRT-LLM"),
        ("nohup nice -n 5 llama-server -m x", "llama.cpp"),
        ("env CUDA_VISIBLE_DEVICES=0 llama-server -m x", "llama.cpp"),
        ("numactl --cpunodebind=0 python3 -m sglang.launch_server", "SGLang"),
        ("bash /usr/local/bin/koboldcpp --model x", "KoboldCpp"),
        # agenttop's own
        ("agenttop sim --port 8000", "vLLM"),
        ("python -m agenttop sim --json --wire llama.cpp", "llama.cpp"),
        ("/usr/bin/python3 /usr/bin/agenttop sim --wire=llama.cpp", "llama.cpp"),
        ("agenttop --url http://127.0.0.1:8080", None),
        ("python -m agenttop.node --url x", None),
        ("python -m agenttop node", None),
        ("python -m agenttop", None),
        ("agenttop sim --wire other", None),
        # no engines
        ("", None),
        ("''", None),
        ("vim llama-server.log", None),
        ("tail -f /var/log/llama-server", None),
        ("grep llama-server", None),
        ("ssh box2 llama-server -m x", None),
        ("python manage.py runserver 8000", None),
        ("python -c 'import vllm'", None),
        ("python", None),
        ("python -m", None),
        ("uv run pytest", None),
        ("env", None),
        ("VLLM::EngineCore", None),
        ("VLLM::Worker_TP0", None),
        ("sglang::scheduler_TP0", None),
        ("sglang::detokenizer", None),
    ],
)
def test_command_lines(command: str, name: str | None) -> None:
    kind = kind_of(Command(shlex.split(command)))
    assert (kind.name if kind else None) == name


@pytest.mark.parametrize(
    ("command", "own"),
    [
        ("python -m agenttop node --url x", True),
        ("/usr/bin/python3 -u -m agenttop.agents.driver", True),
        ("/usr/bin/python3 /usr/local/bin/agenttop --url x", True),
        (r"'C:\Scripts\agenttop.exe' attach", True),
        ("agenttop sim", False),
        ("python -m agenttop.demo.server", False),
        ("python -m vllm.entrypoints.openai.api_server", False),
        ("vim agenttop", False),
        ("python", False),
        ("", False),
    ],
)
def test_agenttops_own_processes(command: str, own: bool) -> None:
    assert is_own(Command(shlex.split(command))) is own


@pytest.mark.parametrize(
    ("command", "direct"),
    [
        ("vllm serve x", True),
        ("python3 /usr/bin/vllm serve x", True),
        ("uv run vllm serve x", False),
        ("mpirun -n 2 trtllm-serve x", False),
        ("sh /usr/bin/vllm serve x", False),
    ],
)
def test_what_starts_a_server_is_not_the_server(command: str, direct: bool) -> None:
    judged = judge(Command(shlex.split(command)))
    assert judged is not None
    assert judged.direct is direct


@pytest.mark.parametrize(
    ("command", "port"),
    [
        ("x --port 81", 81),
        ("x --port=82", 82),
        ("x --port 0.0.0.0:83", 83),
        ("x --port :84", 84),
        ("x --port 0", None),
        ("x --port 70000", None),
        ("x --port 8080x", None),
        ("x --port", None),
        ("x", None),
    ],
)
def test_ports_in_command_lines(command: str, port: int | None) -> None:
    assert port_in(Command(command.split(" ")), KIND) == port


@pytest.mark.parametrize(
    ("image", "name"),
    [
        ("vllm/vllm-openai:v0.33.0", "vLLM"),
        ("docker.io/ollama/ollama", "Ollama"),
        ("ghcr.io/ggml-org/llama.cpp:server-cuda", "llama.cpp"),
        ("LMSYSORG/sglang@sha256:00", "SGLang"),
        ("postgres:16", None),
        ("", None),
    ],
)
def test_images_of_containers(image: str, name: str | None) -> None:
    kind = kind_of_image(image)
    assert (kind.name if kind else None) == name


def test_the_port_of_the_web_is_not_a_usual_one() -> None:
    assert 80 not in usual_ports()
    assert {8000, 8080, 11434, 30000} <= usual_ports()


WORDS = st.one_of(
    st.text(max_size=20),
    st.sampled_from(
        ["python3", "-m", "uv", "run", "env", "vllm", "serve", "--port", "=", "agenttop", "sim", "/"]
    ),
    st.sampled_from(
        ["docker-proxy", "pasta", "-t", "-proto", "tcp", "-host-port", "-container-port", "1-9:3"]
    ),
)


@given(st.lists(WORDS, max_size=12))
def test_any_command_line_can_be_judged(words: list[str]) -> None:
    command = Command(words)
    judged = judge(command)
    assert judged is None or port_in(command, judged.kind) in (None, *range(1, 65536))
    assert is_own(command) in (True, False)
    for each in forwarded(command):
        assert 0 < each.port < 65536
        assert 0 < each.container_port < 65536
    belongs(command)


def test_nothing_of_a_command_line_is_shown() -> None:
    command = Command(["vllm", "serve", "--api-key", "secret-key"])
    assert "secret" not in repr(command) + repr(judge(command))
