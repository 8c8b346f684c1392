"""What the copier of a table and the delivery to a sink say to each other: files under ``state_dir/imports/<sink>``.

    <job>.json           by the copier: the import, how far it is, and from where on it needs the log
    <job>-<n>.receipt    by an executor: what ``sink.write`` made of chunk n, ready to be committed
    <job>.committed      by the delivery: which chunks the sink holds, and what went wrong if something did

The copier may run in the same process as the delivery, in another one, or on another machine. Only the delivery commits,
so two of them never write to one sink; it removes these files when it has no more use for them.
"""

from __future__ import annotations

import pickle
import re
import secrets
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from penstock.changes.batch import Relation
from penstock.errors import LogCorrupt, PenstockError
from penstock.lsn import LSN
from penstock.postgres.reading.chunks import Chunk
from penstock.postgres.reading.layout import TableLayout
from penstock.state.lifecycle import TableState, Trouble
from penstock.storage import Directory

_MANIFEST = re.compile(r"(\d+)\.json")
_RECEIPT = re.compile(r"(\d+)-(\d+)\.receipt")
_OF_JOB = re.compile(r"(?:import-)?(\d+)(?:\.committed|-\d+\.receipt)?")
_LSNS = ("needed_from", "from_lsn", "to_lsn")


@dataclass(frozen=True)
class Manifest:
    """An import under way. ``state``: pending (it waits for transactions that were running), copying, or catching_up.

    The log keeps everything after ``needed_from``. Once all rows are read (catching_up), there are ``chunks`` receipts in
    all, and the rows in them were read before ``to_lsn``.
    """

    job: int
    relation: Relation
    needed_from: LSN
    state: TableState = TableState.PENDING
    again: bool = False  # the sink has rows of the table, from an earlier import or attempt
    from_lsn: LSN | None = None
    to_lsn: LSN | None = None
    chunks: int | None = None
    by_snapshot: bool = False  # read whole; the transactions that its snapshot saw are left out of the changes


@dataclass(frozen=True)
class ChunkReceipt:
    """``outcome``: what ``sink.write`` returned, and ``staging`` where it put what is not in there. ``after``: see ``Chunk``.

    ``snapshot``: that of a table without a key, which is read in one transaction; the transactions that it saw are left
    out of the changes that follow.
    """

    number: int
    rows: int
    bytes: int
    outcome: Any
    staging: str
    after: LSN | None = None
    snapshot: str | None = None

    @property
    def replaces(self) -> bool:
        """See ``ImportPart``."""
        return self.after is not None


@dataclass(frozen=True)
class ChunkToCopy:
    """What a copier gives to an executor."""

    job: int
    layout: TableLayout
    chunk: Chunk
    from_lsn: LSN


@dataclass(frozen=True)
class KeptRows:
    """Rows of a chunk that wait for code that runs in Spark."""

    staging: str
    snapshot: str | None


@dataclass(frozen=True)
class CopiedChunk:
    """What an executor returns, for the queue in the source. ``error``: nothing was staged."""

    job: int
    number: int
    rows: int = 0
    bytes: int = 0
    error: PenstockError | None = None
    kept: KeptRows | None = None  # of a table with code that runs in Spark: it is not finished yet


@dataclass(frozen=True)
class Committed:
    """How far the delivery is with an import. ``replayed``: up to where it has caught up, once it does."""

    chunks: tuple[int, ...] = ()
    replayed: LSN | None = None
    snapshot: str | None = None
    error: str | None = None
    trouble: Trouble | None = None


class Handover:
    """The files of one sink."""

    def __init__(self, state_root: Directory, sink: str) -> None:
        self.directory = state_root.child(f"imports/{sink}")
        self._staging = state_root.child(f"staging/{sink}").uri

    def staging(self, job: int) -> str:
        """Where what executors stage for an import is found."""
        return f"{self._staging}/import-{job}"

    def new_staging(self, job: int, number: int) -> str:
        """For one attempt at a chunk: one that was given up may still be writing."""
        return f"{self.staging(job)}/{number}-{secrets.token_hex(4)}"

    def manifests(self) -> Iterator[Manifest]:
        for entry in self.directory.entries():
            if match := _MANIFEST.fullmatch(entry.name):
                manifest = self.manifest(int(match[1]))
                if manifest is not None:
                    yield manifest

    def manifest(self, job: int) -> Manifest | None:
        data = self.directory.read_json(f"{job}.json")
        if data is None:
            return None
        lsns = {name: LSN.parse(data[name]) if data[name] else None for name in _LSNS}
        state, relation = TableState(data["state"]), Relation.from_json(data["relation"])
        return Manifest(**{**data, **lsns, "state": state, "relation": relation})

    def write_manifest(self, manifest: Manifest) -> None:
        self.directory.create()
        lsns = {name: str(lsn) if (lsn := getattr(manifest, name)) is not None else None for name in _LSNS}
        self.directory.write_json(f"{manifest.job}.json", {**asdict(manifest), **lsns}, removable=True)

    def receipts(self, job: int) -> list[int]:
        """The numbers of the chunks whose receipts are there, in their order."""
        found = (_RECEIPT.fullmatch(entry.name) for entry in self.directory.entries())
        return sorted(int(match[2]) for match in found if match and int(match[1]) == job)

    def is_staged(self, job: int, number: int) -> bool:
        """Whether the chunk was read already, and the sink may hold it."""
        return number in self.receipts(job) or number in self.committed(job).chunks

    def write_receipt(self, job: int, receipt: ChunkReceipt) -> None:
        content = pickle.dumps(receipt)
        self.directory.write(_receipt_name(job, receipt.number), lambda stream: stream.write(content), removable=True)

    def receipt(self, job: int, number: int) -> ChunkReceipt:
        name = _receipt_name(job, number)
        try:
            with self.directory.open(name) as file:
                receipt: ChunkReceipt = pickle.loads(file.read())
        except (FileNotFoundError, pickle.UnpicklingError, EOFError) as error:
            raise LogCorrupt(f"{self.directory.uri}/{name} cannot be read: {error}.") from error
        return receipt

    def figures(self, job: int, number: int) -> tuple[int, int]:
        """Rows and bytes of a chunk; nobody knows any more once the sink holds it."""
        try:
            receipt = self.receipt(job, number)
        except LogCorrupt:
            return 0, 0
        return receipt.rows, receipt.bytes

    def remove_receipt(self, job: int, number: int) -> None:
        self.directory.delete(_receipt_name(job, number))

    def write_committed(self, job: int, committed: Committed) -> None:
        replayed = str(committed.replayed) if committed.replayed is not None else None
        self.directory.write_json(f"{job}.committed", {**asdict(committed), "replayed": replayed}, removable=True)

    def committed(self, job: int) -> Committed:
        data = self.directory.read_json(f"{job}.committed")
        if data is None:
            return Committed()
        replayed = LSN.parse(data["replayed"]) if data["replayed"] else None
        trouble = Trouble(data["trouble"]) if data["trouble"] else None
        return Committed(**{**data, "chunks": tuple(data["chunks"]), "replayed": replayed, "trouble": trouble})

    def remove(self, job: int) -> None:
        """The manifest first: receipts without one mean nothing to anybody. With it goes what is left of dead attempts."""
        self.directory.delete(f"{job}.json")
        Directory(self.staging(job)).delete_all()
        self.directory.delete(f"{job}.committed")
        for number in self.receipts(job):
            self.remove_receipt(job, number)
        self.directory.remove_leftovers(f"{job}.", f"{job}-")

    def remove_orphans(self) -> None:
        """What a process that was killed within ``remove`` has left: files of jobs that have no manifest any more.

        A job has its manifest before anything else, so one that begins at this moment is not taken for an orphan.
        """
        matches = (_OF_JOB.fullmatch(name) for name in self._names())
        for job in {int(match[1]) for match in matches if match}:
            if self.manifest(job) is None:
                self.remove(job)

    def _names(self) -> list[str]:
        return [*(entry.name for entry in self.directory.entries()), *Directory(self._staging).directories()]

    def needed_from(self) -> LSN | None:
        """From where on imports need the log; None if there are none."""
        return min((manifest.needed_from for manifest in self.manifests()), default=None)


def _receipt_name(job: int, number: int) -> str:
    return f"{job}-{number:08d}.receipt"
