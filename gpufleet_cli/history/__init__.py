"""Past incidents: a small file each, which triage adds to and never reads for a verdict."""
