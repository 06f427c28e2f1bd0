"""Lazy scores: what a head says, described and not stored."""
