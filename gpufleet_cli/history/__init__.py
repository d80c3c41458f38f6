"""Past incidents, from a file under the user's state folder that triage adds to and never reads."""
