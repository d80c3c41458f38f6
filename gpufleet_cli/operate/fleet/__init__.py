"""Triage of what is too large for one machine: shards, summarised where the data is, merged, decided here."""
