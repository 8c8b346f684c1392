"""Modules of the user's beside the config file: sinks are found there as functions of rules are.

They are looked for behind all other places, so that a file beside the config never takes the place of a library. Processes
that are started from here on (capture, delivery, Spark's workers) look there, too: what they are sent by pickle names
modules before any code of ours could say where those are, so it is a variable of the environment that tells them.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

VARIABLE = "PENSTOCK_MODULES"
PRELOADED = "PENSTOCK_PRELOADED"  # modules, separated by commas, that Spark's workers are forked with


def look_for_modules_in(directory: Path) -> None:
    known = os.environ.get(VARIABLE, "").split(os.pathsep)
    os.environ[VARIABLE] = os.pathsep.join(dict.fromkeys([*filter(None, known), str(directory)]))
    look_for_inherited_modules()


def look_for_inherited_modules() -> None:
    """In a process that was started by one that has read a config."""
    for directory in filter(None, os.environ.get(VARIABLE, "").split(os.pathsep)):
        if directory not in sys.path:
            sys.path.append(directory)
