"""What is said when a rule meets a value that it cannot take: which rule, table, column and commit, and nothing of the value.

What libraries say about a value repeats it, and hiding values is what rules are for. So their exceptions end here, and do not
go on as the context of ours.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import numpy as np

from penstock.changes.batch import ChangeBatch
from penstock.errors import ConfigError, DecodeError, RuleError
from penstock.lsn import LSN
from penstock.rules.where.filters import Undecided

T = TypeVar("T")

# They speak of the config, of a type, of memory or of a column, never of a value.
_HARMLESS = (ConfigError, DecodeError, MemoryError, Undecided)


def keeping_values_secret(where: str, who: str, batch: ChangeBatch, work: Callable[[ChangeBatch], T]) -> T:
    """What ``work`` makes of the batch. ``where``: the rule's place in the config file; ``who``: what works there."""
    try:
        return work(batch)
    except _HARMLESS:
        raise
    except Exception:  # noqa: BLE001  whatever it is, it may show a value
        pass
    lsn = LSN(int(batch.commit_lsn[_refused_row(batch, work)]))
    raise RuleError(
        f"{where}: {who} met a value in {batch.relation.qualified_name} that it cannot take (commit {lsn}). The value is not "
        "shown, since the rule may be there to hide it.",
        "Change the rule, or mend the value in the source and resync the table.",
    )


def _refused_row(batch: ChangeBatch, work: Callable[[ChangeBatch], object]) -> int:
    """The first row that is refused, found by halves. Of what only fails as a whole, some row."""
    first, end = 0, len(batch)
    while end - first > 1:
        middle = (first + end) // 2
        if _fails(batch.take(np.arange(first, middle)), work):
            end = middle
        else:
            first = middle
    return first


def _fails(batch: ChangeBatch, work: Callable[[ChangeBatch], object]) -> bool:
    try:
        work(batch)
    except _HARMLESS:
        return False
    except Exception:  # noqa: BLE001  as above
        return True
    return False
