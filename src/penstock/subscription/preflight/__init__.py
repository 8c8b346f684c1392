"""Checks of the source that run before anything is changed."""
