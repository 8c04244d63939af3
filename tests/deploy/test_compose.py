"""docker-compose.yml: valid, pinned, on loopback, bounded; and what it names exists and agrees with everything else."""

from __future__ import annotations

import re
import subprocess
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from streameval.commands.cli import cli
from tests.deploy.manifests import COMPOSE, DEPLOY, ROOT, compose, demo_settings, here, mounts, services, tool

SERVICES = services()
OURS = {name: s for name, s in SERVICES.items() if "build" in s}
each_service = pytest.mark.parametrize("name", SERVICES)


def ports(name: str) -> dict[int, int]:
    """Published port -> the container's, of a service."""
    found = [re.fullmatch(r"127\.0\.0\.1:(\d+):(\d+)", p) for p in SERVICES[name].get("ports", [])]
    assert all(found), f"{name}: on 127.0.0.1 only"
    return {int(m[1]): int(m[2]) for m in found if m}


def yaml_of(container_path: str, name: str) -> Any:
    """A mounted YAML file, by the path that the service knows it by."""
    place = here(container_path, SERVICES[name])
    assert place is not None, container_path
    return yaml.safe_load(place.read_text())


def option(name: str, flag: str) -> str:
    """What a service's command line gives for `--flag=value`."""
    (value,) = [part.split("=", 1)[1] for part in SERVICES[name]["command"] if part.startswith(flag + "=")]
    return str(value)


def test_it_is_a_compose_file() -> None:
    command = [tool("check-jsonschema"), "--builtin-schema", "vendor.compose-spec", str(COMPOSE)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@each_service
def test_a_service_is_pinned_bounded_and_without_privileges(name: str) -> None:
    service = SERVICES[name]
    tag = service["image"].rpartition(":")[2]
    assert re.fullmatch(r"v?\d+\.\d+\.\d+", tag), service["image"]
    assert service["mem_limit"]
    assert service["cpus"]
    assert service["logging"]["options"].keys() == {"max-size", "max-file"}
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert service.get("read_only") or name == "kafka", "only Kafka writes its configuration at the start"
    assert not service.get("privileged")
    ports(name)


def test_no_port_is_published_twice() -> None:
    published = [port for name in SERVICES for port in ports(name)]
    assert len(published) == len(set(published)) == 6


@each_service
def test_what_a_service_waits_for_can_come(name: str) -> None:
    for other, how in SERVICES[name].get("depends_on", {}).items():
        disabled = SERVICES[other].get("healthcheck", {}).get("disable")
        if how["condition"] == "service_healthy":
            assert "healthcheck" in SERVICES[other] or other in OURS, f"{other} has no check"
            assert not disabled, other
        else:
            assert how["condition"] == "service_completed_successfully"
            assert SERVICES[other]["restart"] == "no", f"{other} must end"


@each_service
def test_what_is_mounted_exists_and_every_volume_is_declared(name: str) -> None:
    for place in mounts(SERVICES[name]).values():
        assert place.exists(), f"{place.relative_to(ROOT)}"
    declared = compose()["volumes"]
    for volume in SERVICES[name].get("volumes", []):
        source, _, *mode = volume.split(":")
        assert mode == ["ro"] if source.startswith(".") else source in declared, volume


def test_the_image_is_ours_and_its_tag_is_the_version() -> None:
    (version,) = re.findall(r'^version = "(.+)"', (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    for service in OURS.values():
        assert service["image"] == f"streameval:{version}"
        assert (ROOT / service["build"]["context"] / service["build"]["dockerfile"]).exists()


@pytest.mark.parametrize("name", [name for name in OURS if "entrypoint" not in OURS[name]])
def test_a_command_line_of_ours_is_understood(name: str) -> None:
    words = list(SERVICES[name]["command"])
    place = words.index("-c") + 1
    words[place] = str(here(words[place], SERVICES[name]))
    command: Any = cli
    while hasattr(command, "commands"):
        command = command.commands[words.pop(0)]
    context = command.make_context(None, words)
    assert context.params["config_path"].exists()
    assert not context.args


def test_the_demo_s_settings_are_taken() -> None:
    place = DEPLOY / "demo" / "streameval.toml"
    done = CliRunner().invoke(cli, ["config", "check", "-c", str(place)])
    assert done.output == "the settings are valid\n"


def test_everybody_means_the_same_kafka() -> None:
    environment = SERVICES["kafka"]["environment"]
    advertised = dict(part.split("://") for part in environment["KAFKA_ADVERTISED_LISTENERS"].split(","))
    listeners = dict(part.split("://") for part in environment["KAFKA_LISTENERS"].split(","))
    assert demo_settings().kafka.bootstrap_servers == advertised["PLAINTEXT"] == "kafka" + listeners["PLAINTEXT"]
    (published,) = ports("kafka").items()
    assert advertised["PLAINTEXT_HOST"] == f"127.0.0.1:{published[0]}"
    assert listeners["PLAINTEXT_HOST"] == f":{published[1]}"
    names = set(environment["KAFKA_LISTENER_SECURITY_PROTOCOL_MAP"].replace(":PLAINTEXT", "").split(","))
    assert names == listeners.keys()
    number, controller = environment["KAFKA_CONTROLLER_QUORUM_VOTERS"].split("@")
    assert (number, controller) == (str(environment["KAFKA_NODE_ID"]), listeners["CONTROLLER"])
    assert f"{environment['KAFKA_LOG_DIRS']}" in [v.split(":")[1] for v in SERVICES["kafka"]["volumes"]]


def test_the_broker_is_the_one_that_the_tests_run() -> None:
    (tested,) = re.findall("<kafka.version>(.+)<", (DEPLOY / "kafka" / "pom.xml").read_text())
    assert SERVICES["kafka"]["image"] == f"apache/kafka:{tested}"


def test_the_monitor_listens_where_it_is_asked_and_stores_where_a_volume_is() -> None:
    settings = demo_settings()
    assert settings.server.host == "0.0.0.0"
    assert list(ports("streameval").values()) == [settings.server.port]
    assert f"state:{settings.store.path}" in SERVICES["streameval"]["volumes"]
    grace = int(SERVICES["streameval"]["stop_grace_period"].removesuffix("s"))
    assert grace * 1000 > settings.store.drain_timeout
    assert all(service["tmpfs"] == ["/tmp"] for service in OURS.values()), "the kernels go there"


def test_prometheus_finds_its_rules_the_monitor_and_alertmanager() -> None:
    path = option("prometheus", "--config.file")
    config = yaml_of(path, "prometheus")
    (pattern,) = config["rule_files"]
    folder = here(path, SERVICES["prometheus"]).parent  # type: ignore[union-attr]
    assert (
        {p.name for p in folder.glob(pattern)} == {p.name for p in (DEPLOY / "prometheus").glob("*.rules.yml")} != set()
    )
    (scrape,) = config["scrape_configs"]
    assert scrape["static_configs"] == [{"targets": [f"streameval:{demo_settings().server.port}"]}]
    (told,) = config["alerting"]["alertmanagers"]
    assert told["static_configs"] == [{"targets": [f"alertmanager:{next(iter(ports('alertmanager').values()))}"]}]
    assert {"5m", "1h"} <= set(demo_settings().model_dump(mode="json")["windows"]["sliding"]), "the rules ask for them"


def test_alertmanager_delivers_to_the_webhook() -> None:
    config = yaml_of(option("alertmanager", "--config.file"), "alertmanager")
    urls = {one["url"] for receiver in config["receivers"] for one in receiver["webhook_configs"]}
    (port,) = ports("webhook").values()
    assert {url.rsplit("/", 1)[0] for url in urls} == {f"http://webhook:{port}"}
    assert SERVICES["webhook"]["command"][-1] == str(port)


@pytest.mark.parametrize("name", ["prometheus", "alertmanager", "webhook", "grafana"])
def test_a_health_check_asks_the_service_s_own_port(name: str) -> None:
    (port,) = ports(name).values()
    assert f"http://127.0.0.1:{port}/" in " ".join(SERVICES[name]["healthcheck"]["test"])


def test_grafana_finds_prometheus_alertmanager_and_the_dashboards() -> None:
    provisioning = mounts(SERVICES["grafana"])["/etc/grafana/provisioning"]
    sources = [
        s for p in (provisioning / "datasources").glob("*.y*ml") for s in yaml.safe_load(p.read_text())["datasources"]
    ]
    urls = {s["type"]: s["url"].rstrip("/") for s in sources}
    for name in ("prometheus", "alertmanager"):
        (port,) = ports(name).values()
        assert urls[name] == f"http://{name}:{port}"
    providers = [
        p for f in (provisioning / "dashboards").glob("*.y*ml") for p in yaml.safe_load(f.read_text())["providers"]
    ]
    for provider in providers:
        folder = here(provider["options"]["path"], SERVICES["grafana"])
        assert folder is not None
        assert list(folder.rglob("*.json"))
    assert providers


def test_the_readme_lists_every_address() -> None:
    text = (ROOT / "README.md").read_text()
    section = text.split("## The whole stack", 1)[1].split("\n## ", 1)[0]
    named = {int(port) for port in re.findall(r"127\.0\.0\.1:(\d+)", section)}
    assert named == {port for name in SERVICES for port in ports(name)}
