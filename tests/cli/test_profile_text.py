"""The table of `--profile`: means over steps, and whose floors they are."""

from types import SimpleNamespace

import pytest

pytest.importorskip("cuda.bindings")
from dsv4_trt.cli.profile_text import profile_text
from dsv4_trt.plugins.costs import H200
from dsv4_trt.runtime.cuda.profile import OpTime

TABLE = """\
decode: mean of 2 step(s), launch by launch; floors are an H200's on any GPU
op                    calls          us   floor us (H200)  of floor   share
experts                   3       150.0              75.0     50.0%   75.0%
linear                    1        50.0               5.0     10.0%   25.0%
all                               200.0              80.0     40.0%  100.0%"""


def test_a_table_says_whose_floors_it_has():
    rows = [
        OpTime(op="experts", calls=6, us=300.0, floor_us=150.0),
        OpTime(op="linear", calls=2, us=100.0, floor_us=10.0),
    ]
    profiler = SimpleNamespace(ceilings=H200, steps={"decode": 2}, rows=lambda phase: rows)
    assert profile_text(profiler) == TABLE
