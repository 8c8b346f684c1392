"""The config file as frozen values. Reading one from disk: ``load.py``; how mistakes are worded: ``mistakes.py``."""

from __future__ import annotations

import difflib
import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field, SerializeAsAny
from pydantic import ValidationError as Invalid
from pydantic_core import InitErrorDetails, PydanticCustomError

from penstock.config.places import places_in_state, shared_places
from penstock.errors import ConfigError
from penstock.rules.model import RuleSettings
from penstock.settings.base import Section
from penstock.settings.mistakes import mistake, quoted, show_path
from penstock.settings.secrets import secrets_in
from penstock.settings.sections import ApiSettings, LogSettings, SourceSettings, SparkSettings
from penstock.sinks.registry import sink_class
from penstock.sinks.settings import SinkSettings

_NAME = re.compile(r"[a-z][a-z0-9_]{0,39}")
_SINK_NAME = re.compile(r"[A-Za-z0-9_-]+")


def _sink(value: Any) -> SinkSettings:
    """A sink by the settings class of its type, so that its own keys are checked like all others."""
    if isinstance(value, SinkSettings):
        return value
    if not isinstance(value, dict):
        raise mistake("expected a mapping; write it like {name: out, type: stdout}")
    kind = value.get("type")
    if kind is None:
        raise _without_type(value)
    if not isinstance(kind, str):
        raise _at(("type",), mistake("expected text; write it in quotes"))
    try:
        settings = sink_class(kind).Settings
    except ConfigError as error:
        raise _at(("type",), mistake(error.message)) from None
    return settings.model_validate(value)


def _without_type(value: dict[Any, Any]) -> Invalid:
    """Also a key that was probably meant to be it."""
    near = difflib.get_close_matches("type", [key for key in value if isinstance(key, str)], n=1)
    problems = {"type": mistake("is missing; add it")}
    problems |= {key: mistake(f'unknown key{quoted(key)}; did you mean "type"?') for key in near}
    details = [InitErrorDetails(type=problem, loc=(key,), input=None) for key, problem in problems.items()]
    return Invalid.from_exception_data("sink", details)


def _distinct(sinks: tuple[SinkSettings, ...]) -> tuple[SinkSettings, ...]:
    if not sinks:
        raise mistake("at least one sink is needed; write it like [{name: out, type: stdout}]")
    problems = [
        InitErrorDetails(type=problem, loc=(index, key), input=None)
        for index, sink in enumerate(sinks)
        for key, problem in _problems_of(sink, sinks[:index])
    ]
    problems += [
        InitErrorDetails(type=mistake(text), loc=at, input=None) for at, text in shared_places(sinks, os.path.normpath)
    ]
    if problems:
        raise Invalid.from_exception_data("sinks", problems)
    return sinks


def _problems_of(sink: SinkSettings, earlier: Sequence[SinkSettings]) -> list[tuple[str, PydanticCustomError]]:
    problems = []
    taken = {other.name for other in earlier}
    if not _SINK_NAME.fullmatch(sink.name):
        problems.append(("name", mistake("cannot name a directory; use letters, digits, - and _ only")))
    elif sink.name in taken:
        problems.append(("name", mistake(f'another sink is called "{sink.name}" already; give each its own name')))
    if sink.on_error == "dead_letter" and not sink_class(sink.type).capabilities.keeps_dead_letters:
        problems.append(("on_error", mistake("sinks of this type keep no dead letters yet; use on_error: stop")))
    return problems


def _at(path: tuple[str | int, ...], problem: PydanticCustomError) -> Invalid:
    return Invalid.from_exception_data("sink", [InitErrorDetails(type=problem, loc=path, input=None)])


def _pipeline_name(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise mistake("cannot name a publication and a slot; use a lower-case letter, then up to 39 of a-z, 0-9 and _")
    return name


AnySink = SerializeAsAny[Annotated[SinkSettings, BeforeValidator(_sink)]]


class Config(Section):
    name: Annotated[str, AfterValidator(_pipeline_name)]
    state_dir: str = Field(default=".penstock", min_length=1)
    source: SourceSettings
    log: LogSettings = LogSettings()
    rules: tuple[RuleSettings, ...] = ()
    sinks: Annotated[tuple[AnySink, ...], AfterValidator(_distinct)]
    spark: SparkSettings = SparkSettings()
    api: ApiSettings | None = None

    @property
    def copying_workers(self) -> int:
        """How many chunks of tables are read at the same time; 0 where nothing is copied.

        On one machine, no more than it has processors: each worker more would take memory and gain nothing.
        """
        if not self.source.copies:
            return 0
        here = self.spark.master.startswith("local")
        return min(self.source.copying.connections, max(2, os.cpu_count() or 1) if here else sys.maxsize)

    def secrets(self) -> frozenset[str]:
        """Every text that must never be shown: passwords in URLs, and whatever a sink declares as SecretStr."""
        return secrets_in(self)

    def below(self, directory: Path) -> Config:
        """The same, with relative paths taken from this directory. A URI stays as it is.

        ConfigError for sinks whose paths turn out to be one, or to be in ``state_dir``.
        """
        state_dir = self.state_dir if "://" in self.state_dir else str(Path(directory, self.state_dir).absolute())
        sinks = tuple(sink.below(directory) for sink in self.sinks)
        rules = tuple(rule.below(directory) for rule in self.rules)
        problems = [*shared_places(sinks, os.path.realpath), *places_in_state(sinks, state_dir)]
        if problems:
            raise ConfigError.of(f"{show_path(('sinks', *at))}: {text}" for at, text in problems)
        return self.model_copy(update={"state_dir": state_dir, "rules": rules, "sinks": sinks})
