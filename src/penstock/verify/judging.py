"""Whether suspects really differ, while both sides are written to.

A round, for all suspects at once:

1. Their rows are read in the source, each with its version (xmin).
2. The sink has come to hold all that is committed by now.
3. The rows are read in the target.
4. The rows are read in the source again.

A suspect whose target row equals what 1 or 4 read is equal. One whose source row changed between 1 and 4 is tried again.
One whose row did not change in between, and yet differs from the target's, has a difference if the next round finds the
same rows on both sides: a row that was there only between 1 and 4 leaves no trace in either, but it does not come back
just as it was at the same moment of the next round. After a few rounds, those that still change are given up: nobody can
tell, and that is no difference.

Rules may give several rows of the source one key. Which of them the target has, if any, is a matter of their past: such keys
are counted, and not judged.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence

from penstock.verify.report import HIDDEN, Difference, Verdicts
from penstock.verify.target import Key, Row, TablePair

ROUNDS = 6

# What a side has of a key: each row with its version. More than one row only in a target without a unique index, or by rules.
_Seen = tuple[tuple[str, Row], ...]


def judge(pair: TablePair, keys: Sequence[Key], catch_up: Callable[[], object], rounds: int = ROUNDS) -> Verdicts:
    verdicts = Verdicts()
    pending = list(keys)
    seen_before: dict[Key, tuple[_Seen, _Seen]] = {}
    for _ in range(rounds):
        if not pending:
            break
        before = _by_key(pair.source_rows(pending))
        catch_up()
        target = _by_key([(key, "", row) for key, row in pair.target_rows(pending)])
        after = _by_key(pair.source_rows(pending))
        waiting = []
        for key in pending:
            mirrored = target[key]
            if len(before[key]) > 1 or len(after[key]) > 1:
                verdicts.shared.append(key)
                continue
            if _rows(mirrored) in (_rows(before[key]), _rows(after[key])):
                continue
            if before[key] == after[key] and seen_before.get(key) == (after[key], mirrored):
                verdicts.differences.append(_difference(pair, key, after[key], mirrored))
                continue
            seen_before[key] = (after[key], mirrored)
            waiting.append(key)
        pending = waiting
    verdicts.unjudged.extend(named(pair, key, known=bool(seen_before[key][0])) for key in pending)
    return verdicts


def _by_key(rows: Sequence[tuple[Key, str, Row]]) -> defaultdict[Key, _Seen]:
    found: defaultdict[Key, _Seen] = defaultdict(tuple)
    for key, version, row in rows:
        found[key] = (*found[key], (version, row))
    return found


def _rows(seen: _Seen) -> list[Row]:
    return [row for _, row in seen]


def _difference(pair: TablePair, key: Key, source: _Seen, target: _Seen) -> Difference:
    shown = named(pair, key, known=bool(source))
    if not target:
        return Difference(shown, "missing")
    if not source:
        return Difference(shown, "extra")
    if len(target) > len(source):
        return Difference(shown, "repeated", rows=len(target))
    columns = zip(pair.columns, source[0][1], target[0][1], strict=True)
    return Difference(shown, "differs", tuple(name for name, here, there in columns if here != there))


def named(pair: TablePair, key: Key, known: bool) -> dict[str, str | None]:
    """A key as it is shown. Not ``known``: the target alone has it, and it may be what rules are to hide."""
    return {
        name: HIDDEN if value is not None and name in pair.hidden and not known else value
        for name, value in zip(pair.key, key, strict=True)
    }
