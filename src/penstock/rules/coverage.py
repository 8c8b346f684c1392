"""``coverage: strict``: every table, and every column of the rule's tables, has to be mentioned in a rule."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from penstock.changes import Relation
from penstock.rules.model import RuleSettings
from penstock.rules.routing import caught_by


@dataclass(frozen=True)
class Uncovered:
    path: str
    message: str
    remedy: str


def uncovered(rules: Sequence[RuleSettings], relation: Relation) -> Iterator[Uncovered]:
    """``coverage: strict``: what no rule mentions."""
    strict = [index for index, rule in enumerate(rules) if rule.coverage == "strict"]
    own = [index for index, rule in enumerate(rules) if caught_by(rule, relation.schema, relation.table)]
    if strict and not own:
        yield Uncovered(
            f"rules[{strict[0]}].coverage", f"No rule mentions the table {relation.qualified_name}.",
            "Write a rule for it, or leave it out by source.tables.",
        )  # fmt: skip
    wanting = [index for index in own if index in strict]
    mentioned = {name for index in own for name in rules[index].columns}
    for column in relation.columns:
        if wanting and column.name not in mentioned:
            yield Uncovered(
                f"rules[{wanting[0]}].columns", f"No rule mentions the column {column.name} of {relation.qualified_name}.",
                "Transform or exclude it, or write {keep: true}.",
            )  # fmt: skip
