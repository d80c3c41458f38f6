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

    words = sys.argv[1:]
    answered = for_kubectl(words, dict(os.environ))
    if answered is not None:
        return answered
    # A command or an option: Typer's own answer, in the form that kubectl reads.
    os.environ.update(
        _GPUFLEET_COMPLETE="complete_bash",
        COMP_WORDS=" ".join(["gpufleet", *words]),
        COMP_CWORD=str(len(words)),
    )
    sys.argv = ["gpufleet"]
    try:
        return main()
    finally:  # Typer ends the program itself once it has answered
        sys.stdout.write(":4\n")
