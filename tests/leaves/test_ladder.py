"""Every count up to the maximum has a rung, the last rung is the maximum, padding is bounded."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsv4_trt.errors import CapacityError, ConfigError
from dsv4_trt.ladder import Ladder

maxima = st.integers(1, 1 << 20)


@st.composite
def maximum_and_count(draw):
    maximum = draw(maxima)
    return maximum, draw(st.integers(1, maximum))


@given(maximum_and_count())
def test_a_count_is_padded_to_a_rung_with_little_waste(case):
    maximum, count = case
    ladder = Ladder.up_to(maximum)
    rung = ladder.rung(count)
    assert rung in ladder.rungs
    assert count <= rung <= maximum
    assert 2 * (rung - count) < rung
    if count > 16:
        assert 3 * (rung - count) < rung
    if count <= 2:
        assert rung == count


def test_the_bounds_for_every_count_of_a_large_ladder():
    ladder = Ladder.up_to(8192)
    above_8 = range(9, 8193)
    waste = {count: (ladder.rung(count) - count) / ladder.rung(count) for count in above_8}
    assert max(waste[count] for count in range(9, 17)) == 7 / 16
    assert 0.33 < max(waste[count] for count in range(17, 8193)) < 1 / 3
    assert 0.14 < sum(waste.values()) / len(waste) < 0.15


@given(maxima)
def test_the_last_rung_is_the_maximum(maximum):
    ladder = Ladder.up_to(maximum)
    assert ladder.maximum == ladder.rungs[-1] == ladder.rung(maximum) == maximum
    assert len(ladder.rungs) <= 2 * maximum.bit_length()
    with pytest.raises(CapacityError, match=f"last rung is {maximum}"):
        ladder.rung(maximum + 1)


def test_rungs_as_they_come():
    assert Ladder.up_to(1).rungs == (1,)
    assert Ladder.up_to(3).rungs == (1, 2, 3)
    assert Ladder.up_to(12).rungs == (1, 2, 4, 8, 12)
    assert Ladder.up_to(100).rungs == (1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 100)
    assert Ladder.up_to(128).rungs == (1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128)


@given(st.sets(st.integers(1, 10**6), min_size=1), st.integers(0, 10**6))
def test_a_rung_is_the_smallest_that_holds_the_count(rungs, count):
    ladder = Ladder(tuple(sorted(rungs)))
    assert Ladder.parse(",".join(map(str, sorted(rungs)))) == ladder
    fitting = [rung for rung in rungs if rung >= count]
    if fitting:
        assert ladder.rung(count) == min(fitting)
    else:
        with pytest.raises(CapacityError, match=str(ladder.maximum)):
            ladder.rung(count)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("1,4,2", "2 behind 4; expected rising numbers like 1,2,4"),
        ("1,2,2", "2 behind 2; expected rising numbers like 1,2"),
        ("0,1", "rung 0; expected whole numbers above 0"),
        ("-1", "rung -1"),
        ("", "ladder is ''; expected whole numbers like 1,2,4"),
        ("1,,2", "ladder is '1,,2'"),
        ("1,2.5", "ladder is '1,2.5'"),
        ("1;2", "ladder is '1;2'"),
    ],
)
def test_an_illegal_text_is_refused(text, message):
    with pytest.raises(ConfigError, match=re.escape(message)):
        Ladder.parse(text)


def test_the_order_a_refusal_proposes_is_legal():
    with pytest.raises(ConfigError) as error:
        Ladder.parse("8,2,4,2")
    assert Ladder.parse(str(error.value).rsplit(" ", 1)[1]).rungs == (2, 4, 8)


@pytest.mark.parametrize("rungs", [(), [1, 2], "12", None, (1, 2.0), (True, 2), (1, "2")])
def test_rungs_of_another_type_are_refused(rungs):
    with pytest.raises(ConfigError, match="expected"):
        Ladder(rungs)


@pytest.mark.parametrize("maximum", [0, -5, 1.0, True, None])
def test_an_illegal_maximum_is_refused(maximum):
    with pytest.raises(ConfigError, match="at least 1"):
        Ladder.up_to(maximum)
