"""``coverage: strict``: every table, and every column of the rule's tables, has to be mentioned in a rule."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NoReturn

from penstock.changes.batch import Relation
from penstock.errors import RuleError
from penstock.rules.model import RuleSettings
from penstock.rules.routing import caught_by


@dataclass(frozen=True)
class Uncovered:
    path: str
    message: str
    remedy: str

    def refuse(self) -> NoReturn:
        """Of what came after the start: it does not get past the rules."""
        raise RuleError(f"{self.path}: {self.message}", f"{self.remedy} Then start again.")


def uncovered(rules: Sequence[RuleSettings], relation: Relation) -> Iterator[Uncovered]:
    """``coverage: strict``: what no rule mentions."""
    strict = [index for index, rule in enumerate(rules) if rule.coverage == "strict"]
    own = [index for index, rule in enumerate(rules) if caught_by(rule, relation.schema, relation.table)]
    if strict and not own:
        yield Uncovered(
            f"rules[{strict[0]}].coverage", f"No rule mentions the table {relation.qualified_name}.",
            "Write a rule for it, or leave it out by source.tables.",
        )  # fmt: skip
    yield from uncovered_columns(rules, relation.schema, relation.table, [column.name for column in relation.columns])


def uncovered_columns(
    rules: Sequence[RuleSettings], schema: str, table: str, columns: Sequence[str]
) -> Iterator[Uncovered]:
    """Of a table, if one of its rules is strict."""
    own = [index for index, rule in enumerate(rules) if caught_by(rule, schema, table)]
    wanting = [index for index in own if rules[index].coverage == "strict"]
    mentioned = {name for index in own for name in rules[index].columns}
    for column in columns:
        if wanting and column not in mentioned:
            yield Uncovered(
                f"rules[{wanting[0]}].columns", f"No rule mentions the column {column} of {schema}.{table}.",
                "Transform or exclude it, or write {keep: true}.",
            )  # fmt: skip
