"""What a user gets who types something wrong: exit code 2, and on standard error what, where, and what to do."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from penstock import __version__
from tests.cli.command import Here, run_to_end, write_config

NOWHERE = "postgresql://me:s3cret@127.0.0.1:1/shop"
GOOD: dict[str, Any] = {
    "name": "shop",
    "source": {"url": NOWHERE},
    "sinks": [{"name": "files", "type": "file", "path": "events"}],
}


def mistaken(**changes: Any) -> dict[str, Any]:
    return {key: value for key, value in {**GOOD, **changes}.items() if value is not None}


MISTAKES = {
    "sourc: unknown key": (mistaken(sourc={}), 'did you mean "source"?'),
    "name: cannot name": (mistaken(name="Shop!"), "use a lower-case letter"),
    "sinks: is missing": (mistaken(sinks=None), "add it"),
    "source.url: not a Postgres URL": (mistaken(source={"url": "mysql://x"}), "write it like postgresql://"),
    "source.heartbeat: ": (mistaken(source={"url": NOWHERE, "heartbeat": "soon"}), "30s"),
    "sinks[0].type: unknown sink type": (mistaken(sinks=[{"name": "a", "type": "fil"}]), 'did you mean "file"?'),
    "sinks[0].path: is missing": (mistaken(sinks=[{"name": "a", "type": "file"}]), "add it"),
    "log.acknowledge: unknown word": (mistaken(log={"acknowledge": "never"}), "use 'sinks' or 'log'"),
    "source.url: ": (mistaken(source={"url": "${NO_SUCH_VARIABLE}"}), "NO_SUCH_VARIABLE"),
}


@pytest.mark.parametrize("where", MISTAKES)
def test_a_mistake_in_the_config_is_one_line_with_its_place_and_its_remedy(
    where: str, tmp_path: Path, penstock: Here
) -> None:
    document, remedy = MISTAKES[where]
    file = tmp_path / "penstock.yaml"
    file.write_text(yaml.safe_dump(document))
    outcome = penstock("run", file)
    (line,) = outcome.err.splitlines()
    assert outcome.code == 2
    assert line.startswith(f"error: {file}: {where}")
    assert remedy in line
    assert outcome.out == ""


def test_every_mistake_has_a_line_of_its_own(tmp_path: Path, penstock: Here) -> None:
    file = tmp_path / "penstock.yaml"
    file.write_text(yaml.safe_dump(mistaken(sourc={}, name="Shop!", sinks=None)))
    outcome = penstock("check", file)
    assert outcome.code == 2
    assert len(outcome.errors) == len(outcome.err.splitlines()) == 3


@pytest.mark.parametrize("verb", ["init", "destroy", "check", "run", "capture", "deliver", "copy", "status"])
def test_a_file_that_is_not_there_is_named(verb: str, tmp_path: Path, penstock: Here) -> None:
    outcome = penstock(verb, tmp_path / "absent.yaml")
    assert (outcome.code, outcome.err) == (2, f"error: {tmp_path}/absent.yaml: no such file; check the path\n")


@pytest.mark.parametrize("verb", ["run", "deliver"])
def test_a_sink_that_is_not_in_the_config_is_told_with_those_that_are(
    verb: str, tmp_path: Path, penstock: Here
) -> None:
    outcome = penstock(verb, write_config(tmp_path, NOWHERE), "--sink", "lake")
    assert outcome.code == 2
    assert 'There is no sink "lake" in the config; there are: files.' in outcome.err


@pytest.mark.parametrize("arguments", [["fly"], ["run"], ["run", "a.yaml", "--twice"], ["--log-format", "xml", "run"]])
def test_what_cannot_be_parsed_is_exit_code_2(arguments: list[str], penstock: Here) -> None:
    outcome = penstock(*arguments)
    assert outcome.code == 2
    assert "Error" in outcome.err
    assert outcome.out == ""


@pytest.mark.parametrize(
    "arguments", [["--log-format", "json", "run", "x.yaml"], ["run", "x.yaml", "--log-format=json"]]
)
def test_global_options_may_stand_before_and_behind_the_verb(arguments: list[str], penstock: Here) -> None:
    outcome = penstock(*arguments)
    message = json.loads(outcome.err)
    assert outcome.code == 2
    assert (message["level"], message["message"]) == ("error", "x.yaml: no such file; check the path")


def test_only_debug_shows_where_an_error_came_from(penstock: Here) -> None:
    assert "Traceback" not in penstock("run", "x.yaml").err
    assert "Traceback" in penstock("run", "x.yaml", "--debug").err


@pytest.mark.process
def test_python_m_penstock_tells_its_version() -> None:
    outcome = run_to_end("--version")
    assert (outcome.code, outcome.out, outcome.err) == (0, f"penstock {__version__}\n", "")


def test_help_names_every_verb(penstock: Here) -> None:
    outcome = penstock("--help")
    assert outcome.code == 0
    for verb in ("demo", "init", "destroy", "check", "run", "capture", "deliver", "copy", "tables", "status", "log"):
        assert f"\n  {verb} " in outcome.out


@pytest.mark.parametrize("verb", ["list", "add", "remove", "resync"])
def test_tables_of_a_file_that_is_not_there(verb: str, tmp_path: Path, penstock: Here) -> None:
    outcome = penstock("tables", tmp_path / "absent.yaml", verb, *([] if verb == "list" else ["orders"]))
    assert (outcome.code, outcome.err) == (2, f"error: {tmp_path}/absent.yaml: no such file; check the path\n")


def test_a_source_that_is_down_fails_at_once_and_keeps_the_password(tmp_path: Path, penstock: Here) -> None:
    file = write_config(tmp_path, NOWHERE, source={"url": NOWHERE, "mode": "copy_and_stream"})
    single: list[tuple[str, ...]] = [(verb, str(file)) for verb in ("init", "destroy", "run", "copy")]
    edits = [("tables", str(file), verb, "t") for verb in ("add", "remove", "resync")]
    for command in (*single, ("tables", str(file), "list"), *edits):
        outcome = penstock(*command, "--debug")
        assert outcome.code == 1
        assert "127.0.0.1:1/shop" in outcome.errors[0]
        assert "s3cret" not in outcome.err + outcome.out


@pytest.mark.parametrize(
    "words", [("rules", "validate"), ("tables", "list"), ("log", "show"), ("dead-letters", "list")]
)
def test_a_command_before_its_file_is_told_the_order(words: tuple[str, str], penstock: Here, tmp_path: Path) -> None:
    outcome = penstock(*words, tmp_path / "shop.yaml")
    assert outcome.code == 2
    assert f"The file comes before the command: penstock {words[0]} FILE {words[1]}" in outcome.err


@pytest.mark.process
def test_an_interrupt_before_anything_is_imported_ends_without_a_word(tmp_path: Path) -> None:
    """As if Ctrl-C were pressed while the first of our modules is imported."""
    (tmp_path / "typer.py").write_text("raise KeyboardInterrupt")
    command = [sys.executable, "-c", "from penstock.__main__ import main; main()"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


@pytest.mark.parametrize("verb", ["status", "capture"])
def test_a_state_dir_that_is_a_file_is_said_to_be_one(verb: str, database: str, tmp_path: Path, penstock: Here) -> None:
    (tmp_path / ".penstock").write_text("")
    outcome = penstock(verb, write_config(tmp_path, database))
    assert outcome.code == 1
    assert "choose another state_dir" in outcome.err
    assert "--debug" not in outcome.err


def test_status_without_a_subscription_says_how_to_get_one(database: str, tmp_path: Path, penstock: Here) -> None:
    outcome = penstock("status", write_config(tmp_path, database))
    assert outcome.code == 1
    assert "Run `penstock init`, or `penstock run`" in outcome.out
