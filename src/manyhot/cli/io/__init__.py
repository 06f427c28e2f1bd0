"""Shared parts of the commands: flags, settings files, console, progress, reading."""
