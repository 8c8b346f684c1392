"""Tables that left their publication for a while, in mode ``stream``: nothing is imported there, so all that can be done is to
say so. ``parts/memberships.json`` has how each table was published at the last look.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

from penstock.postgres.membership import Membership, Memberships
from penstock.postgres.publication import PublishedTable
from penstock.storage import Directory

logger = logging.getLogger(__name__)

_FILE = "memberships.json"


def warn_of_gaps(parts: Directory, published: Mapping[int, PublishedTable], members: Memberships) -> None:
    before = _recorded(parts)
    for oid, now in members.items():
        if oid in before and oid in published and not now.continues(before[oid]):
            logger.warning(
                "%s left its publication for a while, or is published otherwise than before: changes of it may not have been "
                "captured, and source.mode is stream, which imports nothing.",
                published[oid].qualified_name,
            )
    if members != before:
        _record(parts, members)


def record_replaced(parts: Directory, replaced: Mapping[int, tuple[Membership, Membership]]) -> None:
    """Tables that Penstock itself took out and put in at one moment: nothing is missing from there on."""
    before = _recorded(parts)
    now = {oid: new for oid, (old, new) in replaced.items() if before.get(oid) == old}
    if now:
        _record(parts, {**before, **now})


def _recorded(parts: Directory) -> Memberships:
    return {int(oid): Membership.from_json(routes) for oid, routes in (parts.read_json(_FILE) or {}).items()}


def _record(parts: Directory, members: Memberships) -> None:
    parts.write_json(_FILE, {str(oid): membership.to_json() for oid, membership in members.items()})
