"""What the commands share: flags, settings files, console, progress, reading."""
