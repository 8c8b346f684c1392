"""``type: postgres``: a replica in another Postgres database."""
