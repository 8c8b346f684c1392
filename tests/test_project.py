"""What holds for the project as a whole: what its files may mention, and which way its imports point."""

from __future__ import annotations

import ast
import functools
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from statistics import median

import pytest

from penstock.sinks.registry import SINKS

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src"
MADE = {".git", ".venv", ".mypy_cache", ".ruff_cache", ".pytest_cache", ".hypothesis", "__pycache__", "build", "dist"}

# Lowest first. A package or module imports what stands before it, never what stands after it. Every one is in this list.
ORDER = [
    "lsn", "errors", "error_policy", "retry", "failpoints", "storage", "process", "findings",
    "changes", "settings", "logs", "pgoutput", "postgres", "testing", "schema", "subscription", "changelog", "state",
    "sinks", "rules", "config", "imports", "capture", "verify", "delivery", "spark", "control", "pipeline", "demo", "cli",
]  # fmt: skip
PLACES = {part: place for place, part in enumerate(ORDER)}
SPARK = PLACES["spark"]
ENTRANCES = {"", "__main__"}  # the package's own face, and ``python -m penstock``


def project_files() -> list[Path]:
    """What is committed; or, in a copy without git's directory, everything that was not made by running something."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False)
    if listed.returncode == 0 and listed.stdout:
        return [file for name in listed.stdout.split("\0") if name and (file := ROOT / name).is_file()]
    return [file for file in ROOT.rglob("*") if file.is_file() and not MADE & set(file.relative_to(ROOT).parts)]


def modules() -> dict[str, Path]:
    found = {}
    for file in sorted(SOURCE.rglob("*.py")):
        parts = file.relative_to(SOURCE).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = file
    return found


MODULES = modules()


def part_of(module: str) -> str:
    """The part of Penstock that a module belongs to: ``penstock.sinks.file.sink`` is in ``sinks``."""
    return f"{module}.".split(".")[1]


@functools.cache
def imports_of(module: str) -> frozenset[str]:
    """Everything that a module imports, also inside functions and for type checking only."""
    return frozenset(_imports_of(module))


def _imports_of(module: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(MODULES[module].read_text("utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            package = module if MODULES[module].name == "__init__.py" else module.rpartition(".")[0]
            base = ".".join(package.split(".")[: len(package.split(".")) + 1 - node.level]) if node.level else ""
            source = ".".join(filter(None, [base, node.module or ""]))
            # `from penstock import errors` imports a module, `from penstock.errors import LogFull` a name in one.
            yield from (name if (name := f"{source}.{alias.name}") in MODULES else source for alias in node.names)


def run_python(script: str) -> str:
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_every_module_has_a_place_in_the_order() -> None:
    assert {part_of(module) for module in MODULES} - ENTRANCES == set(ORDER)


@pytest.mark.parametrize("module", [m for m in MODULES if part_of(m) not in ENTRANCES])
def test_imports_point_one_way(module: str) -> None:
    place = PLACES[part_of(module)]
    upward = {
        imported
        for imported in imports_of(module)
        if imported.startswith("penstock.") and PLACES[part_of(imported)] > place
    }
    assert upward == set()


@pytest.mark.parametrize("module", MODULES)
def test_what_ships_imports_nothing_from_tests_or_bench(module: str) -> None:
    assert {name for name in imports_of(module) if name.split(".")[0] in {"tests", "bench"}} == set()


@pytest.mark.parametrize("module", [m for m in MODULES if PLACES.get(part_of(m), SPARK) < SPARK])
def test_what_is_below_spark_does_not_import_it(module: str) -> None:
    assert {name for name in imports_of(module) if name.split(".")[0] in {"pyspark", "py4j"}} == set()


def sinks() -> dict[str, str]:
    """The package or module of each sink, by the word that a config's ``type`` uses."""
    targets = {kind: target.partition(":")[0] for kind, target in SINKS.items()}
    return {kind: module.removesuffix(".sink") for kind, module in targets.items()}


@pytest.mark.parametrize(("kind", "sink"), sinks().items())
def test_only_the_registry_names_a_sink_outside_of_its_own_package(kind: str, sink: str) -> None:
    own = re.compile(rf"{re.escape(sink)}\b")
    outside = [name for name in MODULES if not own.match(name) and name != "penstock.sinks.registry"]
    assert [name for name in outside if own.search(MODULES[name].read_text("utf-8"))] == []


@pytest.mark.parametrize("kind", sinks())
def test_every_sink_has_an_adapter_for_the_contract_suite(kind: str) -> None:
    assert (ROOT / "tests" / "contracts" / f"{kind}_adapter.py").is_file()


@pytest.mark.process
def test_every_module_imports_without_starting_a_jvm() -> None:
    names = [name for name in MODULES if not name.endswith("__main__")]
    script = f"""
import importlib
import psutil
for name in {names!r}:
    importlib.import_module(name)
print([child.name() for child in psutil.Process().children(recursive=True)])
"""
    assert run_python(script) == "[]"


@pytest.mark.process
def test_the_command_line_starts_without_spark_pandas_and_the_clients_of_sinks() -> None:
    heavy = ["pyspark", "pandas", "duckdb", "penstock.sinks.postgres.sink"]
    script = f"import sys, penstock.cli.main; print([name for name in {heavy!r} if name in sys.modules])"
    assert run_python(script) == "[]"


def test_the_order_sees_real_imports() -> None:
    assert "penstock.errors" in set(imports_of("penstock.error_policy"))
    assert "penstock.sinks.settings" in set(imports_of("penstock.sinks.contract"))


# Spelled in two halves, so that this file does not mention them either.
REGISTRIES = [
    "pypi" + ".org", "python" + "hosted.org", "npmjs" + ".", "maven" + ".org", "maven.apache" + ".org",
    "anaconda" + ".org", "artifact" + "ory", "index" + "-url", "index" + "_url", "docker" + ".io",
]  # fmt: skip
HOME = re.compile(r"(?<![\w.])/(?:home|Users)/\w|(?<![\w.])/ro" + r"ot/\w")


@pytest.mark.parametrize("file", project_files(), ids=lambda file: str(file.relative_to(ROOT)))
def test_no_file_mentions_a_registrys_host_or_somebodys_home(file: Path) -> None:
    text = file.read_bytes().decode("utf-8", "replace")
    assert [host for host in REGISTRIES if host in text.lower()] == []
    assert HOME.findall(text) == []


def test_source_files_are_of_a_size_that_one_can_read() -> None:
    """Files are split by subject: most have 100 to 250 lines, and a few, whose subject is large, up to 500."""
    lengths = {name: len(file.read_text("utf-8").splitlines()) for name, file in MODULES.items()}
    assert {name: length for name, length in lengths.items() if length > 500} == {}
    assert 100 <= median(length for name, length in lengths.items() if MODULES[name].name != "__init__.py") <= 250


def test_the_licence_is_the_one_that_the_package_declares() -> None:
    assert 'license = "Apache-2.0"' in (ROOT / "pyproject.toml").read_text("utf-8")
    licence = (ROOT / "LICENSE").read_text("utf-8")
    assert "Apache License" in licence
    assert "END OF TERMS AND CONDITIONS" in licence
