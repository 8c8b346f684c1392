"""The sink that docs/own-sink.md shows: it is the example, and it works as it says."""

from __future__ import annotations

import json
import pickle
from pathlib import Path

import pytest

from examples.own_sink import TallySettings, TallySink
from penstock.config.load import parse_config
from penstock.lsn import LSN
from penstock.sinks.contract import Batch, ImportPart
from penstock.testing.change_batches import changes, relation
from tests.docs.pages import ROOT, blocks

ORDERS = relation("public", "orders", id="int8", key=("id",))
USERS = relation("public", "users", id="int8", key=("id",))


@pytest.fixture
def sink(tmp_path: Path) -> TallySink:
    """As an executor gets it."""
    settings = TallySettings(name="tally", type="examples.own_sink:TallySink", path=tmp_path / "tally.json")
    copy = pickle.loads(pickle.dumps(TallySink(settings)))
    assert isinstance(copy, TallySink)
    return copy


def deliver(sink: TallySink, start: int, end: int, orders: int, users: int) -> None:
    batch = Batch(1, LSN(start), LSN(end), "file:///nowhere")
    written = [
        changes(table, [("insert", {"id": number}) for number in range(count)], lsn=end - 1)
        for table, count in ((ORDERS, orders), (USERS, users))
    ]
    receipts = [sink.write(batch, iter(written[:1])), sink.write(batch, iter(written[1:]))]
    sink.commit(batch, pickle.loads(pickle.dumps(receipts)))


def test_the_page_shows_the_example_as_it_is() -> None:
    shown = blocks("python", ROOT / "docs" / "own-sink.md")[0].text
    assert (ROOT / "examples" / "own_sink.py").read_text("utf-8").endswith(f"\n\n{shown}")


def test_it_counts_every_batch_once_even_if_one_comes_again(sink: TallySink, tmp_path: Path) -> None:
    assert sink.prepare() is None
    deliver(sink, 0x100, 0x200, orders=3, users=2)
    deliver(sink, 0x200, 0x300, orders=1, users=0)
    deliver(sink, 0x200, 0x300, orders=1, users=0)
    deliver(sink, 0x100, 0x200, orders=3, users=2)
    tally = json.loads((tmp_path / "tally.json").read_text())
    assert tally["changes"] == {"public.orders": 4, "public.users": 2}
    assert sink.prepare() == LSN(0x300)


def test_a_batch_without_receipts_moves_its_position(sink: TallySink) -> None:
    deliver(sink, 0x100, 0x200, orders=1, users=1)
    sink.commit(Batch(-1, LSN(0x200), LSN(0x400), "file:///nowhere"), [])
    assert sink.prepare() == LSN(0x400)


def test_a_part_of_an_import_is_not_counted(sink: TallySink) -> None:
    deliver(sink, 0x100, 0x200, orders=1, users=1)
    before = sink._read()
    batch = Batch(-1, LSN(0x200), LSN(0x200), "file:///nowhere", ImportPart(1, ORDERS, "rows", 1))
    sink.commit(batch, [sink.write(batch, iter([changes(ORDERS, [("read", {"id": 7})], lsn=0x150)]))])
    assert sink._read() == before


def test_a_config_finds_it_by_its_name() -> None:
    text = """
name: shop
source: {url: "postgresql://localhost/shop"}
sinks: [{name: tally, type: "examples.own_sink:TallySink", path: tally.json}]
"""
    assert isinstance(parse_config(text, {}).sinks[0], TallySettings)
