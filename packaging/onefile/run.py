"""What the single file starts in its own interpreter: the first argument is the name it was called by."""

import sys

if __name__ == "__main__":
    sys.argv = sys.argv[1:]
    from gpufleet_cli import entry

    for_kubectl = sys.argv[0].rpartition("/")[2] == "kubectl_complete-gpufleet"
    sys.exit(entry.complete_for_kubectl() if for_kubectl else entry.main())
