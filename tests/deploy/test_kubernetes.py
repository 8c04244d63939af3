"""deploy/kubernetes: valid by the schemas, and in agreement with the settings, the image and the rules."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from starlette.routing import Route

from streameval.results.publish import Publisher
from streameval.results.snapshot import empty_snapshot
from streameval.server.http.app import create_app
from streameval.settings.server import Server
from streameval.settings.toml import load
from streameval.settings.tree import Settings
from tests.deploy.manifests import (
    DEPLOY,
    KUBERNETES,
    base,
    container,
    demo_settings,
    kustomization,
    only,
    overlay,
    services,
    tool,
)

BASE = base()
WORKLOAD = only(BASE, "StatefulSet")
POD = WORKLOAD["spec"]["template"]["spec"]
MONITOR = container(WORKLOAD)
OPERATOR = {"PodMonitor", "PrometheusRule"}  # of the Prometheus Operator: no schema of Kubernetes' own
WHOLE = [  # files of the overlays that are objects by themselves; the others are patches
    KUBERNETES / "overlays" / "demo" / name for name in ("kafka.yaml", "traffic.yaml")
]
overlays = pytest.mark.parametrize("name", ["demo", "prod"])


def validated(path: Path) -> None:
    """Fails unless Kubernetes' own schemas take every object of this file; those of the operator have none."""
    command = [tool("kubernetes-validate"), "-k", "1.32", "--strict", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    said = (done.stdout + done.stderr).splitlines()
    assert done.returncode == 0, said
    odd = [line for line in said if " passed " not in line and not any(f"kind {kind} " in line for kind in OPERATOR)]
    assert odd == []
    assert any(" passed " in line for line in said) or yaml.safe_load(path.read_text())["kind"] in OPERATOR


def environment(monitor: dict[str, Any], pod_name: str) -> dict[str, str]:
    """The environment of a container, as the kubelet makes it for a pod of this name."""
    made = {}
    for one in monitor.get("env", []):
        made[one["name"]] = pod_name if "valueFrom" in one else one["value"].replace("$(POD_NAME)", pod_name)
    return made


def settings(toml: str, monitor: dict[str, Any], folder: Path, pod_name: str = "streameval-0") -> Settings:
    """What the pod's program makes of its file and its environment."""
    path = folder / "streameval.toml"
    path.write_text(toml)
    return load(path, environment(monitor, pod_name))


@pytest.mark.parametrize("path", [*sorted((KUBERNETES / "base").glob("*.yaml")), *WHOLE], ids=lambda path: path.stem)
def test_an_object_is_valid(path: Path) -> None:
    if path.name != "kustomization.yaml":
        validated(path)


def test_the_base_leaves_no_file_out() -> None:
    assert {p.name for p in (KUBERNETES / "base").glob("*.yaml")} == {
        *kustomization("base")["resources"],
        "kustomization.yaml",
    }


@overlays
def test_an_overlay_is_valid_and_what_it_names_exists(name: str, tmp_path: Path) -> None:
    objects = overlay(name)
    path = tmp_path / "built.yaml"
    path.write_text(yaml.safe_dump_all([o for o in objects if o["kind"] not in OPERATOR]))
    validated(path)
    there = {(o["kind"], o["metadata"]["name"]) for o in objects}
    for workload in (o for o in objects if o["kind"] in {"StatefulSet", "Deployment"}):
        for volume in workload["spec"]["template"]["spec"].get("volumes", []):
            if "configMap" in volume:
                assert ("ConfigMap", volume["configMap"]["name"]) in there
            if "secret" in volume and name == "demo":  # in production it is made by hand
                assert ("Secret", volume["secret"]["secretName"]) in there
        for one in workload["spec"]["template"]["spec"]["containers"]:
            assert re.search(r":\d+\.\d+\.\d+$", one["image"]), "pinned"


@overlays
def test_an_overlay_s_settings_are_taken_and_its_ports_and_folders_agree(name: str, tmp_path: Path) -> None:
    objects = overlay(name)
    workload = only(objects, "StatefulSet")
    pod, monitor = workload["spec"]["template"]["spec"], container(workload)
    (config,) = [v["configMap"]["name"] for v in pod["volumes"] if "configMap" in v]
    toml = only(objects, "ConfigMap", config)["data"]["streameval.toml"]
    agrees(settings(toml, monitor, tmp_path), workload)
    servers = settings(toml, monitor, tmp_path).kafka.bootstrap_servers
    allowed = {p["port"] for rule in only(objects, "NetworkPolicy")["spec"]["egress"] for p in rule["ports"]}
    assert {int(server.rpartition(":")[2]) for server in servers.split(",")} <= allowed, (
        "the network policy shuts it off"
    )


def agrees(taken: Settings, workload: dict[str, Any]) -> None:
    """These settings fit the workload that runs them."""
    pod, monitor = workload["spec"]["template"]["spec"], container(workload)
    assert [p["containerPort"] for p in monitor["ports"]] == [taken.server.port]
    assert taken.server.host == "0.0.0.0"
    mounted = {m["mountPath"]: m["name"] for m in monitor["volumeMounts"]}
    claims = {c["metadata"]["name"] for c in workload["spec"]["volumeClaimTemplates"]}
    assert mounted[taken.store.path] in claims
    assert str(Path(taken.server.token_file).parent) in mounted
    assert pod["terminationGracePeriodSeconds"] * 1000 > taken.store.drain_timeout
    assert set(mounted.values()) == claims | {v["name"] for v in pod["volumes"]}


def test_the_base_s_settings_are_taken_and_each_pod_is_a_member_of_its_own(tmp_path: Path) -> None:
    toml = (KUBERNETES / "base" / "streameval.toml").read_text()
    agrees(settings(toml, MONITOR, tmp_path), WORKLOAD)
    members = [settings(toml, MONITOR, tmp_path, f"streameval-{n}").kafka.client_options for n in range(2)]
    assert [m["group.instance.id"] for m in members] == ["streameval-0", "streameval-1"]
    assert all(m["session.timeout.ms"] == 300_000 for m in members), "what the file says beside it stays"


def test_kubernetes_puts_nothing_else_into_the_environment() -> None:
    """A Service of this name would set STREAMEVAL_SERVICE_HOST, which the settings refuse."""
    assert POD["enableServiceLinks"] is False
    assert only(BASE, "Service")["metadata"]["name"] == "streameval"


def test_the_pod_is_hardened() -> None:
    secure = POD["securityContext"]
    (user,) = re.findall(r"^USER (\d+):", (DEPLOY / "docker" / "Dockerfile").read_text(), re.MULTILINE)
    assert secure["runAsNonRoot"] is True
    assert secure["runAsUser"] == secure["fsGroup"] == int(user)
    assert secure["seccompProfile"] == {"type": "RuntimeDefault"}
    assert POD["automountServiceAccountToken"] is False
    assert MONITOR["securityContext"] == {
        "allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]},
    }  # fmt: skip
    made = environment(MONITOR, "streameval-0")
    assert made["NUMBA_CACHE_DIR"].startswith("/var/lib/streameval/"), "the root cannot be written"
    assert MONITOR["resources"]["requests"].keys() == {"cpu", "memory"}
    assert "memory" in MONITOR["resources"]["limits"]


def test_the_probes_ask_for_what_the_server_has() -> None:
    app = create_app(Publisher(empty_snapshot(0.0)), Server(), version="0")
    routes = set(app.openapi()["paths"]) | {route.path for route in app.routes if isinstance(route, Route)}
    probes = {name: MONITOR[f"{name}Probe"]["httpGet"] for name in ("startup", "liveness", "readiness")}
    assert {name: p["path"] for name, p in probes.items()} == {
        "startup": "/livez", "liveness": "/livez", "readiness": "/readyz",
    }  # fmt: skip
    assert {p["path"] for p in probes.values()} | {
        only(BASE, "PodMonitor")["spec"]["podMetricsEndpoints"][0]["path"]
    } <= routes
    names = {p["name"] for p in MONITOR["ports"]}
    assert {p["port"] for p in probes.values()} <= names
    assert {e["port"] for e in only(BASE, "PodMonitor")["spec"]["podMetricsEndpoints"]} <= names
    assert {p["targetPort"] for p in only(BASE, "Service")["spec"]["ports"]} <= names


def test_everything_selects_the_pod_and_the_job_is_what_the_rules_ask_for() -> None:
    labels = WORKLOAD["spec"]["template"]["metadata"]["labels"]
    for kind, path in {
        "StatefulSet": ("selector", "matchLabels"),
        "Service": ("selector",),
        "PodDisruptionBudget": ("selector", "matchLabels"),
        "NetworkPolicy": ("podSelector", "matchLabels"),
        "PodMonitor": ("selector", "matchLabels"),
    }.items():
        found = only(BASE, kind)["spec"]
        for step in path:
            found = found[step]
        assert found == labels, kind
    assert WORKLOAD["spec"]["serviceName"] == only(BASE, "Service")["metadata"]["name"]
    (scrape,) = yaml.safe_load((DEPLOY / "prometheus" / "prometheus.yml").read_text())["scrape_configs"]
    assert labels[only(BASE, "PodMonitor")["spec"]["jobLabel"]] == scrape["job_name"]


def test_the_rules_are_those_of_prometheus(tmp_path: Path) -> None:
    groups = [
        group
        for path in sorted((DEPLOY / "prometheus").glob("*.rules.yml"))
        for group in yaml.safe_load(path.read_text())["groups"]
    ]
    assert only(BASE, "PrometheusRule")["spec"]["groups"] == groups != []
    again = tmp_path / "again.yaml"
    subprocess.run([sys.executable, str(KUBERNETES / "prometheusrule.py"), str(again)], check=True)
    assert again.read_text() == (KUBERNETES / "base" / "prometheusrule.yaml").read_text(), "make it again"


def test_the_demo_runs_what_docker_compose_runs() -> None:
    broker, traffic = (list(yaml.safe_load_all(path.read_text()))[-1] for path in WHOLE)
    composed = services()
    given = {e["name"]: e["value"] for e in container(broker)["env"]}
    same = {k: str(v) for k, v in composed["kafka"]["environment"].items() if "LISTENER" not in k}
    assert {k: v for k, v in given.items() if "LISTENER" not in k} == same
    assert f"PLAINTEXT://{demo_settings().kafka.bootstrap_servers}" == given["KAFKA_ADVERTISED_LISTENERS"]
    assert container(traffic)["args"] == composed["simulator"]["command"]
    (topics,) = traffic["spec"]["template"]["spec"]["initContainers"]
    assert topics["command"] == composed["topics"]["entrypoint"] + composed["topics"]["command"]
    tags = {i["name"]: i["newTag"] for i in kustomization("overlays/demo")["images"]}
    assert {f"{name}:{tag}" for name, tag in tags.items()} == {composed[n]["image"] for n in ("kafka", "streameval")}
