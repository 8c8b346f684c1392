"""Which tables the pipeline's role may publish, and what an administrator can do about the others.

Only a table's owner, or a member of the owning role, may add it to a publication. Membership in a superuser's role would make
the pipeline's role a superuser, so that is never suggested.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from psycopg import sql

from penstock.postgres.connection import Connection, translated_errors

EXCLUDE = "Exclude what is not needed by source.tables.exclude, or let the role publish it."


@dataclass(frozen=True)
class ForeignTable:
    """A selected table that the role may not publish. ``statement``: what lets it, for an administrator."""

    oid: int
    schema: str
    table: str
    owner: str
    role: str
    statement: str

    @property
    def qualified_name(self) -> str:
        return f"{self.schema}.{self.table}"

    @property
    def problem(self) -> str:
        return f"The role {self.role} may not publish {self.qualified_name}: only its owner {self.owner} may."


def remedy(tables: Iterable[ForeignTable]) -> str:
    return f"{EXCLUDE} As an administrator run: {' '.join(dict.fromkeys(table.statement for table in tables))}"


def foreign_tables(connection: Connection, oids: Sequence[int]) -> list[ForeignTable]:
    """Those of the tables that the role may not publish."""
    if not oids:
        return []
    with translated_errors("Reading the owners of the tables"):
        rows = connection.execute(_FOREIGN, [list(oids)]).fetchall()
        new_owner = _owner_of_most(connection, [row[0] for row in rows]) if rows else ""
    return [
        ForeignTable(oid, schema, table, owner, role, _statement(connection, schema, table, owner, role, new_owner))
        for oid, schema, table, owner, role in rows
    ]


def membership_grant(connection: Connection, owner: str) -> str | None:
    """GRANT owner TO role; None if that would make the role a superuser, or if Postgres refuses members of the owner."""
    with translated_errors("Reading the rights of the role"):
        row = connection.execute(_MEMBERSHIP, [owner]).fetchone()
    if row is None or not row[1]:
        return None
    return sql.SQL("GRANT {} TO {};").format(sql.Identifier(owner), sql.Identifier(str(row[0]))).as_string(connection)


def schema_grants(connection: Connection, schema: str, owner: str) -> str:
    """What lets the role work with the tables of a schema that another role has made."""
    if (grant := membership_grant(connection, owner)) is not None:
        return grant
    (role,) = connection.execute("select current_user").fetchone() or ("",)
    names = {"schema": sql.Identifier(schema), "role": sql.Identifier(role)}
    return (
        sql.SQL(
            "GRANT USAGE ON SCHEMA {schema} TO {role}; "
            "GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA {schema} TO {role}; "
            "GRANT USAGE, SELECT ON ALL SEQUENCES IN SCHEMA {schema} TO {role};"
        )
        .format(**names)
        .as_string(connection)
    )


def _statement(connection: Connection, schema: str, table: str, owner: str, role: str, new_owner: str) -> str:
    return membership_grant(connection, owner) or sql.SQL("ALTER TABLE {} OWNER TO {};").format(
        sql.Identifier(schema, table), sql.Identifier(new_owner or role)
    ).as_string(connection)


def _owner_of_most(connection: Connection, oids: Sequence[int]) -> str:
    """Of the tables beside these that the pipeline's role may publish: the role that owns most."""
    row = connection.execute(_OWNERS, [list(oids)]).fetchone()
    return str(row[0]) if row else ""


_FOREIGN = """
select c.oid::bigint, n.nspname::text, c.relname::text, pg_get_userbyid(c.relowner)::text, current_user::text
from pg_class c join pg_namespace n on n.oid = c.relnamespace
where c.oid = any(%s::oid[]) and not pg_has_role(c.relowner, 'usage') order by 2, 3
"""

_OWNERS = """
select pg_get_userbyid(relowner)::text from pg_class
where relkind in ('r', 'p') and pg_has_role(relowner, 'usage')
    and relnamespace in (select relnamespace from pg_class where oid = any(%s::oid[]))
group by relowner order by count(*) desc, 1 limit 1
"""

# pg_database_owner takes no members; the other roles named pg_… have rights over the whole server.
_MEMBERSHIP = """
select current_user::text, o.rolname !~ '^pg_' and not exists (
    select from pg_roles s where s.rolsuper and pg_has_role(o.oid, s.oid, 'member')
)
from pg_roles o where o.rolname = %s
"""
