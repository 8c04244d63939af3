"""Writes base/prometheusrule.yaml from the rules in deploy/prometheus, so that there is one place for them.

python deploy/kubernetes/prometheusrule.py [OUT]
"""

from __future__ import annotations

import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
RULES = HERE.parent / "prometheus"
HEAD = """\
# Made by deploy/kubernetes/prometheusrule.py from deploy/prometheus/*.rules.yml: change those, and make it again.
apiVersion: monitoring.coreos.com/v1
kind: PrometheusRule
metadata:
  name: streameval
  labels: { release: prometheus }
spec:
  groups:
"""


def manifest() -> str:
    """The PrometheusRule: the groups of all rule files, as they are written there."""
    parts = [HEAD]
    for path in sorted(RULES.glob("*.rules.yml")):
        _, groups = path.read_text(encoding="utf-8").split("\ngroups:\n", 1)
        parts += [f"  {line}" if line.strip() else line for line in groups.splitlines(keepends=True)]
    return "".join(parts)


if __name__ == "__main__":
    out = Path(sys.argv[1]) if len(sys.argv) > 1 else HERE / "base" / "prometheusrule.yaml"
    out.write_text(manifest(), encoding="utf-8")
