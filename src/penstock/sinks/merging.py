"""Tables that rules put into one: what no sink can do with them."""

from __future__ import annotations

from penstock.changes import Relation
from penstock.errors import SinkRefused


def cannot_tell_apart(relation: Relation) -> SinkRefused:
    return SinkRefused(
        f"A table that goes into {relation.qualified_name} with others was imported again, and nothing tells its rows there "
        "from theirs.",
        f"Add rename.origin to the rule; then drop {relation.qualified_name}, and resync all tables that go there.",
    )
