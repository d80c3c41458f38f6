"""What the installed commands `gpufleet` and `kubectl-gpufleet` start. Nothing is imported above."""


def main() -> int:
    """Run the program; the answer is its exit status."""
    import os
    import sys

    if "_GPUFLEET_COMPLETE" in os.environ:  # the TAB key: names come from a file
        from gpufleet_cli.completion import answer

        answered = answer(dict(os.environ))
        if answered is not None:
            return answered
    if not sys.warnoptions:  # Python's own notes are not for the person who reads a report
        import warnings

        warnings.simplefilter("ignore")
    try:
        from gpufleet_cli.cli import main as run

        return run()
    except KeyboardInterrupt:  # while modules were loading: the program itself answers later ones
        os.write(2, b"gpufleet: interrupted\n")
        return 130


def complete_for_kubectl() -> int:
    """`kubectl_complete-gpufleet`: kubectl runs it for `kubectl gpufleet ... <TAB>`."""
    import os
    import sys

    from gpufleet_cli.completion import for_kubectl

    return for_kubectl(sys.argv[1:], dict(os.environ))
