"""What Spark needs before it starts: Java, an archive of its classes, Python workers."""
