"""What the client measures of itself: real processes, small rounds."""

from __future__ import annotations

import json
import sys

import pytest

from agenttop import cli
from agenttop.agents import calibrate as module
from agenttop.agents.calibrate import Calibration, CalibrationError, Stamps, Stub, calibrate, play
from agenttop.commands.calibrate import carried, lines

pytestmark = pytest.mark.slow


@pytest.fixture
def stub():
    engine = Stub()
    yield engine
    engine.close()


def test_every_event_that_was_sent_is_measured(stub: Stub) -> None:
    stub.set(100)
    played = play(stub, 4, 150, kernel_stamps=False)
    errors = played.errors()
    assert len(errors) == pytest.approx(4 * 50, abs=8)  # the first second of each is left out
    assert errors[0] > 0
    first, last = played.cold()
    assert 0 <= first <= last


def test_it_says_so_when_a_round_cannot_be_played(stub: Stub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stub, "url", "http://127.0.0.1:9")
    with pytest.raises(CalibrationError, match=r"did not finish|requests failed"):
        play(stub, 1, 10, timeout_s=4)


def test_all_rounds_and_their_report(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "FULL_TOKENS", 200)
    told: list[str] = []
    found = calibrate(4, 50, 1.4, 2, told.append)
    assert len(told) == 3
    assert found.usual.agents == 4
    assert 0 < found.usual.p50_s <= found.usual.p99_s <= found.usual.max_s
    assert found.full_speed_tok_s > 0
    if sys.platform == "linux":
        assert found.kernel is not None
        assert found.kernel.agents == 2
    text = "\n".join(lines(found))
    for word in ("usual load", "time stamps", "with kernel", "cold start", "full speed"):
        assert word in text


def made(**fields: object) -> Calibration:
    usual = Stamps(agents=256, p50_s=0.0005, p99_s=0.002, max_s=0.01, cpu_fraction=0.175)
    values = {
        "streams": 256, "rate_tok_s": 50.0, "usual": usual, "limited": None, "cold_spread_s": 0.009,
        "kernel": None, "full_speed_tok_s": 150_000.0, "full_speed_cpu_s_per_million": 5.0,
    }  # fmt: skip
    return Calibration(**(values | fields))  # type: ignore[arg-type]


def test_how_many_agents_it_carries() -> None:
    assert carried(made()) == 1024
    assert carried(made(full_speed_tok_s=20_000.0)) == 280  # what it cannot read it cannot carry
    assert "about 1024 agents at 50 tok/s" in "\n".join(lines(made()))


def test_a_client_that_is_the_limit_already_says_so_first() -> None:
    text = "\n".join(lines(made(limited="the driver took 90 % of a core")))
    assert "At this load the client is the limit here: the driver took 90 % of a core." in text
    assert "INVALID" in text
    assert "carries about" not in text


@pytest.mark.parametrize(
    "arguments", [["--streams", "0"], ["--rate", "0.1"], ["--for", "1s"], ["--for", "soon"]]
)
def test_wrong_usage_is_one_sentence(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["calibrate", *arguments]) == 2
    said = capsys.readouterr().err
    assert said.startswith("agenttop: ")
    assert said.count("\n") == 1


def test_the_json_report(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(module, "calibrate", lambda *_: made())
    assert cli.main(["calibrate", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert (report["schema"], report["streams"], report["agents_per_process"]) == (1, 256, 1024)
    assert report["kernel"] is None
