"""What the installed commands `gpufleet` and `kubectl-gpufleet` start. Nothing is imported above."""


def main() -> int:
    """Run the program; the answer is its exit status."""
    from gpufleet_cli.cli import main as run

    return run()
