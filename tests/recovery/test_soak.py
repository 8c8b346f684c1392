"""A short soak, by ``pytest -m soak``; ``make soak ROUNDS=… SEED=…`` runs as many rounds as one has patience for."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.recovery.import_soak import ImportSoak
from tests.recovery.soak import soak

pytestmark = [pytest.mark.soak, pytest.mark.spark, pytest.mark.slow, pytest.mark.usefixtures("nothing_left_running")]


def test_whatever_is_killed_at_whatever_moment_nothing_is_lost_and_nothing_comes_twice(tmp_path: Path) -> None:
    outcomes = dict(soak(rounds=3, seed=1, directory=tmp_path))

    assert outcomes == {"round 1": [], "round 2": [], "round 3": [], "the end": []}


def test_whatever_is_killed_while_tables_are_copied_again_and_again_they_come_out_equal(tmp_path: Path) -> None:
    outcomes = dict(soak(rounds=2, seed=1, directory=tmp_path, kind=ImportSoak))

    assert outcomes == {"round 1": [], "round 2": [], "the end": []}
