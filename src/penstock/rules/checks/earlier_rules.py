"""Columns that rules hide, remembered by table: under another name they must not come out with the next import.

The stream tells of a new name, and the sink stops (``schema_commands.py``). An import reads the table as it is now, so that is
held against what was remembered when the rules were last applied to the table.

Which rules made the rows that sinks hold. Others are for what comes from now on, and somebody should know that.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Sequence
from typing import Any

from penstock.changes.batch import Relation
from penstock.errors import RuleError
from penstock.rules.model import Exclude, Keep, RuleSettings
from penstock.rules.schema_commands import Course
from penstock.state.pipeline_state import PipelineState
from penstock.storage import Directory

_HIDDEN_COLUMNS = "hidden-columns.json"


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
            self._parts.write_json(_HIDDEN_COLUMNS, {**known, str(relation.oid): now})

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
                self._parts.write_json(_HIDDEN_COLUMNS, now)

    def _known(self) -> dict[str, Any]:
        return self._parts.read_json(_HIDDEN_COLUMNS) or {}


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


logger = logging.getLogger(__name__)

_RULES = "rules.json"


def tell_of_other_rules(rules: Sequence[RuleSettings], state: PipelineState, sinks: Sequence[str]) -> None:
    """A warning, once, if sinks hold rows that came by other rules than these."""
    now = {"fingerprint": _fingerprint(rules)}
    known = state.parts.read_json(_RULES)
    if known == now:
        return
    delivered = any((found := state.sink(name)) is not None and found.lsn is not None for name in sinks)
    former = known or ({"fingerprint": _fingerprint(())} if delivered else now)
    if former != now:
        logger.warning(
            "The rules are others than at the last start. They are for what comes from now on; what sinks hold is as it is. "
            "To have it all by these rules, copy the tables again: penstock tables FILE resync TABLE."
        )
    state.parts.write_json(_RULES, now)


def _fingerprint(rules: Sequence[RuleSettings]) -> str:
    """Secrets are not in it, so another salt is not noticed."""
    text = json.dumps([rule.model_dump(mode="json") for rule in rules], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()
