"""Random histories of several tables as a stream of pgoutput messages, and what the log must hold of them."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

from hypothesis import strategies as st

from penstock.changelog.clustering import Clusterer, DescribeRelation
from penstock.changelog.log import ChangeLog
from penstock.changelog.runs import chunk
from penstock.changes.batch import MESSAGES, Relation
from penstock.lsn import LSN
from penstock.testing import scripted_stream as script
from penstock.testing.change_batches import FIRST_COMMIT_TIME, relation

START = 0x1000
TABLES = 3


def version(table: int, number: int) -> Relation:
    """The table's definition after so many changes of it."""
    columns = {"id": "int8", **{f"c{n}": "text" for n in range(number)}}
    return relation("public", f"t{table}", columns, key=("id",), oid=100 + table)


VERSIONS = [version(table, number) for table in range(TABLES) for number in range(12)]
DESCRIBE: DescribeRelation = script.described(*VERSIONS)


@dataclass(frozen=True)
class LoggedRow:
    """One row of a segment, with the definition that goes with it."""

    relation: Relation
    payload: bytes
    commit_lsn: int
    sequence: int
    xid: int
    commit_time: int


@dataclass
class LogScript:
    stream: script.ScriptedStream = field(default_factory=lambda: script.ScriptedStream(START))
    rows: list[LoggedRow] = field(default_factory=list)
    redefined_within: set[int] = field(default_factory=set)  # commit LSNs
    sizes: dict[int, int] = field(default_factory=dict)  # bytes of messages by commit LSN
    _versions: list[int] = field(default_factory=lambda: [0] * TABLES)
    _announced: dict[int, int] = field(default_factory=dict)

    def definition(self, table: int, within: int = 0) -> Relation:
        """As in force; announced as the server does it, before its first use."""
        current = version(table, self._versions[table])
        if self._announced.get(table) != self._versions[table]:
            if table in self._announced:
                self.redefined_within.add(within)
            self._announced[table] = self._versions[table]
            self.stream.relation(current)
        return current

    def redefine(self, table: int) -> None:
        self._versions[table] += 1

    def transaction(self, steps: list[tuple[str, int, str]], xid: int) -> None:
        before = len(self.stream.messages)
        time = FIRST_COMMIT_TIME + xid
        with self.stream.transaction(xid, time) as commit_lsn:
            sequence = 0
            for step, number, text in steps:
                payload, tables = self._step(step, number, text, commit_lsn)
                if payload is not None:
                    self.stream.add(payload)
                if payload is not None and tables:
                    sequence += 1
                    self.rows += [LoggedRow(table, payload, commit_lsn, sequence, xid, time) for table in tables]
        self.sizes[commit_lsn] = sum(map(len, self.stream.messages[before:]))

    def _step(self, step: str, number: int, text: str, commit_lsn: int) -> tuple[bytes | None, list[Relation]]:
        match step:
            case "insert":
                table = self.definition(number % TABLES, commit_lsn)
                values = [str(number), *[text] * (len(table.columns) - 1)]
                return script.insert(table, values), [table]
            case "delete":
                table = self.definition(number % TABLES, commit_lsn)
                return script.delete(table, [str(number), *[None] * (len(table.columns) - 1)]), [table]
            case "truncate":
                some = [self.definition(table, commit_lsn) for table in range(number % TABLES + 1)]
                return script.truncate(*some), some
            case "message":
                return script.logical_message(commit_lsn - 1, f"of{text}", text.encode()), [MESSAGES]
            case "own message":
                return script.logical_message(commit_lsn - 1, "penstock", text.encode()), []
            case _:
                self.redefine(number % TABLES)
                return None, []

    def standalone(self, prefix: str, text: str, number: int) -> None:
        time = FIRST_COMMIT_TIME - number
        lsn = self.stream.standalone_message(prefix, text.encode(), time)
        if prefix != "penstock":
            payload = script.logical_message(lsn, prefix, text.encode(), transactional=False)
            self.rows.append(LoggedRow(MESSAGES, payload, lsn - 1, 1, 0, time))


STEPS = ["insert"] * 6 + ["delete", "delete", "truncate", "message", "own message", "redefine"]


@st.composite
def log_scripts(draw: st.DrawFn) -> LogScript:
    scripted = LogScript()
    step = st.tuples(st.sampled_from(STEPS), st.integers(0, 9), st.sampled_from(["", "x", "y" * 40]))
    for xid in range(1, draw(st.integers(1, 8)) + 1):
        match draw(st.sampled_from(["transaction"] * 5 + ["standalone", "own standalone", "redefine"])):
            case "transaction":
                scripted.transaction(draw(st.lists(step, max_size=8)), xid)
            case "standalone":
                scripted.standalone("note", draw(st.sampled_from(["", "hello"])), xid)
            case "own standalone":
                scripted.standalone("penstock", "", xid)
            case _:
                scripted.redefine(draw(st.integers(0, TABLES - 1)))
    return scripted


def write_log(
    directory: Path, messages: list[bytes], segment_bytes: int, cuts: list[int] | None = None, flush: bool = True,
    start: int = START, describe: DescribeRelation = DESCRIBE,
) -> ChangeLog:  # fmt: skip
    """Clusters the messages, handed over in runs that end at ``cuts``, into a log at the directory."""
    log = ChangeLog(str(directory))
    log.directory.create()
    clusterer = Clusterer(LSN(start), describe, segment_bytes)
    places = sorted({0, len(messages), *(cut % (len(messages) + 1) for cut in cuts or ())})
    for first, last in pairwise(places):
        for content in clusterer.add([chunk(messages[first:last])], flush):
            log.directory.write(str(content.name), content.write)
    for content in clusterer.add([], flush=True):
        log.directory.write(str(content.name), content.write)
    return log


def rows_of(log: ChangeLog) -> list[list[LoggedRow]]:
    """What each segment holds, in the log's order."""
    names = [name for stretch in log.contents().stretches for name in stretch.segments]
    found = []
    for name in names:
        segment = log.open(name)
        rows = [
            LoggedRow(entry.relation, *values)
            for entry in segment.relations
            for batch in segment.rows(entry)
            for values in zip(*(column.to_pylist() for column in batch.columns), strict=True)
        ]
        assert [entry.rows for entry in segment.relations] == [
            sum(1 for row in rows if row.relation.oid == entry.relation.oid) for entry in segment.relations
        ]
        found.append(rows)
    return found


def in_order(rows: list[LoggedRow]) -> bool:
    places = [(row.commit_lsn, row.sequence) for row in rows]
    return all(before <= after for before, after in pairwise(places))
