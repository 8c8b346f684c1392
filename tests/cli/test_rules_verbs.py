"""``penstock rules``: what another tool's file becomes, and that ours reads it; and rules against real tables."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from penstock.config.load import parse_config
from penstock.postgres.connection import connect
from penstock.rules.convert.pgstream import TRANSFORMERS
from penstock.rules.model import RuleSettings
from tests.cli.command import Here, Outcome, write_config

PG_FLO = """
tables:
  users:
    - {type: filter, column: age, parameters: {operator: gte, value: 18}, operations: [INSERT, UPDATE]}
    - {type: filter, column: name, parameters: {operator: contains, value: a}, operations: [UPDATE, INSERT]}
    - {type: transform, column: email, parameters: {type: mask, mask_char: "#"}, operations: [INSERT, UPDATE]}
    - {type: transform, column: phone, parameters: {type: regex, pattern: '(\\d{3})$', replace: "${1}-$$"}}
    - {type: exclude_column, column: ssn}
    - {type: filter, column: phone, parameters: {operator: ne, value: x}}
  sales.orders:
    - {type: filter, column: state, parameters: {operator: like, value: "a%"}}
    - {type: transform, column: note, parameters: {type: rot13}}
    - {type: exclude_column, column: raw, operations: [DELETE]}
"""
PG_FLO_ROUTING = """
users:
  source_table: users
  destination_table: crm.customers
  column_mappings: [{source: name, destination: full_name}]
  operations: [INSERT]
"""
PGSTREAM = """
transformations:
  validation_mode: table_level
  table_transformers:
    - schema: public
      table: users
      validation_mode: strict
      column_transformers:
        id: {name: noop}
        note:
        email: {name: neosync_email, parameters: {preserve_length: true, seed: 7, email_type: uuidv4}}
        name: {name: greenmask_firstname, dynamic_parameters: {gender: {column: sex}}}
        phone: {name: masking, parameters: {type: mobile}}
        city: {name: template, parameters: {template: '{{ .GetDynamicValue "country" }}-{{.GetValue}}'}}
        code: {name: literal_string, parameters: {literal: x}, allow_uniqueness_loss: true}
        secret: {name: pg_anonymizer, parameters: {anon_function: anon.fake_city}}
        upper: {name: template, parameters: {template: '{{ toUpper .GetValue }}'}}
        odd: {name: brand_new}
"""


def converted(penstock: Here, directory: Path, tool: str, text: str) -> Outcome:
    file = directory / "theirs.yaml"
    file.write_text(text)
    return penstock("rules", file, "convert", "--from", tool)


def read_back(printed: str) -> tuple[RuleSettings, ...]:
    """By the loader of our config file, within a whole config."""
    start = "name: shop\nsource: {url: postgresql://db/shop}\nsinks: [{name: out, type: stdout}]\n"
    return parse_config(start + printed, {}).rules


def test_rules_of_pg_flo_become_ours_in_their_order(tmp_path: Path, penstock: Here) -> None:
    outcome = converted(penstock, tmp_path, "pg_flo", PG_FLO)
    assert outcome.code == 0
    printed = yaml.safe_load(outcome.out)["rules"]
    assert printed[0] == {
        "tables": ["public.users"],
        "operations": ["insert", "update"],
        "where": {"all": [{"column": "age", "gte": 18}, {"column": "name", "contains": "a"}]},
        "columns": {"email": {"transform": "mask", "kind": "ends", "char": "#"}},
    }
    first, second, third, *_ = read_back(outcome.out)
    assert first.operations == ("insert", "update")
    assert second.columns["phone"].model_dump()["pattern"] == r"(\d{3})$"
    assert second.columns["phone"].model_dump()["replace"] == r"\1-$"
    assert second.where is None  # a filter sees what the transforms before it made, so it comes in a rule of its own
    assert third.where is not None


def test_what_pg_flo_has_and_we_have_not_is_said_and_stands_in_the_output(tmp_path: Path, penstock: Here) -> None:
    outcome = converted(penstock, tmp_path, "pg_flo", PG_FLO)
    for note in (
        "A filter on state (like) has no equivalent",
        "note is excluded",
        "raw is excluded from all operations",
    ):
        assert note in outcome.err
        assert [line for line in outcome.out.splitlines() if line.strip().startswith("#") and note in line]
    orders = [rule for rule in read_back(outcome.out) if rule.tables == ("sales.orders",)]
    assert orders[0].columns["note"].model_dump() == {"exclude": True}


def test_routing_of_pg_flo_becomes_new_names(tmp_path: Path, penstock: Here) -> None:
    outcome = converted(penstock, tmp_path, "pg_flo", PG_FLO_ROUTING)
    (rule,) = read_back(outcome.out)
    assert (rule.tables, rule.rename.to_schema, rule.rename.table) == (("public.users",), "crm", "customers")
    assert rule.rename.columns == {"name": "full_name"}
    assert "Only some operations were routed" in outcome.err


def test_transformations_of_pgstream_become_ours(tmp_path: Path, penstock: Here) -> None:
    outcome = converted(penstock, tmp_path, "pgstream", PGSTREAM)
    assert outcome.code == 0
    printed = yaml.safe_load(outcome.out)["rules"]
    assert printed[0]["columns"] == {
        "id": {"keep": True},
        "note": {"keep": True},
        "email": {"transform": "email", "generator": "deterministic", "preserve_length": True, "salt": "7"},
        "name": {"transform": "first_name", "generator": "random", "dynamic": {"gender": "sex"}},
        "phone": {"transform": "mask", "kind": "phone"},
        "city": {"transform": "template", "template": "{country}-{value}"},
        "secret": {"exclude": True},
        "upper": {"exclude": True},
        "odd": {"exclude": True},
    }
    strict, loose = read_back(outcome.out)
    assert (strict.coverage, strict.allow_uniqueness_loss) == ("strict", False)
    assert (loose.coverage, loose.allow_uniqueness_loss, list(loose.columns)) == ("relaxed", True, ["code"])
    for note in ("secret is excluded", "upper is excluded", "odd is excluded", "not carried over: email_type"):
        assert note in outcome.err
        assert note in outcome.out


EXAMPLES: dict[str, dict[str, Any]] = {
    "email": {"replacement_domain": "a.org", "exclude_domain": "b.org", "salt": "s"},
    "encrypted_aes_siv": {"key_hex": "00" * 64, "associated_data": "users"},
    "greenmask_boolean": {"generator": "deterministic"},
    "greenmask_choice": {"choices": ["a", "b"]},
    "greenmask_date": {"min_value": "2020-01-01", "max_value": "2021-01-01"},
    "greenmask_firstname": {"gender": "Female"},
    "greenmask_float": {"min_value": 0.5, "max_value": 2, "precision": 1},
    "greenmask_integer": {"size": 2, "min_value": 1},
    "greenmask_string": {"symbols": "ab", "min_length": 2, "max_length": 4},
    "greenmask_unix_timestamp": {"min_value": "1577836800", "max_value": "1609459200"},
    "greenmask_utc_timestamp": {
        "min_timestamp": "2020-01-01T00:00:00Z", "max_timestamp": "2021-01-01T00:00:00Z", "truncate_part": "day",
    },
    "greenmask_uuid": {},
    "hstore": {"operations": [{"operation": "set", "key": "a", "value": "b", "skip_not_exist": True}]},
    "json": {"operations": [{"operation": "delete", "path": "a.b"}, {"operation": "set", "path": "c", "value": 1}]},
    "literal_string": {"literal": "x"},
    "masking": {"type": "custom", "mask_begin": "10%", "mask_end": 4},
    "neosync_email": {"preserve_domain": True, "excluded_domains": ["a.org"], "max_length": 50},
    "neosync_firstname": {"preserve_length": True, "seed": 1},
    "neosync_fullname": {"max_length": 20},
    "neosync_lastname": {},
    "neosync_string": {"min_length": 1, "max_length": 5},
    "phone_number": {"prefix": "+30", "min_length": 9, "max_length": 12},
    "string": {},
    "template": {"template": "{{ .GetValue }}!"},
}  # fmt: skip


@pytest.mark.parametrize("name", sorted(TRANSFORMERS.keys() - {"pg_anonymizer"}))
def test_every_transformer_of_pgstream_has_one_of_ours(name: str, tmp_path: Path, penstock: Here) -> None:
    table = {"table": "t", "column_transformers": {"c": {"name": name, "parameters": EXAMPLES[name]}}}
    outcome = converted(
        penstock, tmp_path, "pgstream", yaml.safe_dump({"transformations": {"table_transformers": [table]}})
    )
    assert outcome.err == ""
    assert yaml.safe_load(outcome.out)["rules"][0]["columns"]["c"]["transform"] == TRANSFORMERS[name].transform
    assert len(read_back(outcome.out)) == 1


@pytest.mark.parametrize(
    ("tool", "text", "said"),
    [
        ("pg_flo", "a: [", "not YAML"),
        ("pg_flo", "- a", "expected a mapping"),
        ("pg_flo", "users: {a: b}", "neither rules of pg_flo"),
        ("pg_flo", "tables: {users: {a: b}}", "tables.users: expected a list"),
        ("pg_flo", "tables: {users: [{type: filter}]}", "tables.users[0].column: expected text"),
        ("pgstream", "tables: {}", "no transformations.table_transformers"),
        ("pgstream", "table_transformers: [{schema: a}]", "table_transformers[0].table: expected text"),
    ],
)
def test_a_file_that_is_not_of_the_tool_is_exit_code_2(
    tool: str, text: str, said: str, tmp_path: Path, penstock: Here
) -> None:
    outcome = converted(penstock, tmp_path, tool, text)
    assert (outcome.code, outcome.out) == (2, "")
    assert f"error: {tmp_path}/theirs.yaml: " in outcome.err
    assert said in outcome.err


def test_a_file_that_is_not_there_or_an_unknown_tool_is_exit_code_2(tmp_path: Path, penstock: Here) -> None:
    absent = penstock("rules", tmp_path / "absent.yaml", "convert", "--from", "pgstream")
    assert (absent.code, absent.err) == (2, f"error: {tmp_path}/absent.yaml: no such file; check the path\n")
    assert penstock("rules", tmp_path / "absent.yaml", "convert", "--from", "debezium").code == 2


def test_a_dollar_sign_of_theirs_is_no_variable_of_ours(tmp_path: Path, penstock: Here) -> None:
    table = {
        "table": "t",
        "column_transformers": {"c": {"name": "literal_string", "parameters": {"literal": "${HOME} $$ $1"}}},
    }
    outcome = converted(penstock, tmp_path, "pgstream", yaml.safe_dump({"table_transformers": [table]}))
    (rule,) = read_back(outcome.out)
    assert rule.columns["c"].value == "${HOME} $$ $1"


def test_rules_are_held_against_the_tables_of_the_source(tmp_path: Path, database: str, penstock: Here) -> None:
    with connect(database) as connection:
        connection.execute("create table public.users (id bigint primary key, email text unique, age int)")
    rule = {"tables": ["users"], "columns": {"emial": {"exclude": True}, "email": {"transform": "mask"}}}
    file = write_config(tmp_path, database, rules=[rule])
    outcome = penstock("rules", file, "validate")
    assert outcome.code == 2
    assert 'rules[0].columns.emial: public.users has no column emial. Did you mean "email"?' in outcome.out
    assert "rules[0].columns.email: email is unique in public.users" in outcome.out
    assert [finding["ok"] for finding in penstock.json("rules", file, "validate", "--json")] == [False, False]


def test_rules_that_fit_are_exit_code_0(tmp_path: Path, database: str, penstock: Here) -> None:
    with connect(database) as connection:
        connection.execute("create table public.users (id bigint primary key, email text, age int)")
        connection.execute("create table public.other (id bigint primary key)")
        connection.execute("create publication mine for table public.users")
    rule = {"tables": ["users"], "where": {"column": "age", "gt": 17}, "columns": {"email": {"transform": "mask"}}}
    fits = penstock("rules", write_config(tmp_path, database, rules=[rule]), "validate")
    assert (fits.code, "Nothing stands in the way." in fits.out) == (0, True)
    source = {"url": database, "publication": "mine"}
    other = write_config(tmp_path, database, rules=[{"tables": ["other"]}], source=source)
    assert "There is no captured table public.other." in penstock("rules", other, "validate").out


def test_a_column_that_a_users_publication_holds_cannot_stay_in_the_database(
    tmp_path: Path, database: str, penstock: Here
) -> None:
    with connect(database) as connection:
        connection.execute("create table public.users (id bigint primary key, email text, ssn text)")
        connection.execute("create publication whole for table public.users")
        connection.execute("create publication part for table public.users (id, email)")
    rule = {"tables": ["users"], "columns": {"ssn": {"exclude": "source"}}}
    file = write_config(tmp_path, database, rules=[rule], source={"url": database, "publication": "whole"})
    refused = penstock("rules", file, "validate")
    assert refused.code == 2
    assert "rules[0].columns.ssn: The publication whole publishes ssn of public.users" in refused.out
    started = penstock("run", file)
    assert started.code == 2
    assert "The publication whole publishes ssn of public.users" in started.err
    file = write_config(tmp_path, database, rules=[rule], source={"url": database, "publication": "part"})
    assert penstock("rules", file, "validate").code == 0


def test_a_column_of_the_replica_identity_cannot_stay_in_the_database(
    tmp_path: Path, database: str, penstock: Here
) -> None:
    with connect(database) as connection:
        connection.execute("create table public.users (id bigint primary key, ssn text)")
        connection.execute("alter table public.users replica identity full")
    for column, said in (("ssn", "ssn is in the replica identity of public.users"), ("id", "in its key")):
        rule = {"tables": ["users"], "columns": {column: {"exclude": "source"}}}
        outcome = penstock("run", write_config(tmp_path, database, rules=[rule]))
        assert outcome.code == 2
        assert said in outcome.err
