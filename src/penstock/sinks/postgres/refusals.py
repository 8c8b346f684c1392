"""Why a Postgres target does not take a row, told apart from everything else that it may say no to."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

import psycopg

from penstock.changes.batch import Relation
from penstock.errors import SinkRefused

# By SQLSTATE, or by its first two letters: values, constraints, views' check options, limits (such as the size of an
# index's row), and what triggers raise. https://www.postgresql.org/docs/current/errcodes-appendix.html
_OF_A_ROW = {"22", "23", "44", "54", "P0"}
# Lines that do not fit the table, statements or tables with too many columns: no row is at fault.
_NOT_OF_A_ROW = {"22P04", "54001", "54011", "54023"}
_BY_OTHER_ROWS = {"23001", "23503", "23505", "23P01", "P0"}
# What COPY says of where it was. It copied one row, so the line says nothing; the words depend on the server's language.
_COPYING = re.compile(
    r"COPY (?P<table>[^,]+), \w+ 1(?P<rest>(?P<column>, \w+) c(?P<number>\d+)(?P<value>: .*)|.*)", re.DOTALL
)
_UNIQUE = {"23505", "23P01"}


@dataclass(frozen=True)
class Refusal:
    reason: str
    sqlstate: str | None = None
    constraint: str | None = None
    advice: str | None = None
    copying: str | None = None  # what COPY was at, in its own words

    @property
    def may_pass(self) -> bool:
        """Other rows may have caused it, so that it is worth trying again when those are written."""
        return bool({self.sqlstate, (self.sqlstate or "")[:2]} & _BY_OTHER_ROWS)

    def about(self, relation: Relation) -> Refusal:
        """With where it was, in the table's own names: rows go through temporary tables (``changes.py``)."""
        found = _COPYING.match(self.copying or "")
        if found is None:
            return replace(self, copying=None)
        rest, number = found["rest"], found["number"]
        if found["table"] != relation.table and number and int(number) < len(relation.columns):
            rest = f"{found['column']} {relation.columns[int(number)].name}{found['value']}"
        return replace(self, reason=f"{self.reason}. COPY {relation.table}{rest}", copying=None)

    @property
    def is_unique(self) -> bool:
        return self.sqlstate in _UNIQUE


class RowRefused(SinkRefused):
    """The target answered no, and it is about a row."""

    def __init__(self, message: str, advice: str | None = None, refusal: Refusal | None = None) -> None:
        super().__init__(message, advice)
        self.refusal = refusal or Refusal(message.rstrip("."), advice=advice)


def is_of_a_row(error: psycopg.Error) -> bool:
    state = error.sqlstate or ""
    return state not in _NOT_OF_A_ROW and state[:2] in _OF_A_ROW


def refusal_of(error: psycopg.Error | RowRefused) -> Refusal:
    """Of an error that is of a row."""
    if isinstance(error, RowRefused):
        return error.refusal
    context = ((error.diag.context or "").splitlines() or [""])[0] if (error.sqlstate or "").startswith("22") else None
    return Refusal(words(error, where=False), error.sqlstate, error.diag.constraint_name, advice_on(error), context)


def words(error: psycopg.Error, where: bool = True) -> str:
    """What the target said, on one line, without the last full stop. ``where``: and what it was doing."""
    context = error.diag.context if where else None
    said = [error.diag.message_primary or "", error.diag.message_detail or "", context or ""]
    return ". ".join(part.strip().splitlines()[0].rstrip(".") for part in said if part.strip())


def advice_on(error: psycopg.Error) -> str | None:
    if isinstance(error, psycopg.errors.InsufficientPrivilege):
        return "Give the role of the sink's `url` the rights that docs/sinks/postgres.md lists; then start again."
    if isinstance(error, psycopg.errors.UniqueViolation | psycopg.errors.ExclusionViolation):
        return "Somebody else wrote to the target. Remove the row that is in the way, or resync the table."
    if isinstance(error, psycopg.errors.InvalidTextRepresentation) and not error.diag.message_hint:
        return (
            "If the type of the column is another one in the source, alter it in the target as well; otherwise correct "
            "the row in the source."
        )
    return error.diag.message_hint
