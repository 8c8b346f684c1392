from __future__ import annotations

from itertools import islice
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.retry import Backoff


def test_delays_double_up_to_the_most() -> None:
    assert list(islice(Backoff(jitter=0), 9)) == [0.5, 1, 2, 4, 8, 16, 30, 30, 30]


def test_after_a_reset_the_first_delay_comes_again() -> None:
    backoff = Backoff(first=1, factor=3, most=100, jitter=0)
    assert list(islice(backoff, 3)) == [1, 3, 9]
    backoff.reset()
    assert list(islice(backoff, 2)) == [1, 3]


def test_the_same_seed_gives_the_same_delays_and_another_one_others() -> None:
    delays = [list(islice(Backoff(random=Random(seed)), 5)) for seed in (7, 7, 8)]
    assert delays[0] == delays[1]
    assert delays[0] != delays[2]


@given(st.floats(0.001, 10), st.floats(1, 10), st.floats(10, 1000), st.floats(0, 0.99), st.integers())
def test_a_delay_is_never_further_from_its_plan_than_the_jitter_nor_above_the_most(
    first: float, factor: float, most: float, jitter: float, seed: int
) -> None:
    plan = list(islice(Backoff(first, factor, most, jitter=0), 20))
    delays = list(islice(Backoff(first, factor, most, jitter, Random(seed)), 20))
    for planned, delay in zip(plan, delays, strict=True):
        assert planned * (1 - jitter) * 0.999 <= delay <= min(planned * (1 + jitter) * 1.001, most)


@pytest.mark.parametrize("wrong", [{"first": 0}, {"first": 31}, {"factor": 0.5}, {"jitter": 1}, {"jitter": -0.1}])
def test_a_backoff_that_would_not_back_off_is_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="a backoff needs"):
        Backoff(**wrong)  # type: ignore[arg-type]
