"""Imports under a mixed load, again and again: every round copies all tables while they are written to.

python -m tests.imports.rounds --rounds 20 --seed 1
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

from penstock.settings.sections import SparkSettings
from penstock.spark.session import close_session, open_session
from penstock.testing.embedded_postgres import EmbeddedPostgres
from tests.imports.pipeline_with_imports import PipelineWithImports
from tests.imports.test_imports_under_load import Traffic, copied_again, prepare


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.imports.rounds", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    chosen = parser.parse_args()
    print(f"seed {chosen.seed}, {chosen.rounds} rounds", flush=True)
    spark = open_session(SparkSettings(master="local[4]"))
    begun = time.monotonic()
    try:
        with EmbeddedPostgres(version=18) as server, tempfile.TemporaryDirectory() as directory:
            prepare(server.url)
            traffic = Traffic(server.url, chosen.seed)
            pipeline = PipelineWithImports(server.url, Path(directory, "pipeline"))
            with pipeline.running(spark):
                pipeline.await_streaming()
                for number in range(1, chosen.rounds + 1):
                    wrong = copied_again(pipeline, traffic)
                    print(
                        f"round {number}: {'; '.join(wrong) or 'equal'} ({time.monotonic() - begun:.0f} s)", flush=True
                    )
                    if wrong:
                        return 1
    finally:
        close_session(spark)
    return 0


if __name__ == "__main__":
    sys.exit(main())
