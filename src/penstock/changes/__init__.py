"""Changes of tables: relations, batches, and what a batch comes to per key."""
