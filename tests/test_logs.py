"""Messages are one line each, whatever is in them; stack traces are for those who debug."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Iterator

import pytest

from penstock.errors import ConfigError, ImportFailed
from penstock.logs import set_up_logging, show_error, show_fault, show_faults_in_a_line

logger = logging.getLogger("penstock.test")

FORGED = "orders\n13:00:00 error: forged"
AWKWARD = [
    FORGED,
    "a\rb",
    "\x1b[31mred\x1b[0m",
    "\x9b31m",
    "\u202eterces",
    "\u2066x\u2069",
    "a\u2028b",
    "a\x00b",
    "\x7f",
]


@pytest.fixture(autouse=True)
def as_before(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    ours = logging.getLogger("penstock")
    before = ours.handlers[:], ours.level, ours.propagate
    monkeypatch.setattr("sys.excepthook", show_fault)
    monkeypatch.setattr(threading, "excepthook", threading.excepthook)
    yield
    ours.handlers[:], ours.level, ours.propagate = before


@pytest.mark.parametrize("name", AWKWARD, ids=ascii)
@pytest.mark.parametrize("log_format", ["text", "json"])
def test_control_characters_in_a_name_are_escaped(
    name: str, log_format: str, capfd: pytest.CaptureFixture[str]
) -> None:
    set_up_logging(logging.INFO, log_format)
    logger.info("Imported %s.", name)
    said = capfd.readouterr().err.removesuffix("\n")
    assert said.isprintable()
    message = json.loads(said)["message"] if log_format == "json" else said
    assert message.isprintable()
    assert message.endswith(f"Imported {name.encode('unicode_escape').decode()}.")


def test_names_in_other_scripts_stay_as_they_are(capfd: pytest.CaptureFixture[str]) -> None:
    set_up_logging(logging.INFO, "text", dated=False)
    logger.info("Imported %s.", "Übung.注文.заказы [red] \\n")
    assert capfd.readouterr().err == "Imported Übung.注文.заказы [red] \\n.\n"


@pytest.mark.parametrize("error", [ImportFailed(FORGED, FORGED), ConfigError(FORGED, FORGED)], ids=["failed", "config"])
def test_a_line_feed_in_an_error_does_not_begin_a_line(
    error: ImportFailed | ConfigError, capfd: pytest.CaptureFixture[str]
) -> None:
    set_up_logging(logging.INFO, "text", dated=False)
    show_error(error)
    (line,) = capfd.readouterr().err.splitlines()
    assert line.startswith("error: orders\\n13:00:00")


def test_each_mistake_of_a_config_is_a_line(capfd: pytest.CaptureFixture[str]) -> None:
    set_up_logging(logging.INFO, "text", dated=False)
    show_error(ConfigError.of(["one is wrong", f"two {FORGED}"]))
    lines = capfd.readouterr().err.splitlines()
    assert lines == ["error: one is wrong", "error: two orders\\n13:00:00 error: forged"]


def raise_here() -> None:
    raise OSError(28, f"No space left on device: {FORGED}")


def test_a_stack_trace_is_for_those_who_debug(capfd: pytest.CaptureFixture[str]) -> None:
    set_up_logging(logging.INFO, "text", dated=False)
    try:
        raise_here()
    except OSError:
        logger.exception("A fault while copying.")
    (line,) = capfd.readouterr().err.splitlines()
    assert line.startswith("error: A fault while copying. OSError: [Errno 28] No space left on device")


@pytest.mark.parametrize("log_format", ["text", "json"])
def test_no_line_of_a_stack_trace_can_pass_for_one_of_the_log(
    log_format: str, capfd: pytest.CaptureFixture[str]
) -> None:
    set_up_logging(logging.DEBUG, log_format, dated=False)
    try:
        raise_here()
    except OSError:
        logger.exception("A fault while copying.")
    first, *trace = capfd.readouterr().err.splitlines()
    if log_format == "json":
        said = json.loads(first)
        assert said["message"] == "A fault while copying."
        first, *trace = said["message"], *(f"  {line}" for line in said["trace"].splitlines())
    assert first.endswith("A fault while copying.")
    assert any("raise_here" in line for line in trace)
    assert all(line.startswith("  ") for line in trace)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_an_error_that_ends_a_thread_is_one_line(capfd: pytest.CaptureFixture[str]) -> None:
    set_up_logging(logging.INFO, "text", dated=False)
    show_faults_in_a_line()
    thread = threading.Thread(target=raise_here)
    thread.start()
    thread.join()
    (line,) = capfd.readouterr().err.splitlines()
    assert line.startswith("error: This is a fault in Penstock: OSError: [Errno 28] No space left on device")
