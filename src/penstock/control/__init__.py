"""The verbs that the command line and the HTTP API share."""
