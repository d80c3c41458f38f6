"""What the installed commands `gpufleet` and `kubectl-gpufleet` start. Nothing is imported above."""


def main() -> int:
    """Run the program; the answer is its exit status."""
    import sys

    if not sys.warnoptions:  # Python's own notes are not for the person who reads a report
        import warnings

        warnings.simplefilter("ignore")
    try:
        from gpufleet_cli.cli import main as run

        return run()
    except KeyboardInterrupt:  # while modules were loading: the program itself answers later ones
        import os

        os.write(2, b"gpufleet: interrupted\n")
        return 130
