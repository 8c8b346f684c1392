"""Rows that change while they are compared: what is reported really differs, whatever happens meanwhile."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from penstock.verify.judging import ROUNDS
from tests.verify.duckdb_mirror import Mirror, said


class Traffic:
    """Does one more thing each time that the comparison waits for the sink."""

    def __init__(self, *steps: Callable[[], object]) -> None:
        self._steps = list(steps)
        self.waits = 0

    def __call__(self) -> None:
        self.waits += 1
        if self._steps:
            self._steps.pop(0)()


@pytest.fixture
def busy(mirror: Mirror) -> Mirror:
    mirror.source(
        "create table public.t (id int primary key, v int)",
        "insert into public.t select n, 0 from generate_series(1, 100) n",
        "create table public.bag (v int)",
        "insert into public.bag select n % 10 from generate_series(1, 100) n",
    )
    mirror.fill("t", "bag")
    return mirror


def test_an_equal_table_needs_no_waiting(busy: Mirror) -> None:
    traffic = Traffic()
    assert busy.compare("t", catch_up=traffic).state == "equal"
    assert traffic.waits == 0


def test_what_is_on_its_way_is_no_difference(busy: Mirror) -> None:
    busy.source(
        "update public.t set v = 1 where id <= 10; delete from public.t where id = 20; insert into public.t values (200, 0)"
    )

    def delivered() -> None:
        busy.lake("update public.t set v = 1 where id <= 10")
        busy.lake("delete from public.t where id = 20")
        busy.lake("insert into public.t values (200, 0)")

    traffic = Traffic(delivered)
    report = busy.compare("t", catch_up=traffic)
    assert (report.state, traffic.waits) == ("equal", 1)


def test_of_rows_on_their_way_and_a_real_difference_only_that_one_is_told(busy: Mirror) -> None:
    busy.source("update public.t set v = 1 where id <= 10")
    busy.lake("update public.t set v = 77 where id = 50")
    report = busy.compare("t", catch_up=Traffic(lambda: busy.lake("update public.t set v = 1 where id <= 10")))
    assert (report.state, said(report)) == ("differs", ["id=50: differs in v"])


def test_a_row_that_changes_while_it_is_judged_is_tried_again(busy: Mirror) -> None:
    """The sink is ahead of what was read first; what it holds is what is read afterwards, but for one round."""
    busy.source("update public.t set v = 1 where id = 7")

    def changes_twice() -> None:
        busy.source("update public.t set v = 2 where id = 7")
        busy.lake("update public.t set v = 2 where id = 7")
        busy.source("update public.t set v = 3 where id = 7")

    traffic = Traffic(changes_twice, lambda: busy.lake("update public.t set v = 3 where id = 7"))
    report = busy.compare("t", catch_up=traffic)
    assert (report.state, traffic.waits) == ("equal", 2)


def test_a_row_that_changed_there_and_back_is_no_difference(busy: Mirror) -> None:
    """Its value is the same before and after, its version is not."""
    busy.source("update public.t set v = 1 where id = 7")

    def there_and_back() -> None:
        busy.source("update public.t set v = 5 where id = 7")
        busy.lake("update public.t set v = 5 where id = 7")
        busy.source("update public.t set v = 1 where id = 7")

    steps = [there_and_back] * (ROUNDS - 1)
    report = busy.compare("t", catch_up=Traffic(*steps, lambda: busy.lake("update public.t set v = 1 where id = 7")))
    assert report.state == "equal"


def test_a_row_that_was_there_only_in_between_is_no_difference(busy: Mirror) -> None:
    """Absent before and after, with no version to tell by; the sink shows it for a moment."""
    busy.lake("insert into public.t values (200, 1)")

    def comes_and_goes() -> None:
        busy.source("insert into public.t values (200, 2)", "delete from public.t where id = 200")
        busy.lake("update public.t set v = 2 where id = 200")

    traffic = Traffic(comes_and_goes, lambda: busy.lake("delete from public.t where id = 200"))
    report = busy.compare("t", catch_up=traffic)
    assert (report.state, traffic.waits) == ("equal", 2)


def test_a_row_that_never_rests_is_named_and_is_no_difference(busy: Mirror) -> None:
    busy.source("update public.t set v = 1 where id = 7")
    traffic = Traffic(*[lambda: busy.source("update public.t set v = v + 1 where id = 7")] * ROUNDS)
    report = busy.compare("t", catch_up=traffic)
    assert (report.state, report.differences, report.unjudged) == ("changing", (), ({"id": "7"},))
    assert traffic.waits == ROUNDS


def test_a_bag_on_its_way_is_no_difference(busy: Mirror) -> None:
    busy.source("insert into public.bag values (500)")
    report = busy.compare("bag", catch_up=Traffic(lambda: busy.lake("insert into public.bag values (500)")))
    assert report.state == "equal"


def test_a_bag_that_rests_for_two_rounds_is_judged(busy: Mirror) -> None:
    busy.lake("insert into public.bag values (500), (500)")
    traffic = Traffic(
        lambda: busy.source("insert into public.bag values (3)"), lambda: busy.lake("insert into public.bag values (3)")
    )
    report = busy.compare("bag", catch_up=traffic)
    assert (report.state, said(report)) == ("differs", ["v=500: only in the sink, 2 rows"])


def test_a_bag_that_never_rests_is_no_difference(busy: Mirror) -> None:
    busy.source("insert into public.bag values (1)")
    report = busy.compare("bag", catch_up=Traffic(*[lambda: busy.source("insert into public.bag values (1)")] * ROUNDS))
    assert (report.state, len(report.unjudged)) == ("changing", 1)
