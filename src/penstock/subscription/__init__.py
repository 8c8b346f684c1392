"""What a pipeline makes on the source: publications, slot, its own tables."""
