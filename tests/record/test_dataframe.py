"""Recordings as DataFrames: the same rows, typed, with gaps as gaps."""

import sys

import pytest

from agenttop.errors import AgenttopError, UsageError
from agenttop.record.dataframe import dataframe
from agenttop.record.read import Recording
from tests.record.build import record, session_frames

pandas = pytest.importorskip("pandas")


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return record(tmp_path_factory.mktemp("frames") / "a.agenttop", session_frames([(2, 40.0)], slots=2))


def test_turns_are_rows_with_types_and_arrival_times(path):
    frame = dataframe(path, "turns")
    with Recording(path) as recording:
        turns = recording.turns()
    assert len(frame) == len(turns) > 0
    assert list(frame["agent"]) == [turn.agent for turn in turns]
    assert str(frame["output_tokens"].dtype) == "Int64"
    assert frame["output_tokens"].sum() == sum(turn.output_tokens or 0 for turn in turns)
    assert len(frame["arrivals"][0]) == turns[0].events


def test_missing_is_missing_and_not_zero(path):
    frame = dataframe(path, "engine")
    assert frame["preemptions_total"].isna().all()
    assert not (frame["preemptions_total"] == 0).any()


def test_an_unknown_table_and_a_missing_package_are_one_sentence(path, monkeypatch):
    with pytest.raises(UsageError, match="no table 'spoons'"):
        dataframe(path, "spoons")
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(AgenttopError, match="needs the package pandas"):
        dataframe(path, "turn")
