from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.changelog.segment import ROWS
from penstock.changes.batch import MESSAGES, ChangeBatch, Relation
from penstock.errors import DecodeError
from penstock.pgoutput.columns import decode
from penstock.testing import scripted_stream as script
from penstock.testing.change_batches import UNCHANGED, relation
from tests.pgoutput.reference_decoder import Change, changes_of, decode_one, old_values

steady = settings(max_examples=150, derandomize=True, deadline=None)

USERS = relation("public", "users", id="int8", name="text", bio="text", key=("id",), oid=1)
TEXTS = st.one_of(
    st.none(), st.just(""), st.sampled_from(["n", "u", "t", "\\N", "NULL"]),
    st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=12),
)  # fmt: skip


def decoded(table: Relation, payloads: Sequence[bytes]) -> ChangeBatch:
    count = range(1, len(payloads) + 1)
    columns = [payloads, [100 * n for n in count], count, [7 * n for n in count], [-n for n in count]]
    arrays = [pa.array(list(values), field.type) for values, field in zip(columns, ROWS, strict=True)]
    return decode(table, pa.RecordBatch.from_arrays(arrays, schema=ROWS))


def expected(table: Relation, payloads: Sequence[bytes]) -> list[Change] | None:
    """None: at least one message is malformed."""
    try:
        return [old_values(decode_one(table, payload)) for payload in payloads]
    except DecodeError:
        return None


@st.composite
def tables(draw: st.DrawFn) -> Relation:
    width = draw(st.integers(0, 12))
    names = [f"c{index}" for index in range(width)]
    key = draw(st.lists(st.sampled_from(names), unique=True)) if names else []
    return relation("public", "t", dict.fromkeys(names, "text"), key=key, identity=draw(st.sampled_from("dfn")), oid=9)


@st.composite
def payloads_of(draw: st.DrawFn, table: Relation) -> bytes:
    row = [TEXTS] * len(table.columns)
    values = st.tuples(*row).map(list)
    new = draw(st.tuples(*([st.one_of(TEXTS, st.just(UNCHANGED))] * len(row))).map(list))
    kind = draw(st.sampled_from("KO"))
    match draw(st.sampled_from("IUUDT")):
        case "I":
            return script.insert(table, draw(values))
        case "U":
            return script.update(table, new, draw(st.none() | values), kind)
        case "D":
            return script.delete(table, draw(values), kind)
        case _:
            return script.truncate(*[table] * draw(st.integers(0, 3)))


@st.composite
def scripts(draw: st.DrawFn) -> tuple[Relation, list[bytes]]:
    table = draw(tables())
    return table, draw(st.lists(payloads_of(table), max_size=15))


@steady
@given(scripts())
def test_decoding_column_by_column_gives_what_decoding_row_by_row_gives(scripted: tuple[Relation, list[bytes]]) -> None:
    table, payloads = scripted
    reference = expected(table, payloads)
    if reference is None:  # an unchanged key without an old one
        with pytest.raises(DecodeError):
            decoded(table, payloads)
    else:
        assert changes_of(decoded(table, payloads)) == reference


@st.composite
def mutated(draw: st.DrawFn) -> tuple[Relation, list[bytes]]:
    """Valid messages, one of them with bytes flipped, cut out or inserted."""
    table, payloads = draw(scripts().filter(lambda scripted: bool(scripted[1])))
    victim = draw(st.integers(0, len(payloads) - 1))
    payload = bytearray(payloads[victim])
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.integers(0, max(len(payload) - 1, 0)))
        match draw(st.sampled_from(["flip", "cut", "end", "insert", "kind"])):
            case "flip" if payload:
                payload[at] ^= 1 << draw(st.integers(0, 7))
            case "cut":
                del payload[at : at + draw(st.integers(1, 4))]
            case "end":
                del payload[at:]
            case "insert":
                payload[at:at] = draw(st.binary(min_size=1, max_size=4))
            case "kind" if payload:
                payload[at] = draw(st.sampled_from(b"ntuNKOIUDT\0\xff"))
    payloads[victim] = bytes(payload)
    return table, payloads


@settings(steady, max_examples=400)
@given(mutated())
def test_damaged_messages_are_refused_just_where_the_reference_refuses_them(
    scripted: tuple[Relation, list[bytes]],
) -> None:
    table, payloads = scripted
    reference = expected(table, payloads)
    if reference is None:
        with pytest.raises(DecodeError):
            decoded(table, payloads)
    else:
        assert changes_of(decoded(table, payloads)) == reference


CHANGES = {
    "insert": script.insert(USERS, ["1", "Ada", None]),
    "update": script.update(USERS, ["1", "Ada", UNCHANGED]),
    "update of the key": script.update(USERS, ["2", "Ada", UNCHANGED], ["1", None, None]),
    "update of a full row": script.update(USERS, ["2", "Ada", ""], ["1", "", "x"], "O"),
    "delete": script.delete(USERS, ["1", None, None]),
    "truncate": script.truncate(USERS, USERS),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_change_cut_short_at_any_length_is_a_decode_error(name: str) -> None:
    whole = CHANGES[name]
    for length in range(len(whole)):
        for neighbours in ([], [CHANGES["insert"]]):  # the bytes behind a short message belong to somebody else
            with pytest.raises(DecodeError):
                decoded(USERS, [*neighbours, whole[:length], *neighbours])


@pytest.mark.parametrize("name", CHANGES)
def test_a_change_with_bytes_left_over_is_a_decode_error(name: str) -> None:
    with pytest.raises(DecodeError, match=r"public\.users"):
        decoded(USERS, [CHANGES[name] + b"\0"])


def test_what_stands_beside_a_change_stays_beside_it() -> None:
    batch = decoded(USERS, list(CHANGES.values()))
    assert batch.commit_lsn.tolist() == [100, 200, 300, 400, 500, 600]
    assert batch.sequence.tolist() == [1, 2, 3, 4, 5, 6]
    assert batch.xid.tolist() == [7, 14, 21, 28, 35, 42]
    assert batch.commit_time.tolist() == [-1, -2, -3, -4, -5, -6]


def test_a_truncate_says_whether_it_restarts_identities() -> None:
    restart = script.truncate(USERS, cascade=True, restart_identity=True)
    batch = decoded(USERS, [restart, script.truncate(USERS, cascade=True), CHANGES["insert"]])
    assert batch.restarts_identity is not None
    assert batch.restarts_identity.tolist() == [True, False, False]
    assert decoded(USERS, list(CHANGES.values())).restarts_identity is None


def test_a_slice_of_a_segment_decodes_like_the_whole() -> None:
    payloads = list(CHANGES.values())
    arrays = [pa.array(payloads, pa.binary())]
    arrays += [pa.array(range(len(payloads)), field.type) for field in list(ROWS)[1:]]
    rows = pa.RecordBatch.from_arrays(arrays, schema=ROWS)
    assert changes_of(decode(USERS, rows.slice(2, 3))) == changes_of(decode(USERS, rows))[2:5]
    assert decode(USERS, rows.slice(2, 3)).commit_lsn.tolist() == [2, 3, 4]


def test_no_changes_decode_to_none() -> None:
    batch = decoded(USERS, [])
    assert len(batch) == 0
    assert [len(array) for array in batch.new] == [0, 0, 0]


def test_text_that_is_not_utf8_names_its_column() -> None:
    with pytest.raises(DecodeError, match="column name holds text that is not UTF-8"):
        decoded(USERS, [script.insert(USERS, ["1", b"\xff", None])])


def test_a_message_of_another_width_is_a_decode_error() -> None:
    narrow = relation("public", "users", id="int8", key=("id",), oid=1)
    with pytest.raises(DecodeError, match="3 columns"):
        decoded(USERS, [script.insert(narrow, ["1"])])


def test_a_key_that_toast_kept_back_is_taken_from_the_old_row() -> None:
    batch = decoded(USERS, [script.update(USERS, [UNCHANGED, "Ada", UNCHANGED], ["long", None, None])])
    assert batch.new[0].to_pylist() == ["long"]
    assert list(batch.unchanged) == [2]


def test_an_update_that_does_not_say_of_which_row_is_a_decode_error() -> None:
    with pytest.raises(DecodeError, match="which row"):
        decoded(USERS, [script.update(USERS, [UNCHANGED, "Ada", ""])])


@settings(steady, max_examples=60)
@given(st.lists(st.tuples(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0")), st.binary())))
def test_logical_messages_arrive_with_prefix_and_content(contents: list[tuple[str, bytes]]) -> None:
    batch = decoded(MESSAGES, [script.logical_message(1, prefix, content) for prefix, content in contents])
    assert batch.new[0].to_pylist() == [prefix for prefix, _ in contents]
    assert batch.new[1].to_pylist() == ["\\x" + content.hex() for _, content in contents]


def test_malformed_logical_messages_are_decode_errors() -> None:
    whole = script.logical_message(1, "note", b"content")
    for payload in (
        *(whole[:length] for length in range(len(whole))), whole + b"\0", whole.replace(b"note", b"n\xffte"),
        whole.replace(b"note\0", b"notes"), script.insert(USERS, ["1", "Ada", "a long enough text"]),
    ):  # fmt: skip
        with pytest.raises(DecodeError):
            decoded(MESSAGES, [whole, payload])
