"""The same value becomes the same value: in every batch, order, process and release; and distinct ones stay distinct."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.rules.transforms import TRANSFORMS, dictionaries
from tests.rules.transforms.settings import VARIETIES, Variety
from tests.rules.transforms.transformed import applied, transform

each_variety = pytest.mark.parametrize("variety", VARIETIES, ids=str)
few = settings(max_examples=15, derandomize=True, deadline=None, suppress_health_check=list(HealthCheck))


def test_there_is_a_variety_of_every_transform_of_one_column() -> None:
    assert {variety.name for variety in VARIETIES} == set(TRANSFORMS) - {"json", "hstore"}


@each_variety
def test_the_result_does_not_depend_on_the_rest_of_the_batch(variety: Variety) -> None:
    changed = transform(variety.name, **variety.settings)

    @few
    @given(st.lists(variety.values | st.none(), max_size=12), st.integers(0, 12))
    def holds(values: list[str | None], cut: int) -> None:
        whole = applied(changed, values)
        assert whole == applied(changed, values[:cut]) + applied(changed, values[cut:])
        assert whole[::-1] == applied(changed, values[::-1])
        assert [result for value, result in zip(values, whole, strict=True) if value is None] == [None] * values.count(
            None
        )

    holds()


@each_variety
def test_distinct_values_stay_distinct_where_that_is_promised(variety: Variety) -> None:
    changed = transform(variety.name, **variety.settings)
    if not changed.keeps_uniqueness:
        assert variety.name not in ("encrypt", "uuid")
        return

    @few
    @given(st.sets(variety.values, max_size=50))
    def holds(values: set[str]) -> None:
        # Dates at the very ends of the calendar meet there.
        inside = [value for value in values if not value.startswith(("0001-", "0002-", "9999-"))]
        assert len(set(applied(changed, inside))) == len(inside)

    holds()


@pytest.mark.parametrize(
    ("name", "parameters", "keeps"),
    [
        ("hash", {"length": 15}, False),
        ("hash", {"length": 16}, True),
        ("email", {}, False),
        ("email", {"unique": True}, True),
        ("email", {"unique": True, "max_length": 20}, False),
        ("email", {"unique": True, "generator": "random"}, False),
        ("uuid", {"generator": "random"}, False),
        ("string", {"min_length": 10}, False),
        ("string", {"min_length": 11}, True),
        ("string", {"min_length": 64, "symbols": "01"}, True),
        ("string", {"min_length": 64, "symbols": "aaaa"}, False),
        ("shift_dates", {"days": 3}, True),
        ("shift_dates", {"max_days": 3}, False),
        ("truncate", {"length": 1000}, False),
    ],
)
def test_what_keeps_values_distinct(name: str, parameters: dict[str, object], keeps: bool) -> None:
    assert transform(name, **parameters).keeps_uniqueness == keeps


SCRIPT = """
import json, sys
import pyarrow as pa
from penstock.rules.transforms import parse_transform
from penstock.rules.transforms.contract import Columns
for line in sys.stdin:
    rule, values = json.loads(line)
    print(json.dumps(parse_transform(rule).apply(pa.array(values, pa.string()), Columns()).to_pylist()))
"""
VALUES = ["Ada", "ada@example.com", "", "漢字", "+44 20 7946 0958", "x" * 300]


@pytest.mark.process
def test_another_process_gives_the_same() -> None:
    rules = [
        {"transform": variety.name, **variety.settings}
        for variety in VARIETIES
        if "pepper" in variety.settings.values()
    ]
    assert len(rules) > 10
    lines = "".join(json.dumps([rule, VALUES]) + "\n" for rule in rules)
    environment = {**os.environ, "PYTHONHASHSEED": "4711", "TZ": "Asia/Tokyo", "LC_ALL": "C"}
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        input=lines,
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
        env=environment,
    )
    theirs = [json.loads(line) for line in done.stdout.splitlines()]
    assert theirs == [applied(transform(rule.pop("transform"), **rule), VALUES) for rule in map(dict, rules)]


def digest(texts: list[str | None]) -> str:
    return hashlib.sha256("\n".join(map(str, texts)).encode()).hexdigest()[:16]


# If one of these fails because Faker's version was raised: the changelog has to say that names change.
@pytest.mark.parametrize(
    ("method", "locale", "expected"),
    [
        ("first_name", "en_US", "0780cf166fbf2522"),
        ("last_name", "en_US", "28cc5bc42e035093"),
        ("company", "en_US", "2c30e83415651c37"),
        ("address", "en_US", "730333836ac9801d"),
        ("first_name_female", "de_DE", "6fc09c152123463b"),
        ("last_name", "ja_JP", "f64a4c46a82cd61d"),
    ],
)
def test_the_lists_to_draw_from_are_those_of_all_times(method: str, locale: str, expected: str) -> None:
    assert digest(dictionaries.dictionary(method, locale, "first_name").words.to_pylist()) == expected


@pytest.mark.parametrize(
    ("name", "parameters", "expected"),
    [
        ("string", {}, "d3e2b070d957fead"),
        ("integer", {}, "aa581400b4018fb5"),
        ("float", {}, "423d3dd3dca1c040"),
        ("boolean", {}, "bdbfa2496f470eae"),
        ("uuid", {}, "38eba096ecb6fdfd"),
        ("date", {"min": "1950-01-01", "max": "2005-12-31"}, "6d458ff2a8d4c581"),
        ("timestamp", {"min": "1950-01-01", "max": "2005-12-31"}, "9b60a9e2b9c342f3"),
        ("unix_timestamp", {"min": 0, "max": 10**9}, "1f02b8667c83873c"),
        ("choice", {"choices": ["a", "b", "c"]}, "340f979963c078b5"),
        ("choice", {"choices": ["a", "b", "c"], "weights": [1, 2, 3]}, "d66826a9b5477011"),
        ("full_name", {}, "f493e038d0d5e673"),
        ("full_name", {"preserve_length": True}, "94f9bcd0f8698a0b"),
        ("email", {}, "968b8000076f28ce"),
        ("phone", {}, "269deb203744fb9e"),
        ("phone", {"preserve_format": True}, "e66edac0f711913d"),
        ("address", {}, "6c4a0d317c5f0e46"),
        ("company", {}, "3e3545eaddd6e094"),
    ],
)
def test_what_is_drawn_is_what_was_always_drawn(name: str, parameters: dict[str, object], expected: str) -> None:
    values = [f"value {number}" for number in range(1000)]
    assert digest(applied(transform(name, salt="pepper", **parameters), values)) == expected
