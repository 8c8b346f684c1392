"""Whether a pipeline can work: all that can be known before anything is made, on the source or elsewhere.

``penstock check`` shows it (``findings``). A start refuses what would not get better by itself (``require``).
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from penstock.config.model import Config
from penstock.control.status import capture_problem
from penstock.error_policy import Verdict, policy_for
from penstock.errors import ConfigError, LogError, PenstockError, SinkUnavailable
from penstock.findings import Finding
from penstock.imports.manager import chosen_tables
from penstock.postgres.catalog import server_identity
from penstock.postgres.connection import Connection, connect
from penstock.postgres.tables import named_tables, tables_matching
from penstock.settings.tables import Selection
from penstock.sinks.contract import Sink
from penstock.state.pipeline_state import PipelineState
from penstock.subscription.preflight.server import check_source, require_creatable

logger = logging.getLogger(__name__)


class Readiness:
    def __init__(self, config: Config, state: PipelineState, sinks: Sequence[Sink[Any, Any]]) -> None:
        self._config, self._state, self._sinks = config, state, sinks
        for sink in sinks:
            sink.source_is_copied = config.source.copies

    def findings(self) -> list[Finding]:
        from penstock.spark.startup.java import check_java

        source = self._config.source
        url, copying = source.url.get_secret_value(), source.copying if source.copies else None
        findings = [self._state_dir(), *self._capture()]
        findings += check_source(url, self._config.name, self._chosen(), source.publications, copying)
        tables = self._names_of_tables()
        for sink in self._sinks:
            sink.source_tables = tables
        if self._config.rules:
            from penstock.imports.rule_checks import checked

            findings += checked(self._config)
        return [*findings, *(finding for sink in self._sinks for finding in _sink_findings(sink)), check_java()]

    def require(self) -> None:
        """PenstockError for the first thing that stands in the way of a start and will not go away by itself."""
        self.require_state_and_rules()
        origin = self._system_identifier()
        for sink in self._sinks:
            name, sink.origin = sink.settings.name, origin
            if self._state.delivering(name):
                raise SinkUnavailable(
                    f'Pipeline "{self._config.name}" is running already: another process delivers to sink "{name}".',
                    "Stop that one first, or leave it to its work.",
                )
            try:
                sink.check()
            except PenstockError as error:
                if policy_for(error).verdict is Verdict.STOP:
                    raise
            finally:
                sink.close()

    def require_state_and_rules(self) -> None:
        """What every command needs that makes something on the source; sinks may be reachable from elsewhere only."""
        self._state.require_owner(self._config.name)
        self._state.require_usable()
        if self._config.rules:
            from penstock.imports.rule_checks import refuse_unfit  # and with it what rules need

            refuse_unfit(self._config, self._state.parts)

    def require_creatable(self, connection: Connection) -> None:
        """SourceError for what the making of a subscription would fail on, when a part of it is made already."""
        source = self._config.source
        copying = source.copying if source.copies else None
        selection = chosen_tables(connection, self._config)
        require_creatable(connection, self._config.name, selection, source.publications, copying)

    def require_selected(self, names: Sequence[str]) -> None:
        """ConfigError for a table that would not be in the subscription."""
        from penstock.imports.rule_checks import captured_tables

        with connect(self._config.source.url.get_secret_value()) as connection:
            selected = {table.oid for table in captured_tables(connection, self._config)}
            for table in named_tables(connection, names):
                if table.oid not in selected:
                    raise ConfigError(
                        f"The subscription does not take {table.qualified_name}.",
                        "Include it in source.tables or in your publication, or `penstock tables FILE add` it first.",
                    )

    def _system_identifier(self) -> str:
        with connect(self._config.source.url.get_secret_value()) as connection:
            return str(server_identity(connection).system_identifier)

    def _state_dir(self) -> Finding:
        try:
            self._state.require_usable()
            self._state.require_owner(self._config.name)
        except LogError as error:
            return Finding("state_dir", False, str(error), policy_for(error).advice)
        return Finding("state_dir", True, f"{self._state.root.uri} can be written to.")

    def _capture(self) -> list[Finding]:
        try:
            problem = capture_problem(self._state.capture())
        except LogError:
            return []  # which the check of state_dir reports
        return [Finding("capture", False, problem)] if problem else []

    def _names_of_tables(self) -> list[tuple[str, str]]:
        """By schema and name; none if the source cannot be asked."""
        if self._config.source.publications:
            return []
        try:
            with connect(self._config.source.url.get_secret_value()) as connection:
                found = tables_matching(connection, chosen_tables(connection, self._config))
        except PenstockError:
            return []
        return [(table.schema, table.table) for table in found]

    def _chosen(self) -> Selection:
        """The selected tables. If the source cannot be asked, the config's alone: the check of the source says why."""
        try:
            with connect(self._config.source.url.get_secret_value()) as connection:
                return chosen_tables(connection, self._config)
        except PenstockError:
            return self._config.source.tables


def _sink_findings(sink: Sink[Any, Any]) -> list[Finding]:
    name = f"sink {sink.settings.name}"
    try:
        findings = sink.check()
    except PenstockError as error:
        return [Finding(name, False, str(error), policy_for(error).advice)]
    finally:
        sink.close()
    return [Finding(name, True, f"Ready, {sink.capabilities.guarantee}."), *(findings or ())]


@contextmanager
def telling_what_stays() -> Iterator[None]:
    """Around the making of a subscription, which may be interrupted: a slot is made when all open transactions have ended."""
    try:
        yield
    except BaseException:
        logger.warning(
            "The set-up of the source ended halfway. What it made (a publication, the schema penstock, event triggers) stays "
            "until the next start continues, or `penstock destroy` removes it."
        )
        raise
