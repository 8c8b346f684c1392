"""A config's rules against the tables that its source has now: ``penstock rules FILE validate``, and before every start."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from penstock.changes.batch import Relation
from penstock.config.model import Config
from penstock.error_policy import policy_for
from penstock.errors import ConfigError, PenstockError, RuleError, SourceError
from penstock.findings import Finding
from penstock.imports.manager import chosen_tables
from penstock.postgres.catalog import server_identity
from penstock.postgres.connection import Connection, connect
from penstock.postgres.tables import Table, tables_matching
from penstock.rules.checks.checks import check_rules
from penstock.rules.checks.earlier_rules import HiddenColumns
from penstock.rules.checks.source_columns import check_source_columns, excludes_at_source
from penstock.rules.checks.source_tables import SourceTable, source_tables
from penstock.settings.tables import TableSelection
from penstock.storage import Directory
from penstock.subscription.preflight.tables import published_tables
from penstock.subscription.publication import publication_names
from penstock.subscription.publication_columns import published_columns

logger = logging.getLogger(__name__)


def validate(config: Config) -> list[Finding]:
    """What is wrong with the rules, or worth a warning. Changes nothing."""
    with connect(config.source.url.get_secret_value()) as connection:
        return rule_findings(connection, config, source_tables(connection, captured_tables(connection, config)))


def rule_findings(connection: Connection, config: Config, tables: Sequence[SourceTable]) -> list[Finding]:
    found = check_source_columns(config.rules, tables, connection.info.server_version, _fixed_lists(connection, config))
    return [*check_rules(config.rules, tables), *found]


def _fixed_lists(connection: Connection, config: Config) -> dict[int, dict[str, tuple[str, ...]]] | None:
    """What publications hold that cannot be edited: those of the user, and all on a standby. None: ours can."""
    if not excludes_at_source(config.rules):
        return None
    if config.source.publications:
        return published_columns(connection, config.source.publications)
    if server_identity(connection).in_recovery:
        return published_columns(connection, publication_names(config.name))
    return None


def refuse_unfit(config: Config, parts: Directory) -> None:
    """Before a start: ConfigError for what is wrong. What is worth a warning is one. ``parts``: of the pipeline's state."""
    with connect(config.source.url.get_secret_value()) as connection:
        tables = source_tables(connection, captured_tables(connection, config))
        findings = rule_findings(connection, config, tables)
    wrong = [finding for finding in findings if finding.ok is False]
    if wrong:
        raise ConfigError.of(f"{one.name}: {one.message} {one.remedy}".rstrip() for one in wrong)
    for finding in findings:
        logger.warning("%s: %s %s", finding.name, finding.message, finding.remedy)
    _refuse_escaped(config, parts, [table.relation for table in tables])


def refuse_unfit_where_known(config: Config, parts: Directory) -> None:
    """For a delivery by itself, which needs no source: what cannot be asked now is met with the first change."""
    try:
        refuse_unfit(config, parts)
    except SourceError as error:
        logger.debug("Rules are not held against the source's tables: %s", error)


def _refuse_escaped(config: Config, parts: Directory, relations: Sequence[Relation]) -> None:
    hidden = HiddenColumns(parts)
    try:
        for relation in relations:
            hidden.refuse_escaped(config.rules, relation)
    except RuleError as error:
        raise ConfigError(error.message, error.advice) from None
    hidden.remember(config.rules, relations)


def checked(config: Config) -> list[Finding]:
    """For ``penstock check``, which goes on if the source cannot be asked."""
    try:
        return validate(config) or [Finding("rules", True, "They fit the tables of the source.")]
    except PenstockError as error:
        return [Finding("rules", False, str(error), policy_for(error).advice)]


def captured_tables(connection: Connection, config: Config) -> list[Table]:
    """Those that the config takes, or that the user's publications hold."""
    if not config.source.publications:
        return tables_matching(connection, chosen_tables(connection, config))
    everything = tables_matching(connection, TableSelection(include=("*.*",)))
    return published_tables(connection, everything, config.source.publications)
