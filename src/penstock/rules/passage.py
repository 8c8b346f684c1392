"""Where rules stand: between what was captured or read, and a sink, which sees what they let pass under the target's names.

Everything that reaches a sink comes through here: changes and rows of imports in the executors, parts of imports and schema
changes on the driver. Whoever keeps account of what a sink holds (positions, imports, tables) does so in the source's terms.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from penstock.changes.batch import ChangeBatch, Relation
from penstock.rules.code.code import Code, Results
from penstock.rules.compiled import Analyse, CompiledRules
from penstock.rules.model import RuleSettings
from penstock.rules.schema_commands import through_rules
from penstock.sinks.contract import Batch, ImportPart, Merged


class Passage:
    """Of one pipeline; pickles. Without rules, everything passes as it is."""

    def __init__(self, rules: Sequence[RuleSettings] = ()) -> None:
        self._rules = CompiledRules(rules) if rules else None
        self.has_frames = any(rule.in_frame for rule in rules)  # code that runs in Spark, for some table

    @property
    def compiled(self) -> CompiledRules:
        return self._rules if self._rules is not None else CompiledRules(())

    @property
    def settings(self) -> Sequence[RuleSettings]:
        return self._rules.settings if self._rules is not None else ()

    def changes(self, batches: Iterator[ChangeBatch]) -> Iterator[ChangeBatch]:
        """RuleError or ConfigError where the rules cannot be applied: the sink stops before anything leaks."""
        if self._rules is None:
            yield from batches
            return
        for batch in batches:
            passed = self._rules.apply(batch)
            if passed is not None:
                yield passed

    def batch(self, batch: Batch) -> Batch:
        """What it says of an import and of schema changes, in the target's terms."""
        if self._rules is None or (batch.part is None and not batch.schema_log):
            return batch
        return replace(
            batch,
            part=self._part(batch.part) if batch.part is not None else None,
            schema_log=through_rules(self._rules, batch.schema_log),
        )

    def filters(self, relation: Relation) -> bool:
        """Whether rows are held back, and changes do not tell whether a row was before."""
        steps = self._rules.steps(relation) if self._rules is not None else ()
        return any(step.code or (step.filter and relation.identity != "f") for step in steps)

    def analyse_by(self, analyse: Analyse) -> None:
        """On the driver: how to learn what columns such code makes. What is learned pickles, and how does not."""
        if self._rules is not None and self.has_frames:
            self._rules.analyse = analyse

    def runs_in_frame(self, relation: Relation) -> bool:
        """Whether the table has such code."""
        return self._rules is not None and self.has_frames and self._rules.runs_in_frame(relation)

    def frame(self, relation: Relation) -> Code:
        """The table's code that runs in Spark."""
        code = self._rules.frame(relation) if self._rules is not None else None
        assert code is not None
        return code

    def before_frame(self, batch: ChangeBatch) -> ChangeBatch | None:
        """Of a table with such code, what that is given."""
        assert self._rules is not None
        return self._rules.before_frame(batch)

    def from_frame(self, source: Relation, batch: ChangeBatch, results: Results) -> ChangeBatch | None:
        """And what becomes of it with what came out, on its way to the sink."""
        assert self._rules is not None
        return self._rules.from_frame(source, batch, results)

    def _part(self, part: ImportPart) -> ImportPart:
        assert self._rules is not None
        relation = part.relation
        output, origin = self._rules.output_relation(relation), self._rules.origin(relation)
        merged = Merged(relation.oid, origin) if output.oid != relation.oid else None
        return replace(part, relation=output, merged=merged, settled=part.settled and self.filters(relation))


NO_RULES = Passage()
