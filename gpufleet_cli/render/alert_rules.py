"""Alert rules as Prometheus reads them: a rule file, or the operator's PrometheusRule; YAML or JSON.

Texts are Go templates to Prometheus. A rule's own texts are written as such; a user's word in them never is.
"""

from __future__ import annotations

import json
import re
from typing import Any

from gpufleet_cli import __version__
from gpufleet_cli.alert_card import AlertGroup, AlertRule, AlertRules
from gpufleet_cli.plain_text import visible

Json = dict[str, Any]
KINDS = ("rules", "PrometheusRule")
_NOT_IN_NAMES = re.compile(r"[^a-z0-9-]+")


def render_rules(rules: AlertRules, *, kind: str, output: str) -> str:
    """The file; in YAML with a head that says what it was made from."""
    document = rule_file(rules) if kind == "rules" else prometheus_rule(rules)
    if output == "json":
        return json.dumps(document, indent=2, allow_nan=False) + "\n"
    return _head(rules) + _yaml(document)


def rule_file(rules: AlertRules) -> Json:
    """What `rule_files` of Prometheus takes, and vmalert and Mimir's ruler."""
    return {"groups": [_group(one, rules) for one in rules.groups]}


def prometheus_rule(rules: AlertRules) -> Json:
    """The object that Prometheus Operator takes."""
    metadata: Json = {
        "name": _object_name(rules.job),
        "labels": {"app.kubernetes.io/managed-by": "gpufleet"},
        "annotations": {"gpufleet/made-from": _sources(rules)},
    }
    if rules.namespace is not None:
        metadata["namespace"] = rules.namespace
    return {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "PrometheusRule",
        "metadata": metadata,
        "spec": rule_file(rules),
    }


def _object_name(job: str) -> str:
    """A name that the API server takes."""
    plain = _NOT_IN_NAMES.sub("-", job.lower()).strip("-")
    return f"gpufleet-{plain}"[:63].rstrip("-")


def _group(group: AlertGroup, rules: AlertRules) -> Json:
    return {
        "name": group.name,
        "interval": f"{group.interval_s}s",
        "rules": [_rule(one, rules) for one in group.rules],
    }


def _rule(rule: AlertRule, rules: AlertRules) -> Json:
    labels = {"severity": rule.severity, "gpufleet_job": rules.job}
    if rules.namespace is not None:
        labels["gpufleet_namespace"] = rules.namespace
    annotations = {
        "summary": rule.summary,
        "description": rule.description,
        "command": rule.commands[0],
    }
    if len(rule.commands) > 1:
        annotations["more"] = "; ".join(rule.commands[1:])
    if rule.needs:
        annotations["needs"] = (
            f"{' or '.join(rule.needs)}: dcgm-exporter does not export it by default; add it to its counters file"
        )
    annotations["made_from"] = _sources(rules)
    return {
        "alert": rule.name,
        "expr": rule.expr,
        "for": f"{rule.for_s}s",
        "labels": labels | dict(rule.labels),
        "annotations": annotations,
    }


def _sources(rules: AlertRules) -> str:
    """What the rules were made from, as a text without templates."""
    told = "; ".join(f"{one.words} {one.value} ({one.source})" for one in rules.known)
    return visible(told).replace("{{", "{ {").replace("}}", "} }")


def _head(rules: AlertRules) -> str:
    space = f" in {rules.namespace}" if rules.namespace is not None else ""
    lines = [f"Alert rules of {rules.job}{space}, by gpufleet {__version__}. Made from:"]
    lines += [f"  {one.words} {one.value} ({one.source})" for one in rules.known]
    return "".join(f"# {visible(line)}\n" for line in lines)


def _yaml(document: Json) -> str:
    import yaml

    class Dumper(yaml.SafeDumper):
        """Expressions of several lines as they are read."""

    def text(dumper: yaml.SafeDumper, value: str) -> yaml.ScalarNode:
        style = "|" if "\n" in value else None
        return dumper.represent_scalar("tag:yaml.org,2002:str", value, style=style)

    Dumper.add_representer(str, text)
    written: str = yaml.dump(
        document, Dumper=Dumper, sort_keys=False, allow_unicode=False, width=10_000
    )
    return written
