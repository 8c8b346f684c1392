"""The config file as frozen values. Reading one from disk: ``load.py``; how mistakes are worded: ``mistakes.py``."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, SecretStr, SerializeAsAny
from pydantic import ValidationError as Invalid
from pydantic_core import InitErrorDetails, PydanticCustomError

from penstock.config.mistakes import mistake
from penstock.config.secrets import check_postgres_url, secrets_in
from penstock.config.settings import Section
from penstock.config.sink import SinkSettings
from penstock.config.tables import TableSelection
from penstock.config.units import Duration, Size
from penstock.errors import ConfigError
from penstock.rules.model import RuleSettings
from penstock.sinks.registry import sink_class

_NAME = re.compile(r"[a-z][a-z0-9_]{0,39}")
_SINK_NAME = re.compile(r"[A-Za-z0-9_-]+")
_LISTEN = re.compile(r"(\[[0-9A-Fa-f:]+\]|[^:\s]*):[0-9]{1,5}")


def _only_postgres(kind: str) -> str:
    if kind != "postgres":
        raise mistake(f"sources of type {kind} are not in this version yet; use type: postgres")
    return kind


def _publication_names(value: Any) -> Any:
    names = [value] if isinstance(value, str) else value
    if isinstance(names, list | tuple) and names and all(isinstance(name, str) and name for name in names):
        return value
    raise mistake("expected a publication's name or a list of names; leave the key out to have one made")


class CopySettings(Section):
    workers: int = Field(default=4, ge=1)
    chunk_bytes: Size = Field(default=64 << 20, ge=1)
    max_connections: int | None = Field(default=None, ge=1)
    rows_per_second: int | None = Field(default=None, ge=1)

    @property
    def connections(self) -> int:
        """How many connections read rows at the same time, at most."""
        return min(self.workers, self.max_connections or self.workers)


class SourceSettings(Section):
    type: Annotated[Literal["postgres", "kafka", "nats"], AfterValidator(_only_postgres)] = "postgres"
    url: Annotated[SecretStr, AfterValidator(check_postgres_url)]
    mode: Literal["stream", "copy", "copy_and_stream"] = "stream"
    tables: TableSelection = TableSelection()
    publication: Annotated[str | tuple[str, ...] | None, BeforeValidator(_publication_names)] = None
    copying: CopySettings = Field(default=CopySettings(), alias="copy")  # `copy` is a method of every pydantic model
    heartbeat: Duration = 30.0

    @property
    def copies(self) -> bool:
        """Whether tables are imported: the rows that were there before, not their changes alone."""
        return self.mode != "stream"

    @property
    def publications(self) -> tuple[str, ...]:
        """The user's own publications; empty when Penstock makes and manages one."""
        return (self.publication,) if isinstance(self.publication, str) else self.publication or ()


class LogSettings(Section):
    acknowledge: Literal["sinks", "log"] = "sinks"
    linger: Duration = 0.1
    segment_bytes: Size = Field(default=32 << 20, ge=1)
    retention: Duration = 0.0
    max_bytes: Size = Field(default=20 << 30, ge=1)


def _as_spark_writes_it(value: Any) -> Any:
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) if isinstance(value, int | float) else value


class SparkSettings(Section):
    master: str = "local[*]"
    conf: dict[str, Annotated[str, BeforeValidator(_as_spark_writes_it)]] = Field(default_factory=dict)


def _host_and_port(listen: str) -> str:
    if not _LISTEN.fullmatch(listen) or int(listen.rpartition(":")[2]) > 65535:
        raise mistake("not an address to listen on; write it like 127.0.0.1:8686")
    return listen


class ApiSettings(Section):
    listen: Annotated[str, AfterValidator(_host_and_port)] = "127.0.0.1:8686"


def _sink(value: Any) -> SinkSettings:
    """A sink by the settings class of its type, so that its own keys are checked like all others."""
    if isinstance(value, SinkSettings):
        return value
    if not isinstance(value, dict):
        raise mistake("expected a mapping; write it like {name: out, type: stdout}")
    kind = value.get("type")
    if kind is None:
        raise _at(("type",), mistake("is missing; add it"))
    if not isinstance(kind, str):
        raise _at(("type",), mistake("expected text; write it in quotes"))
    try:
        settings = sink_class(kind).Settings
    except ConfigError as error:
        raise _at(("type",), mistake(error.message)) from None
    return settings.model_validate(value)


def _distinct(sinks: tuple[SinkSettings, ...]) -> tuple[SinkSettings, ...]:
    if not sinks:
        raise mistake("at least one sink is needed; write it like [{name: out, type: stdout}]")
    problems = [
        InitErrorDetails(type=problem, loc=(index, key), input=None)
        for index, sink in enumerate(sinks)
        for key, problem in _problems_of(sink, sinks[:index])
    ]
    if problems:
        raise Invalid.from_exception_data("sinks", problems)
    return sinks


def _problems_of(sink: SinkSettings, earlier: Sequence[SinkSettings]) -> list[tuple[str, PydanticCustomError]]:
    problems = []
    taken = {other.name for other in earlier}
    places = {os.path.normpath(other.place): other.name for other in earlier if other.place is not None}
    if sink.place is not None and (other_name := places.get(os.path.normpath(sink.place))):
        problems.append(("path", mistake(f'sink "{other_name}" has the same path; give each sink its own')))
    if not _SINK_NAME.fullmatch(sink.name):
        problems.append(("name", mistake("cannot name a directory; use letters, digits, - and _ only")))
    elif sink.name in taken:
        problems.append(("name", mistake(f'another sink is called "{sink.name}" already; give each its own name')))
    if sink.on_error == "dead_letter" and not sink_class(sink.type).keeps_dead_letters:
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
        """The same, with relative paths taken from this directory. A URI stays as it is."""
        state_dir = self.state_dir if "://" in self.state_dir else str(Path(directory, self.state_dir).absolute())
        sinks = tuple(sink.below(directory) for sink in self.sinks)
        rules = tuple(rule.below(directory) for rule in self.rules)
        return self.model_copy(update={"state_dir": state_dir, "rules": rules, "sinks": sinks})
