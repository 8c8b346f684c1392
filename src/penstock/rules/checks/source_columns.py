"""``exclude: source``: columns that never leave the database, since the publication does not hold them."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

from penstock.changes.batch import Relation
from penstock.findings import Finding
from penstock.rules.checks.source_tables import SourceTable
from penstock.rules.model import Exclude, RuleSettings
from penstock.rules.routing import caught_by
from penstock.subscription.publication_columns import COLUMN_LISTS_SINCE, TOO_OLD


def excludes_at_source(rules: Sequence[RuleSettings]) -> bool:
    return any(_at_source(action) for rule in rules for action in rule.columns.values())


def kept_in_source(rules: Sequence[RuleSettings], schema: str, table: str, names: Collection[str]) -> set[str]:
    """Which of these names of columns the rules keep in the database. They may be the names of columns that are gone."""
    course = _course(rules, schema, table)
    return {
        name for name in names if any(_at_source(rule.columns.get(stage)) for _, rule, stage in _stages(course, name))
    }


def check_source_columns(
    rules: Sequence[RuleSettings],
    tables: Sequence[SourceTable],
    version: int,
    published: Mapping[int, Mapping[str, Collection[str]]] | None,
) -> list[Finding]:
    """``version``: the server's number. ``published``: by table and publication, the columns that are in publications which
    Penstock does not edit; None: it edits its own."""
    if not excludes_at_source(rules):
        return []
    if version < COLUMN_LISTS_SINCE:
        return [Finding(_first_place(rules), False, *TOO_OLD)]
    return [
        finding
        for table in tables
        for name in (column.name for column in table.relation.columns)
        for finding in _findings(rules, table.relation, name, published)
    ]


def _findings(
    rules: Sequence[RuleSettings],
    relation: Relation,
    name: str,
    published: Mapping[int, Mapping[str, Collection[str]]] | None,
) -> Iterator[Finding]:
    stages = list(_stages(_course(rules, relation.schema, relation.table), name))
    place = next((at for at, (_, rule, stage) in enumerate(stages) if _at_source(rule.columns.get(stage))), None)
    if place is None:
        return
    index, _, stage = stages[place]
    path, table = f"rules[{index}].columns.{stage}", relation.qualified_name
    if relation.columns_by_name[name].in_identity and name not in relation.key:  # of the key, other checks tell
        yield Finding(
            path, False, f"{name} is in the replica identity of {table}: Postgres would refuse its updates.",
            "Give the table a replica identity without it, such as its primary key (REPLICA IDENTITY DEFAULT); or use "
            "exclude: true.",
        )  # fmt: skip
    for number, rule, known_as in stages[: place + 1]:
        for where in _mentions(rule, known_as, is_the_one=number == index):
            yield Finding(
                f"rules[{number}].{where}", False,
                f"{name} of {table} never leaves the database ({path}), so no rule can use it.",
                "Use exclude: true, which drops it behind the rules; or take it out here.",
            )  # fmt: skip
    for publication, columns in (published or {}).get(relation.oid, {}).items():
        if name in columns:
            yield Finding(
                path, False, f"The publication {publication} publishes {name} of {table}, and Penstock does not edit it.",
                "Drop the table from it and add it again with a list of columns, without this one; or use exclude: true.",
            )  # fmt: skip


def _mentions(rule: RuleSettings, name: str, is_the_one: bool) -> Iterator[str]:
    if rule.where is not None and name in rule.where.columns:
        yield "where"
    for other, action in rule.columns.items():
        if (other == name and not is_the_one) or (other != name and name in getattr(action, "columns", set)()):
            yield f"columns.{other}"
    if name in rule.rename.columns:
        yield f"rename.columns.{name}"


def _course(rules: Sequence[RuleSettings], schema: str, table: str) -> list[tuple[int, RuleSettings]]:
    return [(index, rule) for index, rule in enumerate(rules) if caught_by(rule, schema, table) is not None]


def _stages(course: Sequence[tuple[int, RuleSettings]], name: str) -> Iterator[tuple[int, RuleSettings, str]]:
    """The rules with what each of them knows the column as, as far as it gets."""
    for index, rule in course:
        yield index, rule, name
        if isinstance(rule.columns.get(name), Exclude):
            return
        name = rule.rename.columns.get(name, name)


def _at_source(action: object) -> bool:
    return isinstance(action, Exclude) and action.exclude == "source"


def _first_place(rules: Sequence[RuleSettings]) -> str:
    return next(
        f"rules[{index}].columns.{name}"
        for index, rule in enumerate(rules)
        for name, action in rule.columns.items()
        if _at_source(action)
    )
