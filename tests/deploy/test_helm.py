"""deploy/helm: linted and rendered by Helm itself, valid by Kubernetes' schemas, and the same workload as Kustomize's base."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.deploy.manifests import DEPLOY, KUBERNETES, base, container, only
from tests.deploy.test_kubernetes import OPERATOR, agrees, settings, validated

CHART = DEPLOY / "helm" / "streameval"
RELEASE = "streameval"
SECOND = """
image: { repository: registry.example/streameval, tag: 9.9.9, pullPolicy: Always, pullSecrets: [{ name: registry }] }
replicas: 3
storage: { size: 50Gi, className: fast }
resources: { requests: { cpu: "2", memory: 8Gi } }
nodeSelector: { disk: ssd }
tolerations: [{ key: dedicated, operator: Exists }]
env: [{ name: STREAMEVAL_KAFKA__CLIENT_OPTIONS__sasl.password, valueFrom: { secretKeyRef: { name: kafka, key: password } } }]
networkPolicy: { enabled: true, monitoringNamespace: observability, kafkaPorts: [19092] }
monitor: { labels: { prometheus: main } }
"""


def helm(*arguments: str) -> str:
    """What helm prints; skips without it."""
    found = shutil.which("helm") or shutil.which("helm", path=str(Path.home() / ".cache" / "streameval" / "bin"))
    if found is None:
        if os.environ.get("STREAMEVAL_REQUIRE_ALL"):
            pytest.fail("helm is not installed")
        pytest.skip("install helm 3: the chart is linted and rendered by it")
    done = subprocess.run([found, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@cache
def rendered(values: str = "", release: str = RELEASE) -> tuple[dict[str, Any], ...]:
    """Every object of a release with these values."""
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
        file.write(values)
        file.flush()
        text = helm("template", release, str(CHART), "--kube-version", "1.32", "--values", file.name)
    return tuple(one for one in yaml.safe_load_all(text) if one)


@pytest.mark.parametrize("values", ["", SECOND], ids=["defaults", "other values"])
def test_helm_lints_it_and_kubernetes_takes_every_object(values: str, tmp_path: Path) -> None:
    given = tmp_path / "values.yaml"
    given.write_text(values)
    assert "0 chart(s) failed" in helm("lint", "--strict", str(CHART), "--values", str(given))
    built = tmp_path / "built.yaml"
    built.write_text(yaml.safe_dump_all([o for o in rendered(values) if o["kind"] not in OPERATOR]))
    validated(built)


def same(one: Any) -> Any:
    """Without what is the chart's own: its labels, a release's name, the image and the checksum that rolls the pods."""
    if isinstance(one, dict):
        labels = {"app.kubernetes.io/instance", "app.kubernetes.io/part-of", "app.kubernetes.io/version"}
        own = labels | {"app.kubernetes.io/managed-by", "helm.sh/chart", "image", "imagePullPolicy"}
        kept = {key: same(value) for key, value in one.items() if key not in own}
        if kept.get("annotations", {}).keys() == {"checksum/settings"}:
            del kept["annotations"]
        return {key: value for key, value in kept.items() if not (key == "labels" and value == {})}
    return [same(value) for value in one] if isinstance(one, list) else one


@pytest.mark.parametrize("kind", sorted({one["kind"] for one in base()}))
def test_the_defaults_make_what_kustomize_s_base_makes(kind: str) -> None:
    ours, made = same(only(base(), kind)), same(only(rendered(), kind))
    assert made["metadata"]["labels"].pop("app.kubernetes.io/name") == "streameval"
    assert same(made) == ours


def test_the_defaults_settings_are_those_of_the_base_and_fit_the_pod(tmp_path: Path) -> None:
    (config,) = [one for one in rendered() if one["kind"] == "ConfigMap"]
    workload = only(rendered(), "StatefulSet")
    taken = settings(config["data"]["streameval.toml"], container(workload), tmp_path)
    agrees(taken, workload)
    ours = (KUBERNETES / "base" / "streameval.toml").read_text()
    assert taken == settings(ours, container(workload), tmp_path)
    assert {one["kind"] for one in rendered()} == {one["kind"] for one in base()} | {"ConfigMap"}


def test_every_value_reaches_its_place() -> None:
    objects = rendered(SECOND, "ads")
    workload = only(objects, "StatefulSet", "ads-streameval")
    pod, monitor = workload["spec"]["template"]["spec"], container(workload)
    assert monitor["image"] == "registry.example/streameval:9.9.9"
    assert monitor["imagePullPolicy"] == "Always"
    assert pod["imagePullSecrets"] == [{"name": "registry"}]
    assert workload["spec"]["replicas"] == 3
    assert monitor["resources"]["requests"]["memory"] == "8Gi"
    assert pod["nodeSelector"] == {"disk": "ssd"}
    assert pod["tolerations"] == [{"key": "dedicated", "operator": "Exists"}]
    assert monitor["env"][-1]["valueFrom"]["secretKeyRef"] == {"name": "kafka", "key": "password"}
    (claim,) = workload["spec"]["volumeClaimTemplates"]
    assert claim["spec"]["storageClassName"] == "fast"
    assert claim["spec"]["resources"]["requests"]["storage"] == "50Gi"
    policy = only(objects, "NetworkPolicy", "ads-streameval")["spec"]
    assert policy["egress"][1]["ports"] == [{"protocol": "TCP", "port": 19092}]
    assert "observability" in str(policy["ingress"])
    assert only(objects, "PodMonitor", "ads-streameval")["metadata"]["labels"]["prometheus"] == "main"


def test_two_releases_in_one_namespace_do_not_select_each_other_s_pods() -> None:
    ones, others = rendered(SECOND, "ads"), rendered(SECOND, "video")
    assert not {one["metadata"]["name"] for one in ones} & {one["metadata"]["name"] for one in others}
    of_pods = [only(o, "StatefulSet", n)["spec"]["template"]["metadata"]["labels"] for o, n in ((ones, "ads-streameval"), (others, "video-streameval"))]  # fmt: skip
    selector = only(ones, "Service", "ads-streameval")["spec"]["selector"]
    assert selector.items() <= of_pods[0].items()
    assert not selector.items() <= of_pods[1].items()


def test_what_is_switched_off_is_not_there_and_new_settings_roll_the_pods() -> None:
    plain = rendered("monitor: { enabled: false }\nnetworkPolicy: { enabled: false }\n")
    assert not {one["kind"] for one in plain} & {*OPERATOR, "NetworkPolicy"}
    changed = rendered('settings: |\n  [slices]\n  dimensions = ["device"]\n')
    sums = [only(o, "StatefulSet")["spec"]["template"]["metadata"]["annotations"] for o in (plain, changed)]
    assert sums[0] != sums[1]


def test_the_chart_s_rules_are_those_of_prometheus(tmp_path: Path) -> None:
    again = tmp_path / "rules.yaml"
    script = str(KUBERNETES / "prometheusrule.py")
    subprocess.run([sys.executable, script, str(tmp_path / "manifest.yaml"), str(again)], check=True)
    assert again.read_text() == (CHART / "files" / "rules.yaml").read_text(), "make it again"
    groups = only(base(), "PrometheusRule")["spec"]["groups"]
    assert yaml.safe_load(again.read_text()) == groups, "Helm renders them as they are, also where they hold {{ }}"


def test_the_chart_is_of_the_program_s_version() -> None:
    from streameval import __version__

    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert chart["appVersion"] == chart["version"] == __version__
