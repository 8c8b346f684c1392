"""``exclude: source``: which columns it means, and what is wrong with it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import pytest

from penstock.changes.batch import Relation
from penstock.rules.checks.source_columns import check_source_columns, excludes_at_source, kept_in_source
from penstock.rules.checks.source_tables import SourceTable
from penstock.rules.compiled import CompiledRules
from penstock.rules.model import RuleSettings
from penstock.testing.change_batches import changes, relation

USERS = relation("public", "users", id="int8", email="text", ssn="text", key=("id",))
WHOLE = relation("public", "users", id="int8", email="text", ssn="text", key=("id",), identity="f")
SSN = {"columns": {"ssn": {"exclude": "source"}}}


def rules(*some: Mapping[str, Any], tables: str = "public.users") -> list[RuleSettings]:
    return [RuleSettings.model_validate({"tables": [tables], **rule}) for rule in some]


def found(
    *some: Mapping[str, Any],
    table: Relation = USERS,
    version: int = 150000,
    published: Mapping[int, Mapping[str, Collection[str]]] | None = None,
) -> list[str]:
    findings = check_source_columns(rules(*some), [SourceTable(table)], version, published)
    assert all(finding.ok is False for finding in findings)
    return [f"{finding.name}: {finding.message}" for finding in findings]


def test_names_are_followed_through_the_rules_that_come_first() -> None:
    names = {"id", "email", "ssn"}
    assert kept_in_source(rules(SSN), "public", "users", names) == {"ssn"}
    assert kept_in_source(rules(SSN), "public", "others", names) == set()
    renamed = {"rename": {"columns": {"email": "ssn", "ssn": "s"}}}
    assert kept_in_source(rules(renamed, SSN), "public", "users", names) == {"email"}
    dropped = {"columns": {"ssn": {"exclude": True}}}
    assert kept_in_source(rules(dropped, SSN), "public", "users", names) == set()
    assert not excludes_at_source(rules(dropped))


def test_what_is_right_is_not_found() -> None:
    assert found(SSN) == []
    assert found({"columns": {"ssn": {"exclude": True}}}, version=140000) == []


def test_before_postgres_15_it_is_refused_once() -> None:
    (said,) = found(SSN, SSN, version=149999)
    assert said.startswith("rules[0].columns.ssn: exclude: source needs Postgres 15 or newer")


def test_a_column_of_the_replica_identity_cannot_stay_behind() -> None:
    (said,) = found(SSN, table=WHOLE)
    assert said == (
        "rules[0].columns.ssn: ssn is in the replica identity of public.users: Postgres would refuse its updates."
    )


@pytest.mark.parametrize(
    ("first", "place"),
    [
        ({"where": {"column": "ssn", "eq": "x"}}, "where"),
        ({"columns": {"ssn": {"transform": "hash"}}}, "columns.ssn"),
        ({"columns": {"email": {"transform": "template", "template": "{ssn}"}}}, "columns.email"),
        ({"rename": {"columns": {"ssn": "number"}}}, "rename.columns.ssn"),
    ],
)
def test_no_rule_can_use_what_stays_behind(first: dict[str, Any], place: str) -> None:
    last = {"columns": {"number" if "rename" in first else "ssn": {"exclude": "source"}}}
    said = found(first, last)
    assert [line.partition(": ")[0] for line in said] == [f"rules[0].{place}"]
    assert "ssn of public.users never leaves the database (rules[1].columns." in said[0]


def test_a_publication_that_is_not_ours_must_have_left_it_out() -> None:
    assert found(SSN, published={USERS.oid: {"mine": ["id", "email"]}}) == []
    (said,) = found(SSN, published={USERS.oid: {"mine": ["id", "email"], "every": ["id", "email", "ssn"]}})
    assert "The publication every publishes ssn of public.users" in said


def test_rules_apply_alike_to_rows_with_and_without_the_column() -> None:
    """The log may hold changes from before the rule."""
    compiled = CompiledRules(rules(SSN))
    without = relation("public", "users", id="int8", email="text", key=("id",))
    outcomes = [
        compiled.apply(changes(table, [("insert", {"id": 1, "email": "e", **more})]))
        for table, more in ((USERS, {"ssn": "x"}), (without, {}))
    ]
    assert [[column.name for column in one.relation.columns] for one in outcomes if one] == [["id", "email"]] * 2
