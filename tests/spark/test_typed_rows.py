from __future__ import annotations

from pathlib import Path

import pytest

from penstock.changelog.log import ChangeLog
from penstock.changelog.units import only, plan
from penstock.errors import ConfigError, DecodeError
from penstock.lsn import LSN
from penstock.spark.typed_rows import TypedTable
from penstock.testing import scripted_stream as script
from penstock.testing.change_batches import relation
from tests.changelog.log_scripts import START, write_log

BEFORE = relation("public", "t", id="int4", gone="text", n="int4", key=("id",), oid=1)
AFTER = relation("public", "t", id="int4", n="int8", came="date", key=("id",), oid=1)


def log_of(directory: Path) -> ChangeLog:
    stream = script.ScriptedStream(START)
    for table, values in ((BEFORE, ["1", "x", "5"]), (AFTER, ["2", "9223372036854775807", "2024-02-29"])):
        with stream.transaction():
            stream.relation(table)
            stream.insert(table, values)
    return write_log(directory, stream.messages, 1 << 20, describe=script.described(BEFORE, AFTER))


def test_rows_of_an_older_definition_have_the_shape_of_the_newest(tmp_path: Path) -> None:
    log = log_of(tmp_path)
    table = TypedTable.find(log, "t", "error")
    assert table.relation == AFTER
    (units,) = plan(log, LSN(START), log.contents().end or LSN(0), 1, only(table.name))
    rows = [row for batch in table.read(log, units, LSN(START), LSN(1 << 40)) for row in batch.to_pylist()]
    assert [(row["id"], row["n"], str(row["came"]), row["_op"]) for row in rows] == [
        (1, 5, "None", "insert"), (2, 2**63 - 1, "2024-02-29", "insert"),
    ]  # fmt: skip
    assert "gone" not in rows[0]


def test_an_unknown_table_and_an_unknown_choice_are_config_errors(tmp_path: Path) -> None:
    log = log_of(tmp_path)
    with pytest.raises(ConfigError, match=r"public\.other"):
        TypedTable.find(log, "other", "error")
    with pytest.raises(ConfigError, match="use error, null or text"):
        TypedTable.find(log, "t", "maybe")


def test_an_old_value_that_the_new_type_cannot_hold_is_said(tmp_path: Path) -> None:
    number = relation("public", "t", id="int4", v="text", oid=1)
    narrow = relation("public", "t", id="int4", v="int2", oid=1)
    stream = script.ScriptedStream(START)
    for definition, values in ((number, ["1", "long ago a text"]), (narrow, ["2", "7"])):
        with stream.transaction():
            stream.relation(definition)
            stream.insert(definition, values)
    log = write_log(tmp_path, stream.messages, 1 << 20, describe=script.described(number, narrow))
    table = TypedTable.find(log, "t", "error")
    (units,) = plan(log, LSN(START), log.contents().end or LSN(0), 1, only(table.name))
    with pytest.raises(DecodeError, match="long ago a text"):
        list(table.read(log, units, LSN(START), LSN(1 << 40)))
