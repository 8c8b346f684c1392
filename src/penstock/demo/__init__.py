"""``penstock demo``: a Postgres, a shop, live traffic, a DuckDB mirror, and the proof that both are equal."""

from penstock.demo.show import run_demo

__all__ = ["run_demo"]
