"""Columns that rules hide, remembered by table: under another name they must not come out with the next import.

The stream tells of a new name, and the sink stops (``schema_commands.py``). An import reads the table as it is now, so that is
held against what was remembered when the rules were last applied to the table.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from penstock.changes import Relation
from penstock.errors import RuleError
from penstock.rules.model import Exclude, Keep, RuleSettings
from penstock.rules.schema_commands import Course
from penstock.storage import Directory

_FILE = "hidden-columns.json"


class HiddenColumns:
    """``parts``: of the pipeline's state."""

    def __init__(self, parts: Directory) -> None:
        self._parts = parts

    def admit(self, rules: Sequence[RuleSettings], relation: Relation) -> None:
        """Before an import of the table. RuleError if what the rules hid of it would be seen."""
        if not rules:
            return
        self.refuse_escaped(rules, relation)
        known, now = self._known(), _entry(rules, relation)
        if known.get(str(relation.oid)) != now:
            self._parts.write_json(_FILE, {**known, str(relation.oid): now})

    def refuse_escaped(self, rules: Sequence[RuleSettings], relation: Relation) -> None:
        known = self._known().get(str(relation.oid))
        if known is None:
            return
        names = [column.name for column in relation.columns]
        bare = [name for name in names if not _actions(rules, relation, name)]
        gone = [name for name in known["hidden"] if name not in names]
        new = [name for name in bare if name not in known["columns"]]
        if gone and new:
            raise RuleError(
                f"{relation.qualified_name} had a column {gone[0]}, which the rules hide. That is gone, there is a new one "
                f"called {new[0]}, and no rule mentions it.",
                f"If it is the same under a new name, add {new[0]} to the rule's columns beside {gone[0]}, or in its place "
                f"where the rule's tables are named without *. If it is another, add {new[0]}: {{keep: true}}.",
            )
        shown = [name for name in bare if name in known["hidden"]]
        if known["table"] != relation.qualified_name and shown:
            raise RuleError(
                f"{known['table']}, of which the rules hide {shown[0]}, is called {relation.qualified_name} now, and no rule "
                "mentions the column there.",
                "Add the new name to the rule's tables; or, if the column is to be seen, write a rule for the table with "
                f"{shown[0]}: {{keep: true}}. Then start again.",
            )

    def remember(self, rules: Sequence[RuleSettings], relations: Sequence[Relation]) -> None:
        """All tables there are; nothing of others."""
        if self._parts.exists():
            now = {str(relation.oid): _entry(rules, relation) for relation in relations}
            if now != self._known():
                self._parts.write_json(_FILE, now)

    def _known(self) -> dict[str, Any]:
        return self._parts.read_json(_FILE) or {}


def _entry(rules: Sequence[RuleSettings], relation: Relation) -> dict[str, Any]:
    names = [column.name for column in relation.columns]
    hidden = [name for name in names if any(not isinstance(one, Keep) for one in _actions(rules, relation, name))]
    return {"table": relation.qualified_name, "hidden": hidden, "columns": names}


def _actions(rules: Sequence[RuleSettings], relation: Relation, name: str) -> list[Any]:
    """What rules say of the column: transforms, ``exclude``, ``keep``."""
    found: list[Any] = []
    for _, rule in Course.of(rules, (relation.schema, relation.table)).rules:
        action = rule.columns.get(name)
        found += [action] if action is not None else []
        if isinstance(action, Exclude):
            break
        name = rule.rename.columns.get(name, name)
    return found
