"""What Penstock says while it works: standard error, one line per event, secrets blotted out."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Iterable
from datetime import UTC, datetime

from penstock.config.secrets import redact
from penstock.error_policy import policy_for
from penstock.errors import PenstockError


class _Lines(logging.Formatter):
    def __init__(self, as_json: bool, secrets: Iterable[str]) -> None:
        super().__init__()
        self._as_json, self._secrets = as_json, frozenset(secrets)

    def format(self, record: logging.LogRecord) -> str:
        message = redact(record.getMessage(), self._secrets)
        if record.exc_info:
            message += "\n" + redact(self.formatException(record.exc_info), self._secrets)
        at = datetime.fromtimestamp(record.created, UTC)
        if self._as_json:
            line = {
                "time": at.isoformat(),
                "level": record.levelname.lower(),
                "logger": record.name,
                "message": message,
            }
            return json.dumps(line)
        return f"{at:%H:%M:%S} {record.levelname.lower()}: {message}"


def set_up_logging(level: int, log_format: str, secrets: Iterable[str] = ()) -> None:
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Lines(log_format == "json", secrets))
    penstock = logging.getLogger("penstock")
    penstock.handlers[:] = [handler]
    penstock.setLevel(level)
    penstock.propagate = False


def show_error(error: PenstockError) -> None:
    """What happened, where, and what to do."""
    logging.getLogger("penstock").error("%s %s", error, policy_for(error).advice)
