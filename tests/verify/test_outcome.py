"""Which columns and rows of a table with rules can be compared."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.rules.compiled import CompiledRules
from penstock.rules.model import RuleSettings
from penstock.testing.change_batches import relation
from penstock.verify.ruled_rows import Outcome, outcome_of

USERS = relation("public", "users", id="int4", name="text", nick="text", token="uuid", key=("id",))
RANDOM = {"transform": "uuid", "generator": "random"}
MASK = {"transform": "mask"}


def outcome(*rules: dict[str, Any]) -> Outcome:
    compiled = CompiledRules([RuleSettings.model_validate({"tables": ["public.users"], **rule}) for rule in rules])
    return outcome_of(USERS, compiled.steps(USERS))


def test_without_rules_every_column_is_its_own() -> None:
    found = outcome()
    assert [column.source for column in found.columns] == [0, 1, 2, 3]
    assert (found.left_out, found.transformed, found.origins, found.obstacle) == ({}, frozenset(), {}, None)


def test_columns_are_followed_through_exclusion_new_names_and_origins() -> None:
    found = outcome(
        {
            "columns": {"nick": {"exclude": True}},
            "rename": {"columns": {"name": "label"}, "origin": {"column": "from"}},
        },
        {"columns": {"label": MASK}, "rename": {"columns": {"label": "shown", "from": "origin"}}},
    )
    assert {name: traced.source for name, traced in found.by_name.items()} == {
        "id": 0, "shown": 1, "token": 3, "origin": None,
    }  # fmt: skip
    assert (set(found.transformed), found.origins) == ({"shown"}, {"origin": "public.users"})
    assert not found.transforms_key


def test_an_origin_that_is_transformed_tells_nothing_apart_any_more() -> None:
    found = outcome({"rename": {"origin": {"column": "from"}}}, {"columns": {"from": MASK}})
    assert (found.origins, found.transforms_key) == ({}, True)


def test_what_is_made_from_a_column_drawn_by_chance_is_left_out_too() -> None:
    template = {"transform": "template", "template": "{token}"}
    together = outcome({"columns": {"token": RANDOM, "nick": template}})
    assert list(together.left_out) == ["token"], "within a rule all see what went into it"
    later = outcome({"columns": {"token": RANDOM}}, {"columns": {"nick": template, "token": {"transform": "null"}}})
    assert list(later.left_out) == ["nick", "token"]


@pytest.mark.parametrize(
    ("operations", "left_out", "transformed"),
    [
        (["insert"], ["name"], {"name"}),
        (["update", "delete"], ["name"], {"name"}),
        (["insert", "update"], [], {"name"}),
        (["delete"], [], set()),
    ],
)
def test_a_transform_counts_for_the_operations_that_it_is_for(
    operations: list[str], left_out: list[str], transformed: set[str]
) -> None:
    found = outcome({"operations": operations, "columns": {"name": MASK}})
    assert (list(found.left_out), set(found.transformed)) == (left_out, transformed)


@pytest.mark.parametrize(
    ("operations", "compared"), [(["insert", "update"], True), (["insert"], False), (["delete"], False)]
)
def test_a_filter_has_to_be_for_inserts_and_updates(operations: list[str], compared: bool) -> None:
    found = outcome({"operations": operations, "where": {"column": "id", "gt": 5}})
    assert (found.obstacle is None) == compared


def test_a_key_that_is_drawn_by_chance_is_an_obstacle() -> None:
    by_token = relation("public", "users", token="uuid", n="int4", key=("token",))
    rules = CompiledRules([RuleSettings.model_validate({"tables": ["public.users"], "columns": {"token": RANDOM}})])
    found = outcome_of(by_token, rules.steps(by_token))
    assert found.obstacle == "of column token of its key, its transform gives another value each time"
