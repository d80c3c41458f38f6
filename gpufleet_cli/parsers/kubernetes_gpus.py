"""How many GPUs a container asks for, by the resource names of the vendors' device plugins.

>>> gpus_of({"resources": {"limits": {"nvidia.com/gpu": "8", "cpu": "96"}}})
8
"""

from __future__ import annotations

import re

from gpufleet_cli.parsers import json_documents as js

GPU_RESOURCE = re.compile(
    r"(?:nvidia\.com/(?:gpu|mig-)|amd\.com/gpu|[\w.-]{1,100}/(?:v?gpu\b|gpu\.)|gpu\.intel\.com/|habana\.ai/)"
)


def gpus_of(container: object) -> int | None:
    """How many GPUs a container asks for; limits and requests are equal for devices."""
    total = 0
    for kind in ("limits", "requests"):
        resources = js.mapping(js.at(container, "resources", kind))
        counts = [js.integer(v) or 0 for k, v in resources.items() if GPU_RESOURCE.match(str(k))]
        total = max(total, sum(n for n in counts if 0 < n <= 1024))
    return total or None
