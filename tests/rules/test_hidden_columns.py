"""What rules hide does not come out under another name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from penstock.changes.batch import Relation
from penstock.errors import RuleError
from penstock.rules.checks.earlier_rules import HiddenColumns
from penstock.rules.model import RuleSettings
from penstock.storage import Directory
from penstock.testing.change_batches import relation

MASKED = {"tables": ["public.p*"], "columns": {"secret": {"transform": "mask"}}}


def rules(*settings: dict[str, Any]) -> list[RuleSettings]:
    return [RuleSettings.model_validate(one) for one in settings]


def table(*names: str, called: str = "pa") -> Relation:
    return relation("public", called, {"id": "int4", **dict.fromkeys(names, "text")}, key=("id",), oid=16400)


@pytest.fixture
def hidden(tmp_path: Path) -> HiddenColumns:
    """Of a table with a secret."""
    parts = Directory(str(tmp_path / "parts"))
    parts.create()
    made = HiddenColumns(parts)
    made.admit(rules(MASKED), table("secret", "v"))
    return made


def test_a_column_under_a_new_name_that_no_rule_mentions_is_refused(hidden: HiddenColumns) -> None:
    with pytest.raises(RuleError, match=r"public\.pa had a column secret, .* there is a new one called secret2"):
        hidden.admit(rules(MASKED), table("secret2", "v"))


def test_it_stays_refused(hidden: HiddenColumns) -> None:
    for _ in range(2):
        with pytest.raises(RuleError):
            hidden.admit(rules(MASKED), table("secret2", "v"))


@pytest.mark.parametrize("action", [{"transform": "mask"}, {"exclude": True}, {"keep": True}])
def test_a_column_under_a_new_name_that_a_rule_mentions_passes(hidden: HiddenColumns, action: dict[str, Any]) -> None:
    both = {**MASKED, "columns": {"secret": {"transform": "mask"}, "secret2": action}}
    hidden.admit(rules(both), table("secret2", "v"))
    hidden.admit(rules(both), table("secret2", "v"))


def test_columns_that_come_and_go_and_were_never_hidden_pass(hidden: HiddenColumns) -> None:
    hidden.admit(rules(MASKED), table("secret", "w"))
    hidden.admit(rules(MASKED), table("w"))


def test_a_table_under_a_name_without_its_rule_is_refused(hidden: HiddenColumns) -> None:
    with pytest.raises(RuleError, match=r"public\.pa, of which the rules hide secret, is called public\.zb now"):
        hidden.admit(rules(MASKED), table("secret", "v", called="zb"))


def test_a_table_under_another_name_with_the_rule_passes(hidden: HiddenColumns) -> None:
    hidden.admit(rules(MASKED), table("secret", "v", called="pb"))


def test_who_takes_the_rule_away_may_see_the_column(hidden: HiddenColumns) -> None:
    hidden.admit(rules({"tables": ["public.*"]}), table("secret", "v"))
    hidden.admit(rules({"tables": ["public.*"]}), table("secret", "v", called="zb"))


def test_what_is_remembered_at_a_start_is_of_the_tables_that_there_are(hidden: HiddenColumns) -> None:
    hidden.remember(rules(MASKED), [])
    hidden.refuse_escaped(rules(MASKED), table("secret2", "v"))
