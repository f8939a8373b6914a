"""Tables of levels as people publish them."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agenttop.analyse.published import read_table
from agenttop.errors import UsageError


def test_the_columns_of_the_issue_are_read():
    text = (
        "agents,decode_tok_s,decode_tok_s_per_agent,prefill_tok_s,completions_per_min,wait_s,preemptions\n"
        "1,50,50,1481,1.5,12,0\n"
        "4,180.5,45,1500,2,,3\n"
    )
    one, four = read_table(text, "t.csv").points
    assert (one.agents, one.decode_tok_s, one.wait_s, one.preemptions) == (1, 50, 12, 0)
    assert (four.decode_tok_s, four.completions_per_min, four.wait_s) == (180.5, 2, None)


@pytest.mark.parametrize(
    "text",
    [
        "\ufeffAgents; Decode tok/s \r\n1; 1500\r\n2;2,900\r\n",
        "agents\tdecode-tok-s\n1\t1500 tok/s\n2\t2900\n",
        '\n\nagents,decode_tok_s,remark\n1,"1,500",first\n\n2,"2,900",\n',
    ],
)
def test_odd_but_plain_tables_are_read(text):
    assert [(p.agents, p.decode_tok_s) for p in read_table(text, "t.csv").points] == [(1, 1500), (2, 2900)]


def test_what_is_not_used_or_filled_in_is_said():
    table = read_table("agents,decode_tok_s_per_agent,quant\n2,40,Q8\n", "t.csv")
    assert table.points[0].decode_tok_s == 80
    assert table.notes == [
        "columns not used: quant",
        "decode_tok_s is taken as decode_tok_s_per_agent times agents",
    ]


def test_shares_may_be_percentages():
    (point,) = read_table(
        "agents,decode_tok_s,kv_max_fraction,prefix_hit_fraction\n2,40,52 %,0.9\n", "t"
    ).points
    assert (point.kv_max_fraction, point.prefix_hit_fraction) == (0.52, 0.9)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "t.csv is empty"),
        ("  \n\n", "t.csv is empty"),
        ("agents,decode_tok_s\n", "t.csv has no row below its header"),
        ("users,decode_tok_s\n1,2\n", "names no column 'agents'"),
        ("agents,speed\n1,2\n", "t.csv has no throughput"),
        ("agents,decode_tok_s,decode_tok_s\n1,2,3\n", "the column decode_tok_s twice"),
        ("agents,decode_tok_s\n1,fast\n", "t.csv line 2: decode_tok_s 'fast' is not a number"),
        ("agents,decode_tok_s\n1,2\nx,3\n", "t.csv line 3: agents 'x' is not a number"),
        ("agents,decode_tok_s\n,3\n", "t.csv line 2 says no number of agents"),
        ("agents,decode_tok_s\n1.5,3\n", "agents 1.5 is not a whole number"),
        ("agents,decode_tok_s\n0,3\n", "agents 0 is not a whole number from 1 on"),
        ("agents,decode_tok_s\n1,nan\n", "'nan' is not a number"),
        ("agents,decode_tok_s\n1,1e999\n", "is not a number"),
        ("agents,decode_tok_s\n1,-5\n", "decode_tok_s -5"),
        ("agents,decode_tok_s\n1,1,481\n", "line 2 has 3 cells, the header has 2"),
        ("agents,decode_tok_s\n99999999,1\n", "a level of 99999999 agents cannot be"),
        ("agents,decode_tok_s\n1,5 %\n", "is not a percentage"),
        ('agents,decode_tok_s\n1,"5\n', "is not a CSV table"),
        ("\0\0agents", "t.csv is no text"),
    ],
)
def test_what_is_no_table_is_one_sentence(text, why):
    with pytest.raises(UsageError) as caught:
        read_table(text, "t.csv")
    assert why in str(caught.value)
    assert "\n" not in str(caught.value)


@given(st.text(max_size=200))
def test_any_text_is_read_or_refused(text):
    with contextlib.suppress(UsageError):
        assert read_table(text, "t.csv").points


@given(st.text(alphabet="0123456789,;.-\n%e \"'", max_size=200))
def test_any_cells_below_a_header_are_read_or_refused(text):
    with contextlib.suppress(UsageError):
        assert read_table(f"agents,decode_tok_s,wait_s\n{text}", "t.csv").points


def test_a_table_of_more_levels_than_can_be_judged_is_refused_at_once():
    rows = "".join(f"{n},{100 * n}\n" for n in range(1, 102))
    with pytest.raises(UsageError, match="has 101 numbers of agents, 100 at most"):
        read_table("agents,decode_tok_s\n" + rows, "t.csv")
    repeated = "".join(f"{n % 5 + 1},{100 * n + 1}\n" for n in range(300))
    assert len(read_table("agents,decode_tok_s\n" + repeated, "t.csv").points) == 300
