r"""What Penstock says while it works: standard error, one line per event, secrets blotted out.

Text of others (names, values, messages of servers) made safe to print.

A table may be called ``orders\n13:00:00 error: …`` or contain escape sequences of a terminal. Whoever prints such a name
without escaping lets the one who chose it forge lines of a log, hide or reverse text, or move the cursor.
"""

from __future__ import annotations

import json
import logging
import sys
import threading
from collections.abc import Iterable
from datetime import UTC, datetime
from types import TracebackType

from penstock.error_policy import policy_for
from penstock.errors import ConfigError, PenstockError
from penstock.settings.secrets import redact


def printable(text: str) -> str:
    """With control and format characters (line feeds, ANSI escapes, C1, bidi marks) as ``\\n``, ``\\x1b`` and so on."""
    if text.isprintable():
        return text
    return "".join(character if character.isprintable() else _escaped(character) for character in text)


def _escaped(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")


logger = logging.getLogger("penstock")


class _Lines(logging.Formatter):
    def __init__(self, as_json: bool, dated: bool, secrets: Iterable[str]) -> None:
        super().__init__()
        self._as_json, self._dated, self._secrets = as_json, dated, frozenset(secrets)

    def format(self, record: logging.LogRecord) -> str:
        message, trace = self._safe(record.getMessage()), ""
        if record.exc_info and record.exc_info[1] is not None:
            if logger.isEnabledFor(logging.DEBUG):
                trace = redact(self.formatException(record.exc_info), self._secrets)
            else:  # a stack trace is for those who debug
                message = f"{message} {self._safe(in_a_line(record.exc_info[1]))}"
        at = datetime.fromtimestamp(record.created, UTC)
        level = record.levelname.lower()
        if self._as_json:
            more = {"trace": trace} if trace else {}
            said = {"time": at.isoformat(), "level": level, "logger": record.name, "message": message, **more}
            return json.dumps(said)
        line = message if level == "info" and not self._dated else f"{level}: {message}"
        line = f"{at:%H:%M:%S} {line}" if self._dated else line
        # Indented, so that no line of it can pass for one of the log.
        return "\n".join([line, *(f"  {printable(one)}" for one in trace.splitlines())])

    def _safe(self, message: str) -> str:
        """In one line, without secrets: table names and messages of servers may hold line feeds and escape sequences."""
        return printable(redact(message, self._secrets))


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
        *earlier, last = error.sentences
        for line in earlier:
            logger.error("%s", line)
        logger.error("%s", f"{last} {error.advice}" if error.advice else last, exc_info=trace)
    else:
        logger.error("%s %s", error, policy_for(error).advice, exc_info=trace)


def show_fault(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """For ``sys.excepthook``: an error that nobody expected is a fault of Penstock, told in one line as all others."""
    debugging = logger.isEnabledFor(logging.DEBUG)
    advice = "" if debugging else " Run again with --debug for the details."
    logger.error(
        "This is a fault in Penstock: %s.%s",
        in_a_line(error), advice, exc_info=(kind, error, trace) if debugging else None,
    )  # fmt: skip


def show_thread_fault(args: threading.ExceptHookArgs) -> None:
    """For ``threading.excepthook``: Python's own would print a stack trace."""
    if args.exc_value is not None and args.exc_type is not SystemExit:
        show_fault(args.exc_type, args.exc_value, args.exc_traceback)


def show_faults_in_a_line() -> None:
    """From now on, those that nobody catches, in whatever thread."""
    sys.excepthook, threading.excepthook = show_fault, show_thread_fault


def in_a_line(error: BaseException) -> str:
    return " ".join(f"{type(error).__name__}: {error}".rstrip(": ").split())
