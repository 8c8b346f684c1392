"""Libraries that only some transforms need: loaded when such a transform is used."""

from __future__ import annotations

import importlib
from importlib.metadata import PackageNotFoundError, version
from types import ModuleType

from penstock.errors import ConfigError

_INSTALL = 'pip install "penstock[rules]"'


def load(module: str, transform: str) -> ModuleType:
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        missing = (error.name or module).partition(".")[0]
        raise ConfigError(f'transform "{transform}" needs "{missing}"; {_INSTALL}') from error


def check_version(package: str, wanted: str, transform: str) -> None:
    """For libraries whose data become part of what is written: another version would write something else."""
    try:
        found = version(package)
    except PackageNotFoundError as error:
        raise ConfigError(f'transform "{transform}" needs "{package}"; {_INSTALL}') from error
    if found != wanted:
        raise ConfigError(
            f'transform "{transform}" draws from the lists of {package} {wanted}, and {found} is installed: '
            f"it would draw other values than before; {_INSTALL}"
        )
