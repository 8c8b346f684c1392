"""What driver and executors do for a batch, without Spark."""
