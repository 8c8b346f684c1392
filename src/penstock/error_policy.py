"""For each kind of error: try again or stop, and what the operator should do. The only place that decides this."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum

from penstock import errors


class Verdict(Enum):
    RETRY = "retry"  # with backoff, for as long as it takes, saying so
    STOP = "stop"  # nothing gets better by trying again


@dataclass(frozen=True)
class Policy:
    verdict: Verdict
    advice: str
    longest_wait: float = 30.0  # seconds between two tries


POLICIES: dict[type[errors.PenstockError], Policy] = {
    errors.ConfigError: Policy(Verdict.STOP, "Correct the config file and try again."),
    errors.SourceUnavailable: Policy(Verdict.RETRY, "Check that the database is up and that source.url reaches it."),
    errors.SourceRefused: Policy(
        Verdict.STOP,
        "Correct the user, password, database or rights in question; `penstock check` lists what is needed.",
    ),
    errors.NoFreeSlot: Policy(
        Verdict.STOP, "Raise max_replication_slots / max_wal_senders, or drop a slot that nobody uses."
    ),
    errors.SlotBusy: Policy(
        Verdict.RETRY, "Stop the other reader of this slot (pg_stat_replication names it), or wait for it."
    ),
    errors.SlotLost: Policy(
        Verdict.STOP,
        "Changes since the last confirmed position are gone. Run `penstock destroy` and `penstock init`, and load the "
        "sinks afresh.",
    ),
    errors.PublicationMissing: Policy(
        Verdict.STOP,
        "Set source.mode to copy_and_stream and start again: the WAL up to now is then read without the publication, and its "
        "tables are imported.",
    ),
    errors.SourceGap: Policy(
        Verdict.STOP,
        "The changes between the two positions are gone. Run `penstock destroy` and `penstock init`, and load the sinks "
        "afresh.",
    ),
    errors.SourceSetBack: Policy(
        Verdict.STOP,
        "The source was restored from an earlier copy, or a standby took over that lacked the end: the sinks hold changes "
        "that are not in the source any more. If this is the source to continue with, run `penstock destroy` and "
        "`penstock run`: all tables are imported again.",
    ),
    errors.WrongServer: Policy(
        Verdict.STOP, "Point source.url at the database this pipeline was made for, or use another state_dir."
    ),
    errors.LogFull: Policy(Verdict.RETRY, "Make room on the disk of state_dir; capture goes on by itself."),
    errors.LogCorrupt: Policy(
        Verdict.STOP,
        "Restore the file from a backup; or, with acknowledge: sinks, delete the log directory: it is captured again.",
    ),
    errors.SegmentMissing: Policy(
        Verdict.STOP,
        "Restore the file from a backup; or, with acknowledge: sinks, delete the log directory: it is captured again.",
    ),
    errors.LogGap: Policy(
        Verdict.STOP,
        "Stop, move the sink's target away (in postgres: drop its tables and the schema penstock), delete checkpoints/<sink> "
        "and parts/sink-<sink>.json under state_dir, and start: the sink begins where the log does, and the copy modes import "
        "its tables again.",
    ),
    errors.TableAltered: Policy(Verdict.RETRY, "Its import begins anew by itself."),
    errors.DecodeError: Policy(Verdict.STOP, "Report it with the message above; nothing was skipped."),
    errors.UnrepresentableValue: Policy(
        Verdict.STOP,
        "Set `unrepresentable` of the sink to `text` or `null` for that column, or change the value in the source.",
    ),
    errors.RuleError: Policy(Verdict.STOP, "Mend the rule or the table's replica identity, then start again."),
    errors.SinkUnavailable: Policy(
        Verdict.RETRY, "Check that the sink is reachable and not locked by another process."
    ),
    errors.SinkBusy: Policy(
        Verdict.RETRY,
        "Close the file in that process.",
        longest_wait=2.0,
    ),
    errors.SinkRefused: Policy(
        Verdict.STOP, "Mend the data or the sink's table, then start again: nothing was skipped."
    ),
    errors.ImportFailed: Policy(
        Verdict.STOP,
        "Mend what the message names. A running pipeline tries again by itself; `penstock tables FILE list` shows it.",
    ),
    errors.SparkLost: Policy(Verdict.RETRY, "Look at the memory of the machine and of spark.conf if this repeats."),
    errors.PenstockError: Policy(Verdict.STOP, "Run again with --debug for the details."),
}


def policy_for(error: errors.PenstockError) -> Policy:
    """The policy of the error's class or of the nearest class above it, with the error's own advice where it has one."""
    for kind in type(error).__mro__:
        policy = POLICIES.get(kind)
        if policy is not None:
            return replace(policy, advice=error.advice) if error.advice else policy
    raise AssertionError("PenstockError itself has a policy")
