"""What ``destroy`` may not remove: it belongs to another role, who gets the statement for it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import psycopg

from penstock.errors import SourceRefused


@dataclass(frozen=True)
class Leftover:
    what: str  # event triggers penstock_ddl, …
    owner: str
    statement: str


class NotAllRemoved(SourceRefused):
    """Everything else is gone: ``removed`` says what."""

    def __init__(self, message: str, advice: str | None = None, removed: Sequence[str] = ()) -> None:
        super().__init__(message, advice)
        self.removed = tuple(removed)

    @classmethod
    def of(cls, leftovers: Sequence[Leftover], removed: Sequence[str]) -> NotAllRemoved:
        parts = "; ".join(f"{left.what} (of {left.owner})" for left in leftovers)
        owners = " or ".join(dict.fromkeys(left.owner for left in leftovers))
        return cls(
            f"Left on the source, because the role may not remove it: {parts}.",
            f"As {owners}, or as a superuser, run: {' '.join(left.statement for left in leftovers)}",
            removed,
        )


def lacks_right(error: BaseException | None) -> bool:
    """Whether the server refused for a missing right, by the first of the errors that led to this one."""
    while error is not None:
        if isinstance(error, psycopg.errors.InsufficientPrivilege):
            return True
        error = error.__cause__ or error.__context__
    return False
