"""What happens to changes between source and sink: filters, transforms of columns, routing."""
