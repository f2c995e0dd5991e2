"""Observers of session events."""
