"""What rows and spans share: run folder, checkpoints, processes, progress."""
