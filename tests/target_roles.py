"""Roles on a target that are not its superuser. They stay on the server, which goes with the run."""

from __future__ import annotations

import uuid

import psycopg
from psycopg import conninfo, sql


def new_role(url: str, *statements: str) -> str:
    """The URL for a new role that may log in, on this database. In ``statements``, run as superuser, it is ``{role}``."""
    name = f"role_{uuid.uuid4().hex[:12]}"
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(sql.SQL("create role {} login").format(sql.Identifier(name)))
        database = connection.info.dbname
    as_superuser(url, *(statement.replace("{role}", name).replace("{database}", database) for statement in statements))
    return conninfo.make_conninfo(url, user=name)


def as_superuser(url: str, *statements: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        for statement in statements:
            connection.execute(statement.encode())


def role_of(url: str) -> str:
    return str(conninfo.conninfo_to_dict(url)["user"])
