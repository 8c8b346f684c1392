"""Types of a Postgres target, altered to what the source's are by now: where no schema log tells how they came to be that.

Without the log a renamed attribute is one that went and one that came. The tables with the type are imported again by then.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from psycopg import sql

from penstock.errors import SinkRefused
from penstock.postgres.connection import Connection
from penstock.schema.type_ddl import collate
from penstock.schema.type_definition import CompositeType, DomainType, TypeDefinition

logger = logging.getLogger(__name__)

_ATTRIBUTES = """
SELECT a.attname::text FROM pg_type t
JOIN pg_attribute a ON a.attrelid = t.typrelid AND a.attnum > 0 AND NOT a.attisdropped
WHERE t.oid = to_regtype(%s) ORDER BY a.attnum
"""
_CHECKS = "SELECT conname::text FROM pg_constraint WHERE contypid = to_regtype(%s) AND contype = 'c'"


def align_types(target: Connection, sink: str, types: Sequence[TypeDefinition]) -> None:
    """Attributes of composite types come and go; restrictions of domains that the source does not have any more go."""
    for definition in types:
        name = sql.Identifier(definition.schema, definition.name)
        if isinstance(definition, CompositeType):
            _align_composite(target, sink, definition, name)
        elif isinstance(definition, DomainType):
            _relax_domain(target, definition, name)


def _align_composite(target: Connection, sink: str, definition: CompositeType, name: sql.Identifier) -> None:
    there = [attribute for (attribute,) in target.execute(_ATTRIBUTES, [name.as_string()])]
    wanted = [attribute.name for attribute in definition.attributes]
    if there == wanted:
        return
    kept = [attribute for attribute in there if attribute in wanted]
    if wanted[: len(kept)] != kept:
        raise SinkRefused(
            f"Sink {sink}: type {definition.schema}.{definition.name} of the target has the attributes {', '.join(there)}, "
            f"and the source's has {', '.join(wanted)}: they cannot be brought into that order.",
            "Alter the type in the target as it was altered in the source (ALTER TYPE …), then start again. With event "
            "triggers (penstock init) types are followed by themselves.",
        )
    alter = sql.SQL("ALTER TYPE {} ").format(name)
    for attribute in (one for one in there if one not in wanted):
        target.execute(alter + sql.SQL("DROP ATTRIBUTE {} CASCADE").format(sql.Identifier(attribute)))
    for new in definition.attributes[len(kept) :]:
        add = sql.SQL("ADD ATTRIBUTE {} {}{} CASCADE")
        target.execute(alter + add.format(sql.Identifier(new.name), sql.SQL(new.type), collate(new.collation)))
    logger.info("Type %s.%s of the target is altered to fit the source's.", definition.schema, definition.name)


def _relax_domain(target: Connection, definition: DomainType, name: sql.Identifier) -> None:
    """New checks are left out: every row of the source fulfils them anyway."""
    kept = {check.name for check in definition.checks if check.is_valid}
    alter = sql.SQL("ALTER DOMAIN {} ").format(name)
    for (check,) in target.execute(_CHECKS, [name.as_string()]).fetchall():
        if check not in kept:
            target.execute(alter + sql.SQL("DROP CONSTRAINT {}").format(sql.Identifier(check)))
    if not definition.not_null and target.execute("SELECT to_regtype(%s)", [name.as_string()]).fetchone() != (None,):
        target.execute(alter + sql.SQL("DROP NOT NULL"))
