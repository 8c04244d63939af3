"""Writes base/prometheusrule.yaml, and the chart's rules, from deploy/prometheus, so that there is one place for them.

python deploy/kubernetes/prometheusrule.py [OUT [OUT_OF_THE_CHART]]
"""

from __future__ import annotations

import sys
import textwrap
from pathlib import Path

HERE = Path(__file__).resolve().parent
RULES = HERE.parent / "prometheus"
CHART = HERE.parent / "helm" / "streameval" / "files" / "rules.yaml"
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
    return HEAD + "".join(f"  {line}" if line.strip() else line for line in groups().splitlines(keepends=True))


def groups() -> str:
    """The groups of all rule files, one after the other."""
    texts = [path.read_text(encoding="utf-8") for path in sorted(RULES.glob("*.rules.yml"))]
    return "".join(text.split("\ngroups:\n", 1)[1] for text in texts)


def main(arguments: list[str]) -> None:
    """Writes both."""
    out = Path(arguments[0]) if arguments else HERE / "base" / "prometheusrule.yaml"
    chart = Path(arguments[1]) if len(arguments) > 1 else None if arguments else CHART
    out.write_text(manifest(), encoding="utf-8")
    if chart is not None:
        head = "# Made by deploy/kubernetes/prometheusrule.py from deploy/prometheus/*.rules.yml.\n"
        chart.write_text(head + textwrap.dedent(groups()), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
