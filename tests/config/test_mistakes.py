"""Every mistake in a config file, and the one line that it gives."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from penstock.config.load import load_config
from penstock.errors import ConfigError

SHELF = "tests.config.shelf:ShelfSink"
URL_HINT = "write it like postgresql://user:password@host:5432/database or host=… dbname=…"
DURATION_HINT = "write a number and a unit, like 100ms, 30s, 5m, 1h or 2d"
NAME_LINE = "name: cannot name a publication and a slot; use a lower-case letter, then up to 39 of a-z, 0-9 and _"
PUBLICATION_LINE = (
    "source.publication: expected a publication's name or a list of names; leave the key out to have one made"
)
VARIABLE_LINE = "state_dir: not a variable; write ${NAME} or ${NAME:-default}, or $$ for a dollar sign"
MISSING = object()


def mistakes_in(tmp_path: Path, text: str | bytes) -> list[str]:
    """The lines of the error, without the file's name, which each of them starts with."""
    file = tmp_path / "penstock.yaml"
    file.write_bytes(text.encode() if isinstance(text, str) else text)
    with pytest.raises(ConfigError) as refused:
        load_config(file, {})
    lines = refused.value.message.splitlines()
    assert all(line.startswith(f"{file}: ") for line in lines)
    return [line.removeprefix(f"{file}: ") for line in lines]


def config_with(path: str, value: Any) -> str:
    """A good config but for the value at this path."""
    config: dict[str, Any] = {
        "name": "shop",
        "source": {"url": "postgresql://ada@db/shop"},
        "sinks": [{"name": "out", "type": SHELF}, {"name": "lake", "type": SHELF}],
    }
    *parents, last = [int(step) if step.isdigit() else step for step in path.split("/")]
    place: Any = config
    for step in parents:
        place = place.setdefault(step, {}) if isinstance(place, dict) else place[step]
    if value is MISSING:
        del place[last]
    else:
        place[last] = value
    return yaml.safe_dump(config)


@pytest.mark.parametrize(
    ("path", "value", "line"),
    [
        # keys
        ("source/tabels", {}, 'source.tabels: unknown key "tabels"; did you mean "tables"?'),
        ("sorce", {}, 'sorce: unknown key "sorce"; did you mean "source"?'),
        ("source/cpy", {}, 'source.cpy: unknown key "cpy"; did you mean "copy"?'),
        ("log/zzz", 1, 'log.zzz: unknown key "zzz"; known: acknowledge, linger, segment_bytes, retention, max_bytes'),
        ("sinks/1/hieght", 1, 'sinks[1].hieght: unknown key "hieght"; did you mean "height"?'),
        ("sinks/1/batch/max_byte", 1, 'sinks[1].batch.max_byte: unknown key "max_byte"; did you mean "max_bytes"?'),
        ("source/tables", {"includes": []}, 'source.tables.includes: unknown key "includes"; did you mean "include"?'),
        ("name", MISSING, "name: is missing; add it"),
        ("source", MISSING, "source: is missing; add it"),
        ("source/url", MISSING, "source.url: is missing; add it"),
        ("source/url", None, "source.url: is missing; add it"),
        ("sinks/0/name", MISSING, "sinks[0].name: is missing; add it"),
        ("sinks/0/type", MISSING, "sinks[0].type: is missing; add it"),
        ("sinks", MISSING, "sinks: is missing; add it"),
        # kinds of value
        ("name", 5, "name: expected text; write it in quotes"),
        ("source", "x", "source: expected a mapping; write it as key: value"),
        ("log", [1], "log: expected a mapping; write it as key: value"),
        ("sinks", {"name": "out"}, "sinks: expected a list; write it like [a, b]"),
        ("sinks/0", "stdout", "sinks[0]: expected a mapping; write it like {name: out, type: stdout}"),
        ("source/tables/include", "x", "source.tables.include: expected a list; write it like [a, b]"),
        ("source/tables/include", ["a", 3], "source.tables.include[1]: expected text; write it in quotes"),
        ("source/copy/workers", "many", "source.copy.workers: expected a whole number; write it like 4"),
        ("source/copy/workers", 0, "source.copy.workers: is too small; use 1 or more"),
        ("source/copy/chunk_bytes", 0, "source.copy.chunk_bytes: is too small; use 1 or more"),
        ("source/copy/max_connections", 0, "source.copy.max_connections: is too small; use 1 or more"),
        ("source/copy/rows_per_second", 0, "source.copy.rows_per_second: is too small; use 1 or more"),
        ("source/copy/rows_per_second", "1k", "source.copy.rows_per_second: expected a whole number; write it like 4"),
        ("source/copy/rows_per_secnd", 1,
         'source.copy.rows_per_secnd: unknown key "rows_per_secnd"; did you mean "rows_per_second"?'),
        ("spark/conf", {"a": ["b"]}, "spark.conf.a: expected text; write it in quotes"),
        ("state_dir", "", "state_dir: is too short; write at least 1 characters"),
        # words
        ("name", "Shop-1", NAME_LINE),
        ("name", "a" * 41, NAME_LINE),
        ("log/acknowledge", "sink", "log.acknowledge: unknown word; use 'sinks' or 'log'"),
        ("source/mode", "steam", "source.mode: unknown word; use 'stream', 'copy' or 'copy_and_stream'"),
        ("source/type", "mysql", "source.type: unknown word; use 'postgres', 'kafka' or 'nats'"),
        ("source/tables/exclude", ["public."],
         "source.tables.exclude[0]: not a table pattern; write it like public.orders or public.*"),
        ("source/publication", [], PUBLICATION_LINE),
        ("source/publication", [1], PUBLICATION_LINE),
        ("api", {"listen": "8686"}, "api.listen: not an address to listen on; write it like 127.0.0.1:8686"),
        ("api", {"listen": "a:99999"}, "api.listen: not an address to listen on; write it like 127.0.0.1:8686"),
        # units
        ("log/linger", 5, f"log.linger: a duration needs a unit; {DURATION_HINT}"),
        ("log/linger", "5x", f"log.linger: not a duration; {DURATION_HINT}"),
        ("sinks/0/trigger", "soon", f"sinks[0].trigger: not a duration; {DURATION_HINT}"),
        ("log/max_bytes", "20Gi", "log.max_bytes: not a size; write a number and a unit, like 64MiB or 20GiB"),
        ("log/segment_bytes", 0, "log.segment_bytes: is too small; use 1 or more"),
        # the source's URL
        ("source/url", "", f"source.url: is empty; {URL_HINT}"),
        ("source/url", "mysql://ada@db/shop", f"source.url: not a Postgres URL; {URL_HINT}"),
        ("source/url", "db.example.com", f"source.url: not a Postgres URL; {URL_HINT}"),
        ("source/url", "host=db prot=5432", f"source.url: not a Postgres URL; {URL_HINT}"),
        ("source/url", "postgresql://ada@[::1/shop", f"source.url: not a Postgres URL; {URL_HINT}"),
        ("source/url", "postgresql://ada@db:x/shop", "source.url: the port is not a number; write it like "
         "postgresql://user:password@host:5432/database"),
        # sinks
        ("sinks", [], "sinks: at least one sink is needed; write it like [{name: out, type: stdout}]"),
        ("sinks/1/name", "out", 'sinks[1].name: another sink is called "out" already; give each its own name'),
        ("sinks/1/name", "a/b", "sinks[1].name: cannot name a directory; use letters, digits, - and _ only"),
        ("sinks/0/type", "duckd", 'sinks[0].type: unknown sink type "duckd"; did you mean "duckdb"?'),
        ("sinks/0/type", "zzz", 'sinks[0].type: unknown sink type "zzz"; known: duckdb, file, postgres, stdout, or your own '
         "as package.module:Class"),
        ("sinks/0/type", 3, "sinks[0].type: expected text; write it in quotes"),
        ("sinks/0/label", "x", "sinks[0].label: the label x is not wanted"),
        # what is to come
        ("source/type", "kafka", "source.type: sources of type kafka are not in this version yet; use type: postgres"),
        ("rules", [{"tables": ["a"], "sql": "select 1"}], "rules[0].sql: does not read the table's rows; select from changes"),
        ("sinks/0/on_error", "dead_letter",
         "sinks[0].on_error: sinks of this type keep no dead letters yet; use on_error: stop"),
        # variables
        ("source/url", "${SHOP_URL}", "source.url: variable SHOP_URL is not set; set it or write ${SHOP_URL:-default}"),
        ("sinks/1/path", "a/${DIR}/b", "sinks[1].path: variable DIR is not set; set it or write ${DIR:-default}"),
        ("state_dir", "${", VARIABLE_LINE),
        ("state_dir", "${a b}", VARIABLE_LINE),
    ],
)  # fmt: skip
def test_a_mistake_gives_one_line_with_its_path_and_a_remedy(tmp_path: Path, path: str, value: Any, line: str) -> None:
    assert mistakes_in(tmp_path, config_with(path, value)) == [line]


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("", "is empty; it needs at least name, source and sinks"),
        ("# nothing but a remark\n", "is empty; it needs at least name, source and sinks"),
        ("- a\n- b\n", "expected a mapping; write it as key: value, starting with name, source and sinks"),
        ("just words", "expected a mapping; write it as key: value, starting with name, source and sinks"),
        ("name: shop\nlog: {linger: 1s\n",
         "line 3, column 1: not YAML: expected ',' or '}', but got '<stream end>'; check indentation and quotes there"),
        ("name: shop\n\tlog: x\n",
         "line 2, column 1: not YAML: found character that cannot start any token; check indentation and quotes there"),
        ("name: shop\nlog: {}\nname: x\n", 'line 3: the key "name" is there already, on line 1; remove one of them'),
        ("log: {linger: 1s, linger: 2s}", 'line 1: the key "linger" is there already, on line 1; remove one of them'),
        ("a: &a [*a]", "an anchor contains an alias of itself; write it out"),
        ("name: \x07", "line 1: a character that YAML does not allow; remove it"),
        ("name: *hunter2", "line 1, column 7: not YAML: found undefined alias; check indentation and quotes there"),
        (b"name: \xff\xfe", "not UTF-8 text; save it as UTF-8"),
        ("[" * 5000, "nested too deeply; write it flatter"),
    ],
)  # fmt: skip
def test_a_file_that_is_no_document_gives_one_line(tmp_path: Path, text: str | bytes, line: str) -> None:
    assert mistakes_in(tmp_path, text) == [line]


def test_a_file_that_is_not_there_or_not_a_file_gives_one_line(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as refused:
        load_config(tmp_path / "none.yaml", {})
    assert refused.value.message == f"{tmp_path}/none.yaml: no such file; check the path"
    with pytest.raises(ConfigError) as refused:
        load_config(tmp_path, {})
    assert refused.value.message == f"{tmp_path}: cannot be read: Is a directory; name a file that you may read"


def test_all_mistakes_are_reported_at_once_and_each_once(tmp_path: Path) -> None:
    text = f"""
name: shop
source: {{url: "${{SHOP_URL}}", mode: copied}}
log: {{linger: 3, lingre: 3s}}
sinks:
  - {{name: a, type: "{SHELF}", on_error: dead_letter}}
  - {{name: a, type: "{SHELF}", on_error: dead_letter}}
"""
    assert mistakes_in(tmp_path, text) == [
        "source.url: variable SHOP_URL is not set; set it or write ${SHOP_URL:-default}",
        "source.mode: unknown word; use 'stream', 'copy' or 'copy_and_stream'",
        f"log.linger: a duration needs a unit; {DURATION_HINT}",
        'log.lingre: unknown key "lingre"; did you mean "linger"?',
        "sinks[0].on_error: sinks of this type keep no dead letters yet; use on_error: stop",
        'sinks[1].name: another sink is called "a" already; give each its own name',
        "sinks[1].on_error: sinks of this type keep no dead letters yet; use on_error: stop",
    ]
