"""What Penstock says while it works: standard error, one line per event, secrets blotted out."""

from __future__ import annotations

import json
import logging
import sys
import traceback
from collections.abc import Iterable
from datetime import UTC, datetime
from types import TracebackType

from penstock.config.secrets import redact
from penstock.error_policy import policy_for
from penstock.errors import ConfigError, PenstockError

logger = logging.getLogger("penstock")


class _Lines(logging.Formatter):
    def __init__(self, as_json: bool, dated: bool, secrets: Iterable[str]) -> None:
        super().__init__()
        self._as_json, self._dated, self._secrets = as_json, dated, frozenset(secrets)

    def format(self, record: logging.LogRecord) -> str:
        message = redact(record.getMessage(), self._secrets)
        if record.exc_info:
            message += "\n" + redact(self.formatException(record.exc_info), self._secrets)
        at = datetime.fromtimestamp(record.created, UTC)
        level = record.levelname.lower()
        if self._as_json:
            return json.dumps({"time": at.isoformat(), "level": level, "logger": record.name, "message": message})
        line = message if level == "info" and not self._dated else f"{level}: {message}"
        return f"{at:%H:%M:%S} {line}" if self._dated else line


def set_up_logging(level: int, log_format: str, secrets: Iterable[str] = (), dated: bool = True) -> None:
    """``dated``: each line begins with the time of day, in UTC. For commands that end at once it says nothing."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Lines(log_format == "json", dated, secrets))
    logger.handlers[:] = [handler]
    logger.setLevel(level)
    logger.propagate = False


def show_error(error: PenstockError) -> None:
    """What happened, where, and what to do; where it came from only for those who debug."""
    trace = error if logger.isEnabledFor(logging.DEBUG) else None
    if isinstance(error, ConfigError):  # each line of it is a mistake of its own, with its remedy
        *earlier, last = error.message.splitlines() or [""]
        for line in earlier:
            logger.error("%s", line)
        logger.error("%s", f"{last} {error.advice}" if error.advice else last, exc_info=trace)
    else:
        logger.error("%s %s", error, policy_for(error).advice, exc_info=trace)


def show_fault(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """For ``sys.excepthook``: an error that nobody expected is a fault of Penstock, told in one line as all others."""
    said = " ".join(traceback.format_exception_only(kind, error)[-1].split())
    debugging = logger.isEnabledFor(logging.DEBUG)
    advice = "" if debugging else " Run again with --debug for the details."
    logger.error(
        "This is a fault in Penstock: %s.%s", said, advice, exc_info=(kind, error, trace) if debugging else None
    )
