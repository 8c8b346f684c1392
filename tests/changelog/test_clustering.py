from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.changelog.clustering import Clusterer
from penstock.changelog.log import ChangeLog
from penstock.changelog.runs import chunk
from penstock.changelog.segment import SegmentContent
from penstock.changes.batch import MESSAGES, Relation
from penstock.errors import DecodeError
from penstock.lsn import LSN
from penstock.pgoutput.columns import decode
from penstock.testing import scripted_stream as script
from penstock.testing.change_batches import relation
from tests.changelog.log_scripts import DESCRIBE, START, LogScript, in_order, log_scripts, rows_of, version, write_log

steady = settings(max_examples=120, derandomize=True, deadline=None)
SIZES = st.sampled_from([1, 60, 200, 1000, 1 << 20])
CUTS = st.lists(st.integers(0, 200), max_size=6)

ANYTHING = (log_scripts(), SIZES, CUTS, st.booleans())


def logged(scripted: LogScript, size: int, cuts: list[int], flush: bool, directory: str) -> ChangeLog:
    return write_log(Path(directory), scripted.stream.messages, size, cuts, flush)


@steady
@given(*ANYTHING)
def test_the_log_holds_every_change_once_with_its_transaction_and_definition(
    scripted: LogScript, size: int, cuts: list[int], flush: bool
) -> None:
    with TemporaryDirectory() as directory:
        found = [row for rows in rows_of(logged(scripted, size, cuts, flush, directory)) for row in rows]
    for oid in {row.relation.oid for row in scripted.rows + found}:
        of_table = [row for row in found if row.relation.oid == oid]
        assert of_table == [row for row in scripted.rows if row.relation.oid == oid]
        assert in_order(of_table)


@steady
@given(*ANYTHING)
def test_names_form_a_chain_from_the_start_to_the_last_change(
    scripted: LogScript, size: int, cuts: list[int], flush: bool
) -> None:
    with TemporaryDirectory() as directory:
        contents = logged(scripted, size, cuts, flush, directory).contents()
    ends = [START, *(stretch.end for stretch in contents.stretches)]
    assert [stretch.start for stretch in contents.stretches] == ends[:-1]
    assert list(contents.unfinished) == []
    if scripted.rows:
        assert scripted.rows[-1].commit_lsn < ends[-1] <= scripted.stream.end
    for stretch in contents.stretches:
        assert [name.part for name in stretch.segments] == list(range(len(stretch.segments)))
        assert [name.complete for name in stretch.segments] == [False] * (len(stretch.segments) - 1) + [True]


@steady
@given(*ANYTHING)
def test_no_segment_mixes_two_definitions_and_a_flag_stands_at_every_change_of_one(
    scripted: LogScript, size: int, cuts: list[int], flush: bool
) -> None:
    with TemporaryDirectory() as directory:
        log = logged(scripted, size, cuts, flush, directory)
        known: dict[int, Relation] = {}
        flagged_since: dict[int, bool] = defaultdict(bool)
        for stretch in log.contents().stretches:
            for name in stretch.segments:
                for oid in known:
                    flagged_since[oid] |= name.schema_change
                relations = [entry.relation for entry in log.open(name).relations]
                assert len({found.oid for found in relations}) == len(relations)
                for found in relations:
                    assert known.get(found.oid, found) == found or flagged_since[found.oid]
                    known[found.oid], flagged_since[found.oid] = found, False


@steady
@given(*ANYTHING)
def test_only_a_large_transaction_or_one_with_a_schema_change_is_in_parts(
    scripted: LogScript, size: int, cuts: list[int], flush: bool
) -> None:
    with TemporaryDirectory() as directory:
        for stretch in logged(scripted, size, cuts, flush, directory).contents().stretches:
            for part in stretch.segments[:-1]:
                assert scripted.sizes[part.end] >= size or part.end in scripted.redefined_within


def contents_of(stream: script.ScriptedStream, segment_bytes: int = 1 << 20) -> list[SegmentContent]:
    return list(Clusterer(LSN(START), DESCRIBE, segment_bytes).add([chunk(stream.messages)]))


def test_a_transaction_is_not_given_out_before_its_end() -> None:
    scripted = LogScript()
    scripted.transaction([("insert", 0, "x"), ("insert", 1, "x")], xid=1)
    clusterer = Clusterer(LSN(START), DESCRIBE, 1 << 20)
    begun = list(clusterer.add([chunk(scripted.stream.messages[:-1])]))
    assert (begun, clusterer.in_transaction, clusterer.position, clusterer.seen) == ([], True, START, START)
    (content,) = clusterer.add([chunk(scripted.stream.messages[-1:])])
    assert (content.rows, clusterer.in_transaction) == (2, False)
    assert clusterer.position == clusterer.seen == scripted.stream.end


def test_a_transaction_without_a_row_moves_only_what_was_seen() -> None:
    scripted = LogScript()
    scripted.transaction([("own message", 0, "")], xid=1)
    clusterer = Clusterer(LSN(START), DESCRIBE, 1 << 20)
    assert list(clusterer.add([chunk(scripted.stream.messages)])) == []
    assert (clusterer.position, clusterer.seen) == (START, scripted.stream.end)


def test_the_first_segment_after_a_start_is_taken_for_a_schema_change() -> None:
    """Nobody knows which definitions came before."""
    scripted = LogScript()
    scripted.transaction([("insert", 0, "x")], xid=1)
    assert [content.name.schema_change for content in contents_of(scripted.stream)] == [True]


def test_a_definition_sent_again_unchanged_is_no_schema_change() -> None:
    scripted = LogScript()
    scripted.transaction([("insert", 0, "x")], xid=1)
    scripted.stream.relation(version(0, 0))
    scripted.transaction([("insert", 0, "x")], xid=2)
    (content,) = contents_of(scripted.stream)
    assert content.rows == 2


def test_a_primary_key_that_goes_is_a_schema_change_though_the_message_is_the_same() -> None:
    """With REPLICA IDENTITY FULL every column is part of the identity, so that only the catalog knows the key."""
    keyed, bag = (relation("public", "t", id="int8", key=key, identity="f", oid=1) for key in (("id",), ()))
    assert script.relation(keyed) == script.relation(bag)
    stream = script.ScriptedStream(START)
    for _ in range(2):
        with stream.transaction():
            stream.relation(keyed)
            stream.insert(keyed, ["1"])
    answers = [keyed]
    clusterer = Clusterer(LSN(START), lambda _message, _types: answers[0], 1 << 20)
    (before,) = clusterer.add([chunk(stream.messages[:4])])
    answers[0] = bag
    (after,) = clusterer.add([chunk(stream.messages[4:])])
    assert [content.relations[0][0] for content in (before, after)] == [keyed, bag]
    assert after.name.schema_change


def test_a_message_outside_a_transaction_has_its_own_position_and_time() -> None:
    stream = script.ScriptedStream(START)
    lsn = stream.standalone_message("note", b"hello", sent_at=1_000_000)
    (content,) = contents_of(stream)
    ((found, batches),) = content.relations
    assert found == MESSAGES
    row = batches[0].to_pylist()[0]
    assert (row["commit_lsn"], row["sequence"], row["xid"], row["commit_time"]) == (lsn - 1, 1, 0, 1_000_000)
    assert content.name.end == lsn  # the end of its record, where a commit may begin


def test_a_prefix_that_only_begins_like_ours_is_delivered() -> None:
    stream = script.ScriptedStream(START)
    with stream.transaction():
        stream.message("penstock", b"ours")
        stream.message("penstock2", b"theirs")
    (content,) = contents_of(stream)
    assert content.rows == 1


def test_types_and_origins_leave_no_row() -> None:
    stream = script.ScriptedStream(START)
    with stream.transaction() as commit_lsn:
        stream.add(script.origin(commit_lsn, "elsewhere"))
        stream.add(script.type_message(9, "public", "mood"))
        stream.relation(version(0, 0))
    assert contents_of(stream) == []


def test_a_change_of_a_table_that_was_never_described_is_a_decode_error() -> None:
    stream = script.ScriptedStream(START)
    with stream.transaction():
        stream.insert(relation("public", "unknown", id="int8", oid=77), ["1"])
    with pytest.raises(DecodeError, match="77"):
        contents_of(stream)


@pytest.mark.parametrize("payload", [b"S\0\0", b"x", b"\0"])
def test_a_message_of_unknown_kind_is_a_decode_error(payload: bytes) -> None:
    stream = script.ScriptedStream(START)
    with stream.transaction():
        stream.add(payload)
    with pytest.raises(DecodeError, match="unknown kind"):
        contents_of(stream)


DAMAGED = {
    "Begin": script.begin(START + 0x80, 1),
    "Commit": script.commit(START + 0x80, START + 0xB0),
    "Relation": script.relation(version(0, 1)),
    "Type": script.type_message(9, "public", "mood"),
    "Truncate": script.truncate(version(0, 0)),
    "Message": script.logical_message(START, "note", b"x"),
}


def decode_all(contents: list[SegmentContent]) -> None:
    for content in contents:
        for found, batches in content.relations:
            for batch in batches:
                decode(found, batch)


@pytest.mark.parametrize("name", DAMAGED)
def test_a_message_cut_short_is_a_decode_error(name: str) -> None:
    for length in range(len(DAMAGED[name])):
        stream = script.ScriptedStream(START)
        stream.add(script.begin(START + 0x80, 1))
        stream.relation(version(0, 0))
        stream.add(DAMAGED[name][:length])
        stream.insert(version(0, 0), ["1"])
        stream.add(script.commit(START + 0x80, START + 0xB0))
        with pytest.raises(DecodeError):
            decode_all(contents_of(stream))


def test_a_table_that_takes_the_name_of_another_begins_a_segment_of_its_own() -> None:
    """Swapped by renaming: the old table's delete and the new one's insert are of one name, and their order counts."""
    old, new = (relation("public", "items", id="int8", key=("id",), oid=oid) for oid in (20, 10))
    stream = script.ScriptedStream(START)
    with stream.transaction():
        stream.relation(old)
        stream.delete(old, ["1"])
        stream.relation(new)
        stream.insert(new, ["1"])
    clusterer = Clusterer(LSN(START), script.described(old, new), 1 << 20)
    segments = list(clusterer.add([chunk(stream.messages)]))
    assert [[r.oid for r, _ in segment.relations] for segment in segments] == [[20], [10]]
    assert [segment.name.complete for segment in segments] == [False, True]
