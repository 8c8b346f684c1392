"""Functions of the user's that rules name: ``package.module:function``, found beside the config file or where Python looks.

They run with rows of the source, so nothing that they say is repeated: of an exception, its type and place are told.
"""

from __future__ import annotations

import importlib
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from penstock.errors import ConfigError


@dataclass(frozen=True)
class Function:
    """``directory``: where modules are looked for before all other places; "" for nowhere else."""

    module: str
    name: str
    directory: str = ""

    def __str__(self) -> str:
        return f"{self.module}:{self.name}"

    def below(self, directory: Path) -> Function:
        return self if self.directory else replace(self, directory=str(directory))

    def load(self, path: str) -> Callable[..., Any]:
        """``path``: the rule's place in the config, for messages."""
        if self.directory and self.directory not in sys.path:
            sys.path.insert(0, self.directory)
        try:
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


def place_of(error: BaseException, function: Function) -> str:
    """Where in the function's module it was raised, or came through: file, line and function, never the line's text."""
    frames = traceback.extract_tb(error.__traceback__)
    own = getattr(sys.modules.get(function.module), "__file__", None)
    frame = next((frame for frame in reversed(frames) if frame.filename == own), frames[-1])
    return f"{frame.filename}:{frame.lineno}, in {frame.name}"


def told(error: BaseException) -> str:
    """What may be said of an exception that somebody's code raised: its message may repeat a value."""
    return type(error).__name__
