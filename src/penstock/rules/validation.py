"""``penstock rules FILE validate``: a config's rules against the tables that its source has now."""

from __future__ import annotations

from penstock.config.model import Config
from penstock.config.tables import TableSelection
from penstock.imports.manager import chosen_tables
from penstock.postgres.connection import Connection, connect
from penstock.postgres.preflight_tables import Finding, published_tables
from penstock.postgres.tables import Table, tables_matching
from penstock.rules.checks import check_rules
from penstock.rules.source_tables import source_tables


def validate(config: Config) -> list[Finding]:
    """What is wrong with the rules, or worth a warning. Changes nothing."""
    with connect(config.source.url.get_secret_value()) as connection:
        return check_rules(config.rules, source_tables(connection, captured_tables(connection, config)))


def captured_tables(connection: Connection, config: Config) -> list[Table]:
    """Those that the config takes, or that the user's publications hold."""
    if not config.source.publications:
        return tables_matching(connection, chosen_tables(connection, config))
    everything = tables_matching(connection, TableSelection(include=("*.*",)))
    return published_tables(connection, everything, config.source.publications)
