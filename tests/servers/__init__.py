"""Real servers for the tests, on loopback: a Kubernetes cluster, metrics and log stores, a proxy that makes faults.

`fixtures.py` holds what a test asks for; README's section on tests says how to get the programs.
"""
