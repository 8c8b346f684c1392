"""``rules:`` of the config file. What they do: ``compiled.py``; what can be wrong with them: ``checks.py``.

Functions of the user's that rules name: ``package.module:function``, found beside the config file or where Python looks.

They run with rows of the source, so nothing that they say is repeated: of an exception, its type and place are told.
"""

from __future__ import annotations

import importlib
import importlib.machinery
import importlib.util
import re
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, PlainSerializer, SerializeAsAny, model_validator
from pydantic import ValidationError as Invalid
from pydantic_core import InitErrorDetails

from penstock.errors import ConfigError
from penstock.rules.patterns import NAMES, placeholders, stars
from penstock.rules.where.conditions import AnyCondition
from penstock.settings.base import Section, Settings
from penstock.settings.mistakes import mistake, nearest, quoted
from penstock.settings.tables import TablePattern


@dataclass(frozen=True)
class Function:
    """``directory``: where the module is looked for before all other places; "" for nowhere else."""

    module: str
    name: str
    directory: str = ""

    def __str__(self) -> str:
        return f"{self.module}:{self.name}"

    def below(self, directory: Path) -> Function:
        return self if self.directory else replace(self, directory=str(directory))

    def load(self, path: str) -> Callable[..., Any]:
        """``path``: the rule's place in the config, for messages."""
        try:
            if self.directory:
                _import_from(self.directory, self.module.partition(".")[0])
            module = importlib.import_module(self.module)
        except Exception as error:  # noqa: BLE001  whatever somebody's module raises
            missing = isinstance(error, ModuleNotFoundError) and error.name == self.module.partition(".")[0]
            what = f"there is no module {self.module}" if missing else f"importing {self.module} raises {told(error)}"
            raise ConfigError(f"{path}: {what}.", self._hint) from None
        function = getattr(module, self.name, None)
        if not callable(function):
            raise ConfigError(f"{path}: module {self.module} has no function {self.name}.", self._hint)
        loaded: Callable[..., Any] = function
        return loaded

    @property
    def _hint(self) -> str:
        return "Put the module beside the config file, or install it; on a cluster, also where the executors are."


def _import_from(directory: str, name: str) -> None:
    """Imports the module if it is in the directory. What it imports itself is looked for there last: a file that happens to
    have the name of a library must not take the library's place."""
    if directory not in sys.path:
        sys.path.append(directory)
    spec = importlib.machinery.PathFinder.find_spec(name, [directory]) if name not in sys.modules else None
    if spec is None or spec.loader is None:
        return
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except BaseException:
        sys.modules.pop(name, None)
        raise


def place_of(error: BaseException, function: Function) -> str:
    """Where in the function's module it was raised, or came through: file, line and function, never the line's text."""
    frames = traceback.extract_tb(error.__traceback__)
    own = getattr(sys.modules.get(function.module), "__file__", None)
    frame = next((frame for frame in reversed(frames) if frame.filename == own), frames[-1])
    return f"{frame.filename}:{frame.lineno}, in {frame.name}"


def told(error: BaseException) -> str:
    """What may be said of an exception that somebody's code raised: its message may repeat a value."""
    return type(error).__name__


Operation = Literal["insert", "update", "delete"]
OPERATIONS: tuple[Operation, ...] = ("insert", "update", "delete")

_COLUMN_HINT = "write it like {transform: mask}, {exclude: true} or {keep: true}"
CodeKey = Literal["sql", "python", "python_frame"]

_FUNCTION = re.compile(r"[\w.]+:\w+")
_SELECTS = re.compile(r"\s*(select|with|from)\b", re.IGNORECASE)
_CHANGES = re.compile(r"\bchanges\b", re.IGNORECASE)


class Exclude(Settings):
    """The column does not go to the sinks."""

    exclude: Literal[True, "source"]


class Keep(Settings):
    """The column goes as it is: for ``coverage: strict``, which wants every column mentioned."""

    keep: Literal[True]


def _column_rule(value: Any) -> Any:
    if isinstance(value, Settings):
        return value
    if not isinstance(value, dict):
        raise mistake(f"expected what becomes of the column; {_COLUMN_HINT}")
    if "transform" in value:
        from penstock.rules.transforms import parse_transform  # fake data and ciphers: only for those who use them

        return parse_transform(value)
    for key, kind in (("exclude", Exclude), ("keep", Keep)):
        if key in value:
            return kind.model_validate(value)
    known = ("transform", "exclude", "keep")
    if len(value) == 1 and isinstance(key := next(iter(value)), str):
        raise mistake(f"unknown key{quoted(key)}; {nearest(key, known)}")
    raise mistake(f"says nothing about the column; {_COLUMN_HINT}")


ColumnRule = SerializeAsAny[Annotated[Any, BeforeValidator(_column_rule)]]


def _template(text: str) -> str:
    try:
        placeholders(text)
    except ValueError:
        raise mistake(
            "braces that are no placeholder; write {1}, {schema} or {table}, or {{ and }} for braces"
        ) from None
    return text


def _name(text: str) -> str:
    if not text:
        raise mistake("is empty; leave the key out to keep the name")
    return text


Template = Annotated[str, AfterValidator(_name), AfterValidator(_template)]
Name = Annotated[str, AfterValidator(_name)]


class Origin(Settings):
    """A column that says which table a row comes from, for tables that are merged into one."""

    column: Name
    value: Template = "{schema}.{table}"


class Rename(Section):
    to_schema: Template | None = Field(default=None, alias="schema")  # `schema` is a method of every pydantic model
    table: Template | None = None
    columns: dict[str, Name] = Field(default_factory=dict)
    origin: Origin | None = None
    truncate: Literal["stop", "ignore", "pass"] = "stop"

    @property
    def templates(self) -> dict[tuple[str, ...], str]:
        """By the path to them."""
        found: dict[tuple[str, ...], str | None] = {("schema",): self.to_schema, ("table",): self.table}
        if self.origin is not None:
            found["origin", "value"] = self.origin.value
        return {path: text for path, text in found.items() if text is not None}

    @model_validator(mode="after")
    def _distinct_columns(self) -> Self:
        names = [*self.columns.values(), *([self.origin.column] if self.origin else [])]
        for name in names:
            if names.count(name) > 1:
                raise mistake(f"two columns would be called{quoted(name)}; give each a name of its own")
        return self


def _some(value: Any) -> Any:
    if isinstance(value, list | tuple) and not value:
        raise mistake("is empty; write at least one, or leave the key out")
    return value


def _query(text: str) -> str:
    if not _SELECTS.match(text):
        raise mistake("not a query; write it like select * from changes")
    if not _CHANGES.search(text):
        raise mistake("does not read the table's rows; select from changes")
    return text


def _function(value: Any) -> Any:
    if isinstance(value, Function):
        return value
    if not isinstance(value, str) or not _FUNCTION.fullmatch(value):
        raise mistake("not a function; write it like package.module:function")
    module, _, name = value.partition(":")
    return Function(module, name)


FunctionName = Annotated[Any, BeforeValidator(_function), PlainSerializer(str)]


class RuleSettings(Section):
    tables: Annotated[tuple[TablePattern, ...], BeforeValidator(_some)]
    operations: Annotated[tuple[Operation, ...], BeforeValidator(_some)] = OPERATIONS
    where: AnyCondition | None = None
    columns: dict[str, ColumnRule] = Field(default_factory=dict)
    rename: Rename = Rename()
    sql: Annotated[str, AfterValidator(_query)] | None = None
    python: FunctionName | None = None
    python_frame: FunctionName | None = None
    allow_uniqueness_loss: bool = False
    coverage: Literal["relaxed", "strict"] = "relaxed"

    @property
    def code(self) -> tuple[CodeKey, str | Function] | None:
        """Which kind of code the rule has, and the code."""
        found: dict[CodeKey, Any] = {"sql": self.sql, "python": self.python, "python_frame": self.python_frame}
        return next(((key, code) for key, code in found.items() if code is not None), None)

    @property
    def in_frame(self) -> bool:
        """Whether the rule's code runs in Spark, over all rows of a table at once."""
        return self.sql is not None or self.python_frame is not None

    def below(self, directory: Path) -> RuleSettings:
        """The same, with functions looked for in this directory."""
        functions = {"python": self.python, "python_frame": self.python_frame}
        return self.model_copy(
            update={key: function.below(directory) for key, function in functions.items() if function is not None}
        )

    @model_validator(mode="after")
    def _one_code_for_all_rows(self) -> Self:
        keys = [key for key in ("sql", "python", "python_frame") if getattr(self, key) is not None]
        if len(keys) > 1:
            raise mistake(f"{keys[0]} and {keys[1]} in one rule; write a rule for each")
        if keys and not {"insert", "update"} <= set(self.operations):
            raise mistake(
                f"{keys[0]} makes a row's columns, so it is for inserts and updates alike; leave operations out"
            )
        return self

    @model_validator(mode="after")
    def _known_placeholders(self) -> Self:
        """Every pattern has to catch what the templates ask for."""
        fewest = min(sum(stars(pattern)) for pattern in self.tables)
        known = {*NAMES, *map(str, range(1, fewest + 1))}
        problems = [
            InitErrorDetails(
                type=mistake(f"{{{name}}} stands for nothing; {_caught(fewest)}"), loc=("rename", *path), input=None
            )
            for path, template in self.rename.templates.items()
            for name in placeholders(template)
            if name not in known
        ]
        if problems:
            raise Invalid.from_exception_data("rule", problems)
        return self


def _caught(fewest: int) -> str:
    numbered = f", {{1}} to {{{fewest}}} for what each * caught" if fewest else "; a pattern without * catches nothing"
    return f"use {{schema}} or {{table}}{numbered}"
