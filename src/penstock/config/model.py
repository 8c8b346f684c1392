"""The config file as frozen values. Reading one from disk: ``load.py``; how mistakes are worded: ``mistakes.py``."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, SecretStr, SerializeAsAny
from pydantic import ValidationError as Invalid
from pydantic_core import InitErrorDetails, PydanticCustomError

from penstock.config.secrets import check_postgres_url, secrets_in
from penstock.config.sink import SinkSettings
from penstock.config.units import Duration, Size
from penstock.errors import ConfigError
from penstock.sinks.registry import sink_class

_NAME = re.compile(r"[a-z][a-z0-9_]{0,39}")
_SINK_NAME = re.compile(r"[A-Za-z0-9_-]+")
_LISTEN = re.compile(r"(\[[0-9A-Fa-f:]+\]|[^:\s]*):[0-9]{1,5}")


class Settings(BaseModel):
    """What all parts of the config share: unknown keys are mistakes, and nothing changes after loading."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)


def _not_yet(what: str, remedy: str) -> PydanticCustomError:
    return PydanticCustomError("not_yet", "{what} not in this version yet; {remedy}", {"what": what, "remedy": remedy})


def _only_postgres(kind: str) -> str:
    if kind != "postgres":
        raise _not_yet(f"sources of type {kind} are", "use type: postgres")
    return kind


def _only_stream(mode: str) -> str:
    if mode != "stream":
        raise _not_yet(f"mode: {mode} needs imports, which are", "use mode: stream")
    return mode


def _qualified(pattern: str) -> str:
    if not pattern.strip("."):
        raise PydanticCustomError("pattern", "not a table pattern; write it like public.orders or public.*")
    return pattern if "." in pattern else f"public.{pattern}"


def _publication_names(value: Any) -> Any:
    names = [value] if isinstance(value, str) else value
    if value is None or (isinstance(names, list | tuple) and names and all(isinstance(n, str) and n for n in names)):
        return value
    raise PydanticCustomError(
        "publication", "expected the name of a publication or a list of names; leave it out otherwise"
    )


TablePattern = Annotated[str, AfterValidator(_qualified)]


class TableSelection(Settings):
    """Which tables: ``schema.table`` patterns in which ``*`` stands for any characters; unqualified means public."""

    include: tuple[TablePattern, ...] = ("public.*",)
    exclude: tuple[TablePattern, ...] = ()

    def selects(self, schema: str, table: str) -> bool:
        name = f"{schema}.{table}"
        return any(_matches(p, name) for p in self.include) and not any(_matches(p, name) for p in self.exclude)


def _matches(pattern: str, name: str) -> bool:
    # Not fnmatch: `?` and `[` are ordinary characters of a table's name.
    return re.fullmatch(".*".join(map(re.escape, pattern.split("*"))), name, re.DOTALL) is not None


class CopySettings(Settings):
    workers: int = Field(default=4, ge=1)
    chunk_bytes: Size = Field(default=64 << 20, ge=1)


class SourceSettings(Settings):
    type: Annotated[Literal["postgres", "kafka", "nats"], AfterValidator(_only_postgres)] = "postgres"
    url: Annotated[SecretStr, AfterValidator(check_postgres_url)]
    mode: Annotated[Literal["stream", "copy", "copy_and_stream"], AfterValidator(_only_stream)] = "stream"
    tables: TableSelection = TableSelection()
    publication: Annotated[str | tuple[str, ...] | None, BeforeValidator(_publication_names)] = None
    copy_: CopySettings = Field(default=CopySettings(), alias="copy")  # BaseModel has a method `copy`
    heartbeat: Duration = 30.0

    @property
    def publications(self) -> tuple[str, ...]:
        """The user's own publications; empty when Penstock makes and manages one."""
        return (self.publication,) if isinstance(self.publication, str) else self.publication or ()


class LogSettings(Settings):
    acknowledge: Literal["sinks", "log"] = "sinks"
    linger: Duration = 0.1
    segment_bytes: Size = Field(default=32 << 20, ge=1)
    retention: Duration = 0.0
    max_bytes: Size = Field(default=20 << 30, ge=1)


class SparkSettings(Settings):
    master: str = "local[*]"
    conf: dict[str, str] = {}


def _host_and_port(listen: str) -> str:
    if not _LISTEN.fullmatch(listen) or int(listen.rpartition(":")[2]) > 65535:
        raise PydanticCustomError("listen", "not an address to listen on; write it like 127.0.0.1:8686")
    return listen


class ApiSettings(Settings):
    listen: Annotated[str, AfterValidator(_host_and_port)] = "127.0.0.1:8686"


def _sink(value: Any) -> SinkSettings:
    """A sink by the settings class of its type, so that its own keys are checked like all others."""
    if isinstance(value, SinkSettings):
        return value
    if not isinstance(value, dict):
        raise PydanticCustomError("mapping", "expected a mapping; write it like {name: out, type: stdout}")
    kind = value.get("type")
    if not isinstance(kind, str):
        kind_problem = "is missing" if kind is None else "expected text"
        raise _at("type", value, PydanticCustomError("sink_type", "{problem}", {"problem": kind_problem}))
    try:
        settings = sink_class(kind).Settings
    except ConfigError as error:
        raise _at("type", value, PydanticCustomError("sink_type", "{problem}", {"problem": error.message})) from None
    return settings.model_validate(value)


def _at(key: str, value: Any, problem: PydanticCustomError) -> Invalid:
    return Invalid.from_exception_data("sink", [InitErrorDetails(type=problem, loc=(key,), input=value)])


def _pipeline_name(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise PydanticCustomError(
            "name",
            "it names the publication and the slot; use a lower-case letter, then at most 39 lower-case letters, digits or _",
        )
    return name


def _no_rules(rules: tuple[Any, ...]) -> tuple[Any, ...]:
    if rules:
        raise _not_yet("rules are", "remove them")
    return rules


def _named_apart(sinks: tuple[SinkSettings, ...]) -> tuple[SinkSettings, ...]:
    if not sinks:
        raise PydanticCustomError("sinks", "at least one sink is needed; write it like - {name: out, type: stdout}")
    problems = [(index, problem) for index in range(len(sinks)) if (problem := _name_problem(sinks, index))]
    if problems:
        details = [InitErrorDetails(type=problem, loc=(index, key), input=None) for index, (key, problem) in problems]
        raise Invalid.from_exception_data("sinks", details)
    return sinks


def _name_problem(sinks: tuple[SinkSettings, ...], index: int) -> tuple[str, PydanticCustomError] | None:
    sink = sinks[index]
    if not _SINK_NAME.fullmatch(sink.name):
        return "name", PydanticCustomError("name", "may hold letters, digits, - and _ only, since it names a directory")
    if any(sink.name == earlier.name for earlier in sinks[:index]):
        text = 'another sink is called "{name}" already; give each its own name'
        return "name", PydanticCustomError("name", text, {"name": sink.name})
    if sink.on_error == "dead_letter":
        return "on_error", _not_yet("on_error: dead_letter is", "use on_error: stop")
    return None


class Config(Settings):
    name: Annotated[str, AfterValidator(_pipeline_name)]
    state_dir: str = ".penstock"
    source: SourceSettings
    log: LogSettings = LogSettings()
    rules: Annotated[tuple[Any, ...], AfterValidator(_no_rules)] = ()
    sinks: Annotated[
        tuple[SerializeAsAny[Annotated[SinkSettings, BeforeValidator(_sink)]], ...], AfterValidator(_named_apart)
    ]
    spark: SparkSettings = SparkSettings()
    api: ApiSettings | None = None

    def secrets(self) -> frozenset[str]:
        """Every text that must never be shown: passwords in URLs, and whatever a sink declares as SecretStr."""
        return secrets_in(self)

    def below(self, directory: Path) -> Config:
        """The same, with a relative ``state_dir`` taken from this directory. A URI stays as it is."""
        if "://" in self.state_dir:
            return self
        return self.model_copy(update={"state_dir": str(Path(directory, self.state_dir).absolute())})
