"""Prometheus rules for one job: numbers go in, records of rules come out; nothing here reads or writes."""
