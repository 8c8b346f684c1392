"""Code of rules that runs in Spark, held against the tables of the source when delivery starts."""

from __future__ import annotations

import logging

from penstock.config.model import Config
from penstock.errors import SourceError
from penstock.imports.rule_checks import captured_tables
from penstock.postgres.connection import connect
from penstock.rules.checks.source_tables import source_tables
from penstock.rules.passage import Passage

logger = logging.getLogger(__name__)


def refuse_unfit_frames(config: Config, rules: Passage) -> None:
    """ConfigError for code that Spark does not understand, or whose result no changes can be made of. What is not known
    now, since the source cannot be asked, is found out when the first change of the table comes."""
    if not rules.has_frames:
        return
    try:
        with connect(config.source.url.get_secret_value()) as connection:
            tables = source_tables(connection, captured_tables(connection, config))
    except SourceError as error:
        logger.debug("Rules are not held against the source's tables yet: %s", error)
        return
    for table in tables:
        if rules.runs_in_frame(table.relation):
            rules.frame(table.relation)
