"""What the single file starts in its own interpreter: the first argument is the name it was called by."""

import os
import sys

RED_HAT = "/etc/pki/tls/certs/ca-bundle.crt"


def trust() -> None:
    """Our OpenSSL looks into /etc/ssl, as Debian, SUSE and their kin have it; Red Hat's bundle lies elsewhere."""
    stated = "SSL_CERT_FILE" in os.environ or "SSL_CERT_DIR" in os.environ
    if not stated and not os.path.exists("/etc/ssl/cert.pem") and os.path.exists(RED_HAT):  # noqa: PTH110  pathlib costs
        os.environ["SSL_CERT_FILE"] = RED_HAT


if __name__ == "__main__":
    sys.argv = sys.argv[1:]
    trust()
    from gpufleet_cli import entry

    for_kubectl = sys.argv[0].rpartition("/")[2] == "kubectl_complete-gpufleet"
    sys.exit(entry.complete_for_kubectl() if for_kubectl else entry.main())
