"""pg_flo's rules (``tables: {users: [...]}``) and its routing (``users: {source_table: …, destination_table: …}``).

Rules of a table apply one after the other there too; neighbours that do not depend on their order become one rule of ours.
"""

from __future__ import annotations

import re
from typing import Any

from penstock.errors import ConfigError
from penstock.rules.convert.converted import Converted, Rule, mapping, sequence, word
from penstock.rules.model import OPERATIONS

_OPERATORS = ("eq", "ne", "gt", "gte", "lt", "lte", "contains")
_GROUP = re.compile(r"\$(?:\{(\w+)\}|(\w+)|(\$))")


def converted(document: dict[str, Any]) -> Converted:
    found = Converted()
    if "tables" in document:
        for table, entries in mapping(document["tables"], "tables").items():
            found.rules += _Table(table).rules(sequence(entries, f"tables.{table}"))
    routes = {key: value for key, value in document.items() if key != "tables"}
    for name, route in routes.items():
        if isinstance(route, dict) and "source_table" in route:
            found.rules.append(_route(str(name), route))
        elif "tables" in document:
            found.notes.append(f"The key {name} has no equivalent.")
        else:
            raise ConfigError("is neither rules of pg_flo (tables: {…}) nor its routing (source_table: …)")
    return found


class _Table:
    def __init__(self, name: str) -> None:
        self._name = name
        self._rules: list[Rule] = []

    def rules(self, entries: list[Any]) -> list[Rule]:
        for index, entry in enumerate(entries):
            where = f"tables.{self._name}[{index}]"
            self._add(mapping(entry, where), where)
        return self._rules

    def _add(self, entry: dict[str, Any], where: str) -> None:
        kind = entry.get("type")
        column, parameters = word(entry.get("column"), f"{where}.column"), mapping(entry.get("parameters"), where)
        if kind == "filter":
            self._filter(column, parameters, entry)
        elif kind == "exclude_column":
            rule = self._rule(entry, column)
            rule.columns[column] = {"exclude": True}
            if "operations" in rule.keys:
                rule.notes.append(
                    f"{column} is excluded from all operations: here columns do not come and go by operation."
                )
        elif kind == "transform":
            self._transform(column, parameters, entry)
        else:
            rule = self._rule(entry, column)
            rule.notes.append(f"A rule of type {kind} for {column} has no equivalent.")

    def _filter(self, column: str, parameters: dict[str, Any], entry: dict[str, Any]) -> None:
        rule = self._rule(entry, None)
        operator, value = parameters.get("operator"), parameters.get("value")
        if operator not in _OPERATORS or value is None or isinstance(value, dict | list):
            rule.notes.append(
                f"A filter on {column} ({operator}) has no equivalent: rows that it held back would go on."
            )
            return
        comparison = {"column": column, operator: str(value) if operator == "contains" else value}
        where = rule.keys.get("where")
        if where is None:
            rule.keys["where"] = comparison
        else:
            rule.keys["where"] = {"all": [*where.get("all", [where]), comparison]}

    def _transform(self, column: str, parameters: dict[str, Any], entry: dict[str, Any]) -> None:
        rule = self._rule(entry, column)
        kind = parameters.get("type")
        if kind == "mask":
            char = {"char": parameters["mask_char"]} if "mask_char" in parameters else {}
            rule.transform(column, {"transform": "mask", "kind": "ends", **char}, "mask")
        elif kind == "regex":
            replace = _GROUP.sub(_reference, str(parameters.get("replace", "")).replace("\\", "\\\\"))
            rule.transform(
                column, {"transform": "regex", "pattern": parameters.get("pattern"), "replace": replace}, "regex"
            )
        else:
            rule.exclude(column, f"pg_flo's {kind} is not known here.")

    def _rule(self, entry: dict[str, Any], column: str | None) -> Rule:
        """The last rule, if the entry can join it without coming too early: filters see values before all transforms."""
        operations = _operations(entry)
        if self._rules:
            last = self._rules[-1]
            same = last.keys.get("operations") == operations
            free = not last.keys.get("columns") if column is None else column not in last.keys.get("columns", {})
            if same and free:
                return last
        self._rules.append(
            Rule({"tables": [_qualified(self._name)], **({"operations": operations} if operations else {})})
        )
        return self._rules[-1]


def _operations(entry: dict[str, Any]) -> list[str] | None:
    given = {str(operation).lower() for operation in sequence(entry.get("operations"), "operations")}
    wanted: list[str] = [operation for operation in OPERATIONS if operation in given]
    return wanted if wanted and len(wanted) < len(OPERATIONS) else None


def _reference(match: re.Match[str]) -> str:
    """Go writes $1 or ${1}, RE2 \\1."""
    return "$" if match[3] else f"\\{match[1] or match[2]}"


def _route(name: str, route: dict[str, Any]) -> Rule:
    rule = Rule({"tables": [_qualified(word(route.get("source_table"), f"{name}.source_table"))]})
    rename: dict[str, Any] = {}
    destination = route.get("destination_table")
    if destination:
        schema, dot, table = word(destination, f"{name}.destination_table").rpartition(".")
        rename = {**({"schema": schema} if dot else {}), "table": table}
    columns = {
        word(pair.get("source"), f"{name}.column_mappings"): word(pair.get("destination"), f"{name}.column_mappings")
        for pair in (
            mapping(each, f"{name}.column_mappings")
            for each in sequence(route.get("column_mappings"), f"{name}.column_mappings")
        )
    }
    if columns:
        rename["columns"] = columns
    if rename:
        rule.keys["rename"] = rename
    if _operations(route):
        rule.notes.append("Only some operations were routed; here all go the same way. Filter, or leave the table out.")
    return rule


def _qualified(name: str) -> str:
    return name if "." in name else f"public.{name}"
