"""What deploy/ says, read once: the compose file, the Kubernetes overlays, the addresses in both."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from streameval.settings.toml import load
from streameval.settings.tree import Settings

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
KUBERNETES = DEPLOY / "kubernetes"
COMPOSE = ROOT / "docker-compose.yml"
DEMO = DEPLOY / "demo" / "streameval.toml"


def compose() -> dict[str, Any]:
    """docker-compose.yml, its anchors resolved."""
    return dict(yaml.safe_load(COMPOSE.read_text()))


def services() -> dict[str, dict[str, Any]]:
    """Its services by name."""
    return dict(compose()["services"])


def demo_settings() -> Settings:
    """The demo's settings, through the real loader."""
    return load(DEMO, {})


def mounts(service: dict[str, Any]) -> dict[str, Path]:
    """Files and folders of this repository that a service sees: path in the container -> path here."""
    found = {}
    for volume in service.get("volumes", []):
        here, there, *_ = volume.split(":")
        if here.startswith("."):
            found[there] = ROOT / here
    return found


def here(path: str, service: dict[str, Any]) -> Path | None:
    """The file of this repository that is at `path` in the container, if one is."""
    for there, place in mounts(service).items():
        if path == there:
            return place
        if path.startswith(there.rstrip("/") + "/"):
            return place / path.removeprefix(there.rstrip("/") + "/")
    return None


def tool(name: str) -> str:
    """A program of the development packages, beside this Python; fails without it."""
    found = shutil.which(name, path=str(Path(sys.executable).parent)) or shutil.which(name)
    assert found, f"{name}: not installed; it comes with requirements-dev.lock"
    return found


def base() -> list[dict[str, Any]]:
    """What deploy/kubernetes/base lists, read by hand: nothing in there is patched."""
    folder = KUBERNETES / "base"
    return [yaml.safe_load((folder / name).read_text()) for name in kustomization("base")["resources"]]


def kustomization(folder: str) -> dict[str, Any]:
    """A folder's kustomization.yaml."""
    return dict(yaml.safe_load((KUBERNETES / folder / "kustomization.yaml").read_text()))


@cache
def overlay(name: str) -> tuple[dict[str, Any], ...]:
    """Everything that an overlay makes, built by kubectl.

    Skips by name without one, also in CI: Debian's is too old to know what ours are written in.
    """
    if shutil.which("kubectl") is None:
        pytest.skip("install kubectl 1.27 or newer: the overlays are built by `kubectl kustomize`")
    folder = KUBERNETES / "overlays" / name
    done = subprocess.run(["kubectl", "kustomize", str(folder)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return tuple(yaml.safe_load_all(done.stdout))


def only(objects: Iterable[dict[str, Any]], kind: str, called: str = "streameval") -> dict[str, Any]:
    """The object of this kind and name; a generated name has a hash behind it."""
    name = re.compile(re.escape(called) + "(-[a-z0-9]{10})?")
    (found,) = [o for o in objects if o["kind"] == kind and name.fullmatch(o["metadata"]["name"])]
    return found


def container(workload: dict[str, Any]) -> dict[str, Any]:
    """The one container of a workload's pods."""
    (found,) = workload["spec"]["template"]["spec"]["containers"]
    return dict(found)
