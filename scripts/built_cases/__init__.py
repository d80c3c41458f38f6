"""The parts of make_built_cases.py: one module a family of incidents."""
