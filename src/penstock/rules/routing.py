"""Where a table's changes go: another schema, another name, other columns. And the tables that are merged into one.

Sinks know a table by its oid. Tables that go into one share an oid that is made from the name they get, above those that a
server gives out in its first two thousand million objects.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass, replace

from penstock.changes.batch import Column, Relation
from penstock.errors import ConfigError
from penstock.rules.model import Exclude, RuleSettings
from penstock.rules.patterns import captures, filled, placeholders, stars, values_for

_TEXT_OID = 25


def caught_by(rule: RuleSettings, schema: str, table: str) -> tuple[str, tuple[str, ...]] | None:
    """The rule's first pattern that the table matches, and what its ``*`` stand for; None: the rule is not for it."""
    for pattern in rule.tables:
        caught = captures(pattern, schema, table)
        if caught is not None:
            return pattern, caught
    return None


@dataclass(frozen=True)
class Route:
    """What a rule makes of one relation."""

    relation: Relation  # what comes out
    kept: tuple[int, ...]  # which columns of what went in, in order
    origin: str | None = None  # the value of a last column
    merges: bool = False  # other tables may go to the same name


def route(rule: RuleSettings, path: str, relation: Relation, source: tuple[str, str]) -> Route:
    """``source``: the table's name at the source, which patterns and placeholders speak of, whatever earlier rules did."""
    found = caught_by(rule, *source)
    assert found is not None
    values = values_for(*source, found[1])
    rename = rule.rename
    excluded = {name for name, action in rule.columns.items() if isinstance(action, Exclude)}
    kept = tuple(index for index, column in enumerate(relation.columns) if column.name not in excluded)
    lost = [name for name in relation.key if name in excluded]
    if lost:
        raise ConfigError(
            f"{path}.columns.{lost[0]}: {relation.qualified_name} has this column in its key, which tells rows apart.",
            "Transform it instead, with a transform that keeps values apart.",
        )
    columns = [_renamed(relation.columns[index], rename.columns) for index in kept]
    key = tuple(rename.columns.get(name, name) for name in relation.key)
    schema, table = relation.schema, relation.table
    if rename.to_schema is not None:
        schema = filled(rename.to_schema, values)
    if rename.table is not None:
        table = filled(rename.table, values)
    origin = None
    if rename.origin is not None:
        origin = filled(rename.origin.value, values)
        sent = any(column.in_identity for column in columns)
        columns.append(Column(rename.origin.column, _TEXT_OID, "text", "text", in_identity=sent))
        key = (rename.origin.column, *key) if key else key
    _refuse_twins(columns, path, relation)
    merges = rename.origin is not None or may_merge(rule)
    oid = merged_oid(schema, table) if merges else relation.oid
    routed = replace(relation, oid=oid, schema=schema, table=table, columns=tuple(columns), key=key)
    return Route(routed, kept, origin, merges)


def merged_oid(schema: str, table: str) -> int:
    """One for all tables that go to this name; the same everywhere and always."""
    return 1 << 31 | zlib.crc32(f"{schema}.{table}".encode()) & 0x7FFFFFFF


def may_merge(rule: RuleSettings) -> bool:
    """Whether two tables of the rule may get one name, as far as the rule alone says."""
    if rule.rename.to_schema is None and rule.rename.table is None:
        return False
    return any(not _tells_apart(rule, pattern) for pattern in rule.tables) or not _apart(rule, rule.tables)


def _tells_apart(rule: RuleSettings, pattern: str) -> bool:
    """Whether everything that the pattern's ``*`` stand for is in the new name."""
    in_schema, in_table = stars(pattern)
    numbers = range(1, in_schema + in_table + 1)
    used = {
        name for template in (rule.rename.to_schema, rule.rename.table) if template for name in placeholders(template)
    }
    keeps_schema = rule.rename.to_schema is None or "schema" in used
    keeps_table = rule.rename.table is None or "table" in used
    return all(str(number) in used or (keeps_schema if number <= in_schema else keeps_table) for number in numbers)


def _apart(rule: RuleSettings, patterns: Sequence[str]) -> bool:
    """Whether tables of different patterns cannot get one name."""
    if len(patterns) == 1:
        return True
    kept = [index for index, template in ((0, rule.rename.to_schema), (2, rule.rename.table)) if template is None]
    parts = [tuple(pattern.partition(".")[index] for index in kept) for pattern in patterns]
    return bool(kept) and len(set(parts)) == len(parts) and not any("*" in part for some in parts for part in some)


def _renamed(column: Column, names: dict[str, str]) -> Column:
    return replace(column, name=names[column.name]) if column.name in names else column


def _refuse_twins(columns: Sequence[Column], path: str, relation: Relation) -> None:
    names = [column.name for column in columns]
    twin = next((name for name in names if names.count(name) > 1), None)
    if twin is not None:
        raise ConfigError(
            f"{path}.rename: two columns of {relation.qualified_name} would be called {twin}.",
            "Give each a name of its own, or exclude one.",
        )
