"""What needs no cluster: options, and clusters that are not there."""

import importlib.util
import socket
import subprocess
import sys

import pytest

from fsf_ray import RayLauncher
from fsframework.errors import FsfError, OptionError, PluginError


@pytest.mark.parametrize(
    ("option", "value"),
    [
        *(("address", value) for value in ("head", "ray://head:10001", "head:99999")),
        *(("cpus", 0.0), ("gpus", 1.5), ("gpus", -1.0), ("workers", 0), ("retries", -1)),
    ],
)
def test_options_have_bounds(option, value):
    with pytest.raises(OptionError, match=f"^{option} must be .*{value}"):
        RayLauncher(**{option: value})


def test_sound_options():
    assert RayLauncher(address="[::1]:6379", gpus=0.5).gpus == 0.5
    assert RayLauncher(address="auto", gpus=2.0).address == "auto"


def test_a_cluster_that_is_not_there(tmp_path):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
        with pytest.raises(FsfError, match=f"^no Ray cluster answers at {address}: .*refused"):
            next(RayLauncher(address=address).map(str, [1], name="test", logs=tmp_path))
    assert list(tmp_path.iterdir()) == []


def test_ray_is_not_installed(tmp_path, monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(PluginError, match="not installed: pip install ray"):
        next(RayLauncher().map(str, [1], name="test", logs=tmp_path))


def test_the_launcher_does_not_import_ray():
    code = "import sys; from fsf_ray import RayLauncher; RayLauncher(); print('ray' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


def test_another_version_of_ray_is_one_sentence(tmp_path, monkeypatch):
    import ray

    def refuse(**options):
        raise RuntimeError("Version mismatch: The cluster was started with:\n    Ray: 2.9.0\n")

    monkeypatch.setattr(ray, "init", refuse)
    with pytest.raises(FsfError, match="Version mismatch: The cluster was started with: Ray: 2.9"):
        next(RayLauncher().map(str, [1], name="test", logs=tmp_path))
