"""What a directory of event files says about itself: ``.progress.json``, replaced in one step."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path

from penstock.errors import SinkRefused
from penstock.lsn import LSN
from penstock.sinks.durable_file import replace_durably
from penstock.sinks.import_record import ImportRecord

PROGRESS = ".progress.json"


@dataclass(frozen=True)
class Progress:
    """What the directory durably holds: all changes up to ``lsn``, these tables' definitions, these parts of imports.

    ``parts`` counts the files that parts of imports have brought; a part file with a higher number is not committed.
    """

    lsn: LSN | None = None
    announced: dict[str, str] = field(default_factory=dict)
    source: str = ""
    imports: ImportRecord = field(default_factory=ImportRecord)
    parts: int = 0


def read_progress(directory: Path) -> Progress | None:
    path = directory / PROGRESS
    try:
        data = json.loads(path.read_bytes())
        lsn = None if data["lsn"] is None else LSN.parse(data["lsn"])
        imports = ImportRecord.from_json(data["imports"]) if "imports" in data else ImportRecord()
        return Progress(lsn, dict(data["announced"]), str(data.get("source", "")), imports, int(data.get("parts", 0)))
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise SinkRefused(
            f"{path} is damaged, so there is no telling which changes the files beside it hold.",
            "Restore it from a backup, or give the sink an empty directory.",
        ) from error


def write_progress(directory: Path, progress: Progress) -> None:
    data = {
        "lsn": None if progress.lsn is None else str(progress.lsn),
        "parts": progress.parts,
        "announced": progress.announced,
        "source": progress.source,
        "imports": progress.imports.to_json(),
    }
    replace_durably(directory / PROGRESS, [json.dumps(data, indent=1).encode()])
