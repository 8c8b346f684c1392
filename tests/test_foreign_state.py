"""A state_dir that belongs to another user: every command says so in a sentence, and `check` finds it."""

from __future__ import annotations

import ctypes
import os
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.storage import why_unwritable
from tests.cli.command import PENSTOCK, Outcome, write_config

NOBODY = 65534
DROP_FROM_BOUNDING_SET, OVERRIDE_RIGHTS, OVERRIDE_READING = 24, 1, 2  # prctl(2), capabilities(7)


def as_a_stranger(*arguments: str | Path) -> Outcome:
    """Whoever runs the tests may be root, who may do anything: what comes after this may not."""
    prctl = ctypes.CDLL(None).prctl

    def keep_to_rights() -> None:
        for capability in (OVERRIDE_RIGHTS, OVERRIDE_READING):
            prctl(DROP_FROM_BOUNDING_SET, capability, 0, 0, 0)

    done = subprocess.run(
        [*PENSTOCK, *map(str, arguments)],
        capture_output=True, text=True, timeout=120, preexec_fn=keep_to_rights if os.geteuid() == 0 else None,
    )  # fmt: skip
    return Outcome(done.returncode, done.stdout, done.stderr)


@pytest.fixture
def closed(database: str) -> Iterator[Path]:
    """The config of a pipeline whose state is another user's; or closed to us as well, where we are not root."""
    with tempfile.TemporaryDirectory(prefix="penstock-test-") as name:
        directory = Path(name)
        file = write_config(directory, database)
        state = directory / ".penstock"
        (state / "parts").mkdir(parents=True)
        if os.geteuid() == 0:
            os.chown(state, NOBODY, NOBODY)
        state.chmod(0o700 if os.geteuid() == 0 else 0)
        yield file
        state.chmod(0o700)


@pytest.mark.parametrize(
    "words",
    ["run", "init", "destroy", "capture", "deliver", "status", "verify", "log show", "log query:from changes", "copy"],
)
def test_a_state_dir_of_another_user_is_told_in_a_sentence(words: str, closed: Path) -> None:
    verb, _, rest = words.partition(" ")
    outcome = as_a_stranger(verb, closed, *filter(None, rest.split(":")))
    assert outcome.code in (1, 2)
    assert outcome.errors, outcome.err
    assert "fault in Penstock" not in outcome.err
    assert "Permission denied" in outcome.errors[-1]
    assert "state_dir" in outcome.errors[-1]


def test_check_finds_places_that_cannot_be_written(closed: Path) -> None:
    outcome = as_a_stranger("check", closed)
    assert outcome.code == 1
    failed = [line for line in outcome.out.splitlines() if line.startswith("failed")]
    assert [line.split()[1] for line in failed[:1]] == ["state_dir:"]
    assert "Permission denied" in failed[0]


def test_places_that_cannot_be_written_are_told_without_a_trace(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert why_unwritable(tmp_path) is None
    assert why_unwritable(tmp_path / "new" / "deep") is None
    assert why_unwritable(tmp_path / "file") == f"{tmp_path / 'file'} is a file, not a directory"
    assert why_unwritable(tmp_path / "file" / "below") == f"{tmp_path / 'file'} is a file, not a directory"
    assert "/proc" in (why_unwritable("/proc/penstock/state") or "")
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
