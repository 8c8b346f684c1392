"""``rules:`` of the config file: what is read, and how mistakes are told."""

from __future__ import annotations

import pickle
from typing import Any

import pytest
import yaml
from pydantic import SecretStr

from penstock.config.load import parse_config
from penstock.config.model import Config
from penstock.errors import ConfigError
from penstock.rules.model import Exclude, Keep
from penstock.rules.where.conditions import All, Comparison


def config_with(*rules: Any) -> Config:
    document = {
        "name": "shop", "source": {"url": "postgresql://db/shop"}, "sinks": [{"name": "out", "type": "stdout"}],
        "rules": list(rules),
    }  # fmt: skip
    return parse_config(yaml.safe_dump(document), {"SALT": "pepper"})


def rule(**keys: Any) -> dict[str, Any]:
    return {"tables": ["users"], **keys}


def test_a_rule_arrives_whole() -> None:
    (read,) = config_with(
        {
            "tables": ["tenant_*.users", "people"],
            "operations": ["insert", "update"],
            "where": {"all": [{"column": "status", "eq": "active"}, {"column": "age", "in": [1, "2"]}]},
            "columns": {
                "email": {"transform": "mask", "kind": "email"},
                "ssn": {"transform": "hash", "salt": "${SALT}"},
                "note": {"exclude": True},
                "raw": {"exclude": "source"},
                "id": {"keep": True},
            },
            "rename": {
                "schema": "all",
                "table": "{table}_x",
                "columns": {"email": "contact"},
                "origin": {"column": "tenant"},
            },
            "allow_uniqueness_loss": True,
            "coverage": "strict",
        }
    ).rules
    assert read.tables == ("tenant_*.users", "public.people")
    assert isinstance(read.where, All)
    first, second = read.where.parts
    assert isinstance(first, Comparison)
    assert isinstance(second, Comparison)
    assert (first.column, first.op, first.operand) == ("status", "eq", "active")
    assert (second.op, second.operand) == ("in", (1, "2"))
    assert read.columns["note"] == Exclude(exclude=True)
    assert read.columns["id"] == Keep(keep=True)
    assert read.rename.to_schema == "all"
    assert pickle.loads(pickle.dumps(read)) == read


def test_a_salt_is_a_secret_of_the_config() -> None:
    config = config_with(rule(columns={"ssn": {"transform": "hash", "salt": "${SALT}"}}))
    assert isinstance(config.rules[0].columns["ssn"].salt, SecretStr)
    assert "pepper" in config.secrets()
    assert "pepper" not in repr(config)


def test_what_is_left_out_has_its_default() -> None:
    (read,) = config_with(rule()).rules
    assert read.operations == ("insert", "update", "delete")
    assert read.where is None
    assert (read.coverage, read.allow_uniqueness_loss, read.rename.truncate) == ("relaxed", False, "stop")


MISTAKES: list[tuple[dict[str, Any], str]] = [
    ({"columns": {}}, "rules[0].tables: is missing; add it"),
    (rule(tables=[]), "rules[0].tables: is empty; write at least one, or leave the key out"),
    (rule(oprations=[]), 'rules[0].oprations: unknown key "oprations"; did you mean "operations"?'),
    (rule(operations=["upsert"]), "rules[0].operations[0]: unknown word; use 'insert', 'update' or 'delete'"),
    (rule(where=[]), "rules[0].where: expected a condition; write it like {column: status, eq: active}"),
    (rule(where={"eq": 1}), "rules[0].where.column: is missing; add it"),
    (
        rule(where={"column": "a", "start_with": 1}),
        'rules[0].where: unknown operator "start_with"; did you mean "starts_with"?',
    ),
    (
        rule(where={"column": "a", "eq": None}),
        "rules[0].where.eq: nothing equals NULL; use is_null: true or is_null: false",
    ),
    (
        rule(where={"column": "a", "gt": 1, "lt": 5}),
        "rules[0].where: one operator at a time; write {all: [...]} around gt and lt",
    ),
    (rule(where={"any": []}), "rules[0].where.any: is empty; write at least one condition"),
    (
        rule(where={"any": [{"column": "a", "eq": 1}], "column": "b"}),
        'rules[0].where: "any" stands alone; put what is beside it into its list',
    ),
    (
        rule(where={"not": {"all": [{"column": "a", "matches": "(?=secret)"}]}}),
        "rules[0].where.not.all[0].matches: not a regular expression that RE2 knows; "
        "it has no lookaround and no backreferences",
    ),
    (rule(columns={"a": {"transform": "maks"}}), 'rules[0].columns.a: unknown transform "maks"; did you mean "mask"?'),
    (
        rule(columns={"a": {"transform": "mask", "kid": 1}}),
        'rules[0].columns.a.kid: unknown key "kid"; did you mean "kind"?',
    ),
    (rule(columns={"a": {"exclude": False}}), "rules[0].columns.a.exclude: unknown word; use True or 'source'"),
    (rule(columns={"a": {"exclud": True}}), 'rules[0].columns.a: unknown key "exclud"; did you mean "exclude"?'),
    (
        rule(columns={"a": "mask"}),
        "rules[0].columns.a: expected what becomes of the column; "
        "write it like {transform: mask}, {exclude: true} or {keep: true}",
    ),
    (
        rule(rename={"table": "{1}"}),
        "rules[0].rename.table: {1} stands for nothing; use {schema} or {table}; a pattern without * catches nothing",
    ),
    (
        rule(rename={"table": "{"}),
        "rules[0].rename.table: braces that are no placeholder; write {1}, {schema} or {table}, or {{ and }} for braces",
    ),
    (
        rule(rename={"columns": {"a": "c", "b": "c"}}),
        'rules[0].rename: two columns would be called "c"; give each a name of its own',
    ),
    (rule(python="here"), "rules[0].python: not a function; write it like package.module:function"),
    (rule(python_frame=7), "rules[0].python_frame: not a function; write it like package.module:function"),
    (rule(sql=""), "rules[0].sql: not a query; write it like select * from changes"),
    (rule(sql="drop table changes"), "rules[0].sql: not a query; write it like select * from changes"),
    (rule(sql="select * from orders"), "rules[0].sql: does not read the table's rows; select from changes"),
    (rule(sql="select * from changes", python="a:b"), "rules[0]: sql and python in one rule; write a rule for each"),
    (
        rule(python="a:b", operations=["insert"]),
        "rules[0]: python makes a row's columns, so it is for inserts and updates alike; leave operations out",
    ),
]


@pytest.mark.parametrize(("written", "said"), MISTAKES)
def test_a_mistake_is_told_with_its_place_and_its_remedy(written: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError) as error:
        config_with(written)
    assert error.value.message == said
