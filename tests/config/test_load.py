"""What a good config file becomes. Mistakes: ``test_mistakes.py``."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest
from pydantic import ValidationError

from penstock.config.load import load_config
from penstock.config.model import Config
from penstock.errors import ConfigError
from tests.config.shelf import ShelfSettings

SHELF = "tests.config.shelf:ShelfSink"
SMALLEST = f"""
name: shop
source: {{url: "postgresql://ada@db/shop"}}
sinks: [{{name: out, type: "{SHELF}"}}]
"""
# Everything that the reference shows, as far as this version has it.
LARGEST = """
name: shop
state_dir: s3://bucket/penstock
source:
  type: postgres
  url: ${SHOP_URL}
  mode: copy_and_stream
  tables:
    include: ["public.*", users]
    exclude: ["public.audit_*"]
  publication: my_pub
  copy: {workers: 8, chunk_bytes: 16MiB, max_connections: 3, rows_per_second: 50000}
  heartbeat: 1m
log: {acknowledge: log, linger: 50ms, segment_bytes: 1MiB, retention: 2d, max_bytes: 5GB}
rules: []
sinks:
  - {name: lake, type: "tests.config.shelf:ShelfSink", on_error: stop, trigger: 5s, batch: {max_bytes: 4MiB}, height: 5}
  - {name: out_2, type: "tests.config.shelf:ShelfSink", unrepresentable: text}
spark: {master: "local[2]", conf: {spark.executor.memory: 2g, spark.ui.enabled: false, spark.task.cpus: 1}}
api: {listen: "127.0.0.1:8686"}
"""


def load(tmp_path: Path, text: str, **environ: str) -> Config:
    file = tmp_path / "penstock.yaml"
    file.write_text(text, "utf-8")
    return load_config(file, environ)


def test_the_smallest_config_has_the_documented_defaults(tmp_path: Path) -> None:
    config = load(tmp_path, SMALLEST)
    assert config.name == "shop"
    assert (config.source.type, config.source.mode, config.source.heartbeat) == ("postgres", "stream", 30.0)
    assert (config.source.tables.include, config.source.tables.exclude) == (("public.*",), ())
    assert config.source.publications == ()
    assert config.source.copies is False
    assert config.source.copying.model_dump() == {
        "workers": 4, "chunk_bytes": 64 << 20, "max_connections": None, "rows_per_second": None,
    }  # fmt: skip
    assert config.log.model_dump() == {
        "acknowledge": "sinks", "linger": 0.1, "segment_bytes": 32 << 20, "retention": 0.0, "max_bytes": 20 << 30,
    }  # fmt: skip
    assert (config.spark.master, config.spark.conf, config.api) == ("local[*]", {}, None)
    assert (config.sinks[0].on_error, config.sinks[0].trigger, config.sinks[0].batch.max_bytes) == (
        "stop",
        0,
        128 << 20,
    )


def test_the_largest_config_arrives_whole(tmp_path: Path) -> None:
    config = load(tmp_path, LARGEST, SHOP_URL="postgresql://ada:pw@db/shop")
    assert config.state_dir == "s3://bucket/penstock"
    assert config.source.url.get_secret_value() == "postgresql://ada:pw@db/shop"
    assert config.source.tables.include == ("public.*", "public.users")
    assert config.source.publications == ("my_pub",)
    assert (config.source.mode, config.source.copies) == ("copy_and_stream", True)
    assert config.source.copying.model_dump() == {
        "workers": 8, "chunk_bytes": 16 << 20, "max_connections": 3, "rows_per_second": 50000,
    }  # fmt: skip
    assert (config.source.heartbeat, config.log.retention, config.log.max_bytes) == (60, 172800, 5_000_000_000)
    lake, out = config.sinks
    assert isinstance(lake, ShelfSettings)
    assert (lake.trigger, lake.batch.max_bytes, lake.height, out.unrepresentable.default) == (5, 4 << 20, 5, "text")
    assert config.spark.conf == {
        "spark.executor.memory": "2g", "spark.ui.enabled": "false", "spark.task.cpus": "1",
    }  # fmt: skip
    assert config.api is not None
    assert config.api.listen == "127.0.0.1:8686"


@pytest.mark.parametrize(("limit", "connections"), [("", 4), (", max_connections: 2", 2), (", max_connections: 9", 4)])
def test_workers_share_the_connections_that_imports_may_have(tmp_path: Path, limit: str, connections: int) -> None:
    text = SMALLEST.replace('shop"}', f'shop", mode: copy, copy: {{workers: 4{limit}}}}}')
    source = load(tmp_path, text).source
    assert (source.copies, source.copying.connections) == (True, connections)


def test_relative_paths_start_at_the_files_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "penstock.yaml").write_text(SMALLEST)
    monkeypatch.chdir(tmp_path)
    config = load_config(Path("conf/penstock.yaml"), {})
    assert config.state_dir == str(tmp_path / "conf" / ".penstock")
    assert isinstance(config.sinks[0], ShelfSettings)
    assert config.sinks[0].path == str(tmp_path / "conf" / "shelf")


@pytest.mark.parametrize("state_dir", ["/var/lib/penstock", "s3://bucket/x", "file:///var/lib/penstock"])
def test_absolute_paths_and_uris_stay_as_they_are(tmp_path: Path, state_dir: str) -> None:
    assert load(tmp_path, f"{SMALLEST}\nstate_dir: {state_dir}").state_dir == state_dir


def test_sections_without_content_mean_their_defaults(tmp_path: Path) -> None:
    config = load(tmp_path, f"{SMALLEST}\nlog:\nspark:\napi:\nrules:\nstate_dir:\n")
    assert config == load(tmp_path, SMALLEST)


def test_variables_fill_values_but_never_alter_the_structure(tmp_path: Path) -> None:
    text = SMALLEST.replace("name: out", "name: '${SINK:-out}'") + 'spark: {conf: {a: "${A}", b: "$$${A}", c: "$5"}}'
    config = load(tmp_path, text, A="x}, evil: {y: ${A}")
    assert config.spark.conf == {"a": "x}, evil: {y: ${A}", "b": "$x}, evil: {y: ${A}", "c": "$5"}
    assert config.sinks[0].name == "out"


@pytest.mark.parametrize(("environ", "master"), [({}, "local[2]"), ({"M": ""}, "local[2]"), ({"M": "yarn"}, "yarn")])
def test_a_default_stands_in_for_an_absent_or_empty_variable(
    tmp_path: Path, environ: dict[str, str], master: str
) -> None:
    assert load(tmp_path, f"{SMALLEST}\nspark: {{master: '${{M:-local[2]}}'}}", **environ).spark.master == master


def test_numbers_and_units_may_come_from_variables(tmp_path: Path) -> None:
    text = SMALLEST.replace('shop"}', 'shop", copy: {workers: "${N}", chunk_bytes: "${B}"}, heartbeat: "${H}"}')
    source = load(tmp_path, text, N="7", B="1MiB", H="0").source
    assert (source.copying.workers, source.copying.chunk_bytes, source.heartbeat) == (7, 1 << 20, 0)


def test_anchors_and_merges_work(tmp_path: Path) -> None:
    text = f"""
name: shop
source: {{url: "host=db dbname=shop"}}
sinks:
  - &first {{name: one, type: "{SHELF}", height: 9}}
  - {{<<: *first, name: two}}
"""
    assert [(sink.name, sink.model_dump()["height"]) for sink in load(tmp_path, text).sinks] == [("one", 9), ("two", 9)]


def test_a_byte_order_mark_is_no_content(tmp_path: Path) -> None:
    assert load(tmp_path, "\ufeff" + SMALLEST.lstrip()).name == "shop"


def test_a_config_pickles_and_never_changes(tmp_path: Path) -> None:
    config = load(tmp_path, LARGEST, SHOP_URL="postgresql://ada:pw@db/shop")
    assert pickle.loads(pickle.dumps(config)) == config
    with pytest.raises(ValidationError, match="frozen"):
        config.name = "other"


def test_the_environment_is_the_default_source_of_variables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "penstock.yaml"
    file.write_text(SMALLEST.replace("postgresql://ada@db/shop", "${PENSTOCK_TEST_URL}"))
    with pytest.raises(ConfigError, match="variable PENSTOCK_TEST_URL is not set"):
        load_config(file)
    monkeypatch.setenv("PENSTOCK_TEST_URL", "postgresql://ada@db/shop")
    assert load_config(file).source.url.get_secret_value() == "postgresql://ada@db/shop"
