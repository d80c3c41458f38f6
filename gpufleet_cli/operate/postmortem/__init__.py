"""The write-up of an incident: a triage and what it was made of become one frozen `Postmortem`."""
