"""What the pods run and know: code fetched at start, secrets in clear, images, users."""

from __future__ import annotations

import re
from collections.abc import Iterator

from gpufleet_cli.operate.preflight.containers import container_of
from gpufleet_cli.operate.preflight.model import Container, Hit, Role, Rule, Spec
from gpufleet_cli.operate.preflight.shell import is_open
from gpufleet_cli.operate.preflight.train_job import is_known
from gpufleet_cli.parsers import json_documents as js
from gpufleet_cli.redact import redact

_PLACEHOLDER = re.compile(
    r"<.*>|\{\{.*\}\}|x{3,}|\*{3,}|.*(?:your|replace|change[_-]?me|example|placeholder|todo|dummy).*",
    re.IGNORECASE,
)
_FETCH = re.compile(
    r"\bgit\s+(?:clone|pull|fetch)\b|\b(?:curl|wget)\b[^;&|\n]{0,300}\.(?:py|sh|tar\.gz|tgz|zip|whl)\b|\bpip3?\s+install\b[^;&\n]{0,300}\bgit\+"
)
_PINNED = re.compile(r"\b[0-9a-f]{40}\b|@[0-9a-f]{40}\b|sha256sum\s+-c")
_MOVING = re.compile(
    r"\b(?:s3|gs|gcs|az|abfss?|hf|oci|https?)://[^\s\"',;@]{1,200}?[/_-](?:latest|current|head|main|nightly)(?=[/\s\"',;.]|$)[^\s\"',;]{0,80}"
)
_PIP = re.compile(r"\bpip3?\s+install\b[^;&|\n]{0,400}")


def _secrets(spec: Spec) -> Iterator[Hit]:
    for role in spec.roles:
        for one in role.containers:
            for index, entry in enumerate(js.items(one.raw.get("env"))):
                name, value = js.text_at(entry, "name"), js.text_at(entry, "value")
                if name and value and _is_secret(name, value):
                    yield _in_clear(spec, role, one, name, index)
            if redact(one.text) != one.text:
                yield role.hit(
                    "a secret stands in clear in the command", "a Secret, by secretKeyRef",
                    "args", inside=one, severity="info" if spec.is_serving else None,
                )  # fmt: skip


def _in_clear(spec: Spec, role: Role, one: Container, name: str, index: int) -> Hit:
    return role.hit(
        f"{name} is a secret in clear in the environment",
        "valueFrom.secretKeyRef", "env", index, inside=one,
        severity="info" if spec.is_serving else None,
    )  # fmt: skip


def _is_secret(name: str, value: str) -> bool:
    if is_open(value) or value.startswith("/") or len(value) < 6 or _PLACEHOLDER.fullmatch(value):
        return False
    shown = f"{name}={value}"
    return redact(shown) != shown


def _started(spec: Spec) -> Iterator[tuple[Role, Container]]:
    """Every container of a rank's pod, those that run before it too."""
    for role in spec.ranks:
        yield from ((role, one) for one in role.containers)
        for index, raw in enumerate(js.items(role.pod.get("initContainers"))):
            path = (*role.path, "spec", "initContainers", index)
            yield role, container_of(raw, path, {})


def _fetched(spec: Spec) -> Iterator[Hit]:
    for role, one in _started(spec) if spec.is_gang else ():
        found = _FETCH.search(one.text)
        if found is not None and not _PINNED.search(one.text):
            yield role.hit(
                f"each rank fetches its code when it starts ({' '.join(found[0].split())[:60]})",
                "the code in the image, or a commit's full hash", inside=one,
            )  # fmt: skip
        else:
            yield from _installs(role, one)


def _installs(role: Role, one: Container) -> Iterator[Hit]:
    for found in _PIP.finditer(one.text):
        if "==" not in found[0] and "--require-hashes" not in found[0] and " -e " not in found[0]:
            yield role.hit(
                "each rank installs packages when it starts, without versions",
                "packages in the image, or == behind each", inside=one, severity="info",
            )  # fmt: skip
            return


def _tag(spec: Spec) -> Iterator[Hit]:
    for role in spec.ranks if spec.is_training else ():
        if role.main.image and "@sha256:" not in role.main.image and not is_open(role.main.image):
            yield role.hit(
                f"the image goes by its tag: {role.main.image}",
                "a digest (@sha256:...): a tag that moves gives later pods another build",
                "image", inside=role.main,
            )  # fmt: skip


def _data(spec: Spec) -> Iterator[Hit]:
    for role in spec.ranks if spec.is_training else ():
        values = [value for value in role.main.env.values() if value]
        found = next((m for text in (role.main.text, *values) if (m := _MOVING.search(text))), None)
        if found is not None:
            yield role.hit(
                f"data or weights go by a name that moves: {found[0][:80]}",
                "a version, date or revision in its path", inside=role.main,
            )  # fmt: skip


def _root(spec: Spec) -> Iterator[Hit]:
    for role in spec.ranks if spec.is_training else ():
        user = js.at(role.main.raw, "securityContext", "runAsNonRoot")
        if user is not True and js.at(role.pod, "securityContext", "runAsNonRoot") is not True:
            yield role.hit(
                "the ranks may run as root", "securityContext.runAsNonRoot: true",
                "spec", "securityContext",
            )  # fmt: skip


def _runtime(spec: Spec) -> Iterator[Hit]:
    if spec.kind == "TrainJob" and not is_known(spec.document, spec.beside):
        yield Hit(
            message=f"the runtime {js.text_at(spec.raw, 'spec', 'runtimeRef', 'name')} was not given: its pod template was not looked at",
            fix="give its ClusterTrainingRuntime or TrainingRuntime as well",
            path=("spec", "runtimeRef"),
        )


RULES = (
    Rule(
        id="secret-in-env", severity="warning", check=_secrets,
        looks_for="a token, key or password in clear in environment or command (information for a server)",
        why="it is in every bundle, log and `kubectl describe` of the next incident",
    ),
    Rule(
        id="code-fetched", severity="warning", check=_fetched,
        looks_for="`git clone`, `curl` or `wget` of code at start without a commit's hash; `pip install` without versions (information)",
        why="ranks that start at different times may run different code",
    ),
    Rule(
        id="runtime-not-given", severity="info", check=_runtime,
        looks_for="a TrainJob whose runtime is not among the documents",
        why="most of what counts stands in the runtime",
    ),
    Rule(
        id="image-tag", severity="info", check=_tag,
        looks_for="an image by tag",
        why="a tag that moves gives later pods another build",
    ),
    Rule(
        id="data-moves", severity="info", check=_data,
        looks_for="data or weights at an address that says `latest`, `current`, `head`, `main` or `nightly`",
        why="what the run after the incident reads is not what this one read: a restart is no longer the same job",
    ),
    Rule(
        id="may-be-root", severity="info", check=_root,
        looks_for="ranks without `runAsNonRoot`",
        why="a rank that is root can harm its node and hide it",
    ),
)  # fmt: skip
