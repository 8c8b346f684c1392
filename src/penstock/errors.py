"""Everything that Penstock raises on purpose, as one tree.

::

    PenstockError
    ├── ConfigError              the config file or the command line is wrong (exit 2)
    ├── SourceError              something about the Postgres that we read from
    │   ├── SourceUnavailable    no connection, or it broke
    │   ├── SourceRefused        the server said no: password, rights, wal_level
    │   ├── NoFreeSlot           max_replication_slots or max_wal_senders reached
    │   ├── SlotBusy             somebody else reads our slot
    │   ├── SlotLost             our slot is gone, invalidated, or was never made
    │   ├── PublicationMissing   a publication did not exist at some point in the WAL
    │   ├── SourceGap            the slot stands past what we hold: changes are missing
    │   │   └── SourceSetBack    the source no longer has what was read from it
    │   └── WrongServer          another database system answers behind the URL
    ├── LogError                 something about the change log
    │   ├── LogFull              no room on its disk
    │   ├── LogCorrupt           a segment is damaged or missing
    │   │   └── SegmentMissing   its file is gone
    │   ├── LogGap               a sink needs changes that the log no longer holds
    │   └── TableAltered         a table is not what it was when its import began
    ├── DecodeError              bytes from Postgres that are not pgoutput as documented
    ├── UnrepresentableValue     a value that the sink's column type cannot hold
    ├── RuleError                a rule that a change does not tell enough for, or a value that it cannot change
    ├── SinkError                something about a sink
    │   ├── SinkUnavailable      it cannot be reached, its disk is full, or another process delivers to it
    │   │   └── SinkBusy         another process has its file open at the moment
    │   └── SinkRefused          it answered no to this data
    ├── ImportFailed             a table could not be copied to a sink
    └── SparkLost                the JVM or an executor died

Whether Penstock tries again or stops, and what the operator should do, is one table: ``error_policy.py``.
Errors pickle, since they travel from executors to the driver.
"""

from __future__ import annotations

from collections.abc import Iterable


class PenstockError(Exception):
    """What happened and where, in one or two plain sentences; ``advice`` says what to do if the policy's is too general."""

    told = False  # whoever raised it has shown it already

    def __init__(self, message: str, advice: str | None = None) -> None:
        super().__init__(message, advice)
        self.message = message
        self.advice = advice

    def __str__(self) -> str:
        return self.message

    @property
    def with_advice(self) -> str:
        """The message and, where the error knows more than its policy, what to do."""
        return f"{self.message} {self.advice}" if self.advice else self.message


class ConfigError(PenstockError):
    """``mistakes``: a sentence for each, where there are several; the message has them as lines."""

    mistakes: tuple[str, ...] = ()

    @classmethod
    def of(cls, mistakes: Iterable[str], advice: str | None = None) -> ConfigError:
        sentences = tuple(mistakes)
        error = cls("\n".join(sentences), advice)
        error.mistakes = sentences
        return error

    @property
    def sentences(self) -> tuple[str, ...]:
        return self.mistakes or (self.message,)


class SourceError(PenstockError):
    pass


class SourceUnavailable(SourceError):
    pass


class SourceRefused(SourceError):
    pass


class NoFreeSlot(SourceError):
    pass


class SlotBusy(SourceError):
    pass


class SlotLost(SourceError):
    pass


class PublicationMissing(SourceError):
    publication = ""  # its name


class SourceGap(SourceError):
    pass


class SourceSetBack(SourceGap):
    pass


class WrongServer(SourceError):
    pass


class LogError(PenstockError):
    pass


class LogFull(LogError):
    pass


class LogCorrupt(LogError):
    pass


class SegmentMissing(LogCorrupt):
    pass


class LogGap(LogError):
    pass


class TableAltered(LogError):
    pass


class DecodeError(PenstockError):
    pass


class UnrepresentableValue(PenstockError):
    pass


class RuleError(PenstockError):
    pass


class SinkError(PenstockError):
    pass


class SinkUnavailable(SinkError):
    pass


class SinkBusy(SinkUnavailable):
    pass


class SinkRefused(SinkError):
    pass


class ImportFailed(PenstockError):
    pass


class SparkLost(PenstockError):
    pass
