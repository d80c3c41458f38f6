"""Watching one job: what is read of it, and what is made of that."""
