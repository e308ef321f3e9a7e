from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from downstream.errors import NetworkError
from downstream.trees.pipconf import configuration, credentials, file_path, file_url, redact


@pytest.fixture
def home(tmp_path: Path) -> dict[str, str]:
    """An environment whose configuration files all lie in tmp_path."""
    return {"HOME": str(tmp_path), "XDG_CONFIG_DIRS": str(tmp_path / "xdg"), "PATH": os.environ["PATH"]}


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def test_nothing_configured_is_the_client_librarys_default(home: dict[str, str]) -> None:
    found = configuration(home | {"PIP_CONFIG_FILE": os.devnull})
    assert found.indexes == ("",)
    assert found.timeout is None
    assert not found.no_index


def test_a_stronger_layer_wins(home: dict[str, str], tmp_path: Path) -> None:
    assert configuration(home).indexes[0] != "https://layer.example/"
    layers = [
        (tmp_path / "xdg" / "pip" / "pip.conf", "[global]\nindex-url = https://global.example\n"),
        (tmp_path / ".pip" / "pip.conf", "[global]\nindex_url = https://legacy.example/simple\n"),
        (tmp_path / ".config" / "pip" / "pip.conf", "[global]\nindex-url: https://user.example/simple/\n"),
        (tmp_path / "named.conf", "[global]\nindex-url = https://named.example/simple\n"),
        (tmp_path / "xdg" / "pip" / "pip.conf", "[install]\nindex-url = https://section.example/simple\n"),
        (tmp_path / "named.conf", "[install]\nindex-url = https://both.example/simple\n"),
    ]
    named = home | {"PIP_CONFIG_FILE": str(tmp_path / "named.conf")}
    for path, text in layers:
        write(path, text)
        address = re.findall(r"https://\S+?(?=/?\n)", text)[0] + "/"
        assert configuration(named).indexes[0] == address
    assert configuration(named | {"PIP_INDEX_URL": "https://variable.example"}).indexes == (
        "https://variable.example/",
    )
    assert configuration(named | {"PIP_INDEX_URL": ""}).indexes == ("https://both.example/simple/",)


def test_a_named_file_stands_in_for_the_users_own(home: dict[str, str], tmp_path: Path) -> None:
    write(tmp_path / ".config" / "pip" / "pip.conf", "[global]\nindex-url = https://user.example\nproxy = p:1\n")
    named = write(tmp_path / "named.conf", "[global]\nindex-url = https://named.example\n")
    assert configuration(home | {"PIP_CONFIG_FILE": str(named)}).proxy == ""
    assert configuration(home | {"PIP_CONFIG_FILE": str(tmp_path / "absent.conf")}).proxy == "p:1"


def test_an_empty_value_takes_a_weaker_one_back(home: dict[str, str], tmp_path: Path) -> None:
    write(tmp_path / "xdg" / "pip" / "pip.conf", "[global]\nproxy = p:1\n")
    assert configuration(home).proxy == "p:1"
    write(tmp_path / ".config" / "pip" / "pip.conf", "[global]\nproxy =\n")
    assert configuration(home).proxy == ""


def test_xdg_config_home_is_read(home: dict[str, str], tmp_path: Path) -> None:
    write(tmp_path / "elsewhere" / "pip" / "pip.conf", "[global]\nindex-url = https://xdg.example\n")
    assert configuration(home | {"XDG_CONFIG_HOME": str(tmp_path / "elsewhere")}).indexes[0] == "https://xdg.example/"


def test_the_null_device_shuts_every_file_out(home: dict[str, str], tmp_path: Path) -> None:
    write(tmp_path / ".pip" / "pip.conf", "[global]\nindex-url = https://legacy.example\n")
    assert configuration(home | {"PIP_CONFIG_FILE": os.devnull}).indexes == ("",)


def test_the_settings_that_concern_fetching(home: dict[str, str], tmp_path: Path) -> None:
    text = """
[global]
index-url = https://one.example/simple
extra-index-url =
    file:///srv/wheels/simple
    https://user:pass%40word@two.example/simple/
cert = ~/ca.pem
client-cert = /etc/client.pem
proxy = http://proxy.example:8080
trusted-host = two.example
    three.example:8443
timeout = 7.5
no-index = true
find-links = /srv/links
"""
    found = configuration(home | {"PIP_CONFIG_FILE": str(write(tmp_path / "pip.conf", text))})
    assert found.indexes == (
        "https://one.example/simple/",
        "file:///srv/wheels/simple/",
        "https://user:pass%40word@two.example/simple/",
    )
    assert found.certificates == os.path.expanduser("~/ca.pem")  # noqa: PTH111
    assert found.client_certificate == "/etc/client.pem"
    assert found.proxy == "http://proxy.example:8080"
    assert found.trusted_hosts == ("two.example", "three.example:8443")
    assert found.timeout == 7.5
    assert found.no_index
    assert found.find_links


@pytest.mark.parametrize(("text", "seconds"), [("180", 180.0), ("0.5", 0.5), ("soon", None), ("", None)])
def test_the_timeout_is_pips(home: dict[str, str], text: str, seconds: float | None) -> None:
    found = configuration(home | {"PIP_CONFIG_FILE": os.devnull, "PIP_DEFAULT_TIMEOUT": text})
    assert found.timeout == seconds


def test_a_file_that_is_no_configuration_is_named_without_its_text(home: dict[str, str], tmp_path: Path) -> None:
    path = write(tmp_path / "pip.conf", "index-url = https://user:secret@one.example\n")
    with pytest.raises(NetworkError) as caught:
        configuration(home | {"PIP_CONFIG_FILE": str(path)})
    assert caught.value.place == str(path)
    assert "secret" not in str(caught.value)


def test_percent_signs_and_odd_bytes_are_no_syntax(home: dict[str, str], tmp_path: Path) -> None:
    path = tmp_path / "pip.conf"
    path.write_bytes(b"[global]\nindex-url = https://u:%25%s@one.example/simple\n# caf\xe9\n")
    assert configuration(home | {"PIP_CONFIG_FILE": str(path)}).indexes == ("https://u:%25%s@one.example/simple/",)


def test_pip_itself_reads_the_same(home: dict[str, str], tmp_path: Path) -> None:
    write(
        tmp_path / "xdg" / "pip" / "pip.conf",
        "[global]\nindex-url = https://g.example/a\n[install]\ntimeout = 9\nextra_index_url = https://x.example/1\n",
    )
    write(tmp_path / ".config" / "pip" / "pip.conf", "[global]\nindex-url = https://u.example/b\n")
    environment = home | {"PIP_TRUSTED_HOST": "t.example", "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    answer = subprocess.run(
        [sys.executable, "-m", "pip", "config", "list"], env=environment, capture_output=True, text=True, check=True
    ).stdout
    said: dict[str, str] = {}
    for key, value in re.findall(r"^(\S+)='(.*)'$", answer, re.MULTILINE):
        said.setdefault(key, value)  # the strongest is printed first
    found = configuration(environment)
    assert said["global.index-url"] + "/" == found.indexes[0] == "https://u.example/b/"
    assert said["install.extra-index-url"] + "/" == found.indexes[1]
    assert float(said["install.timeout"]) == found.timeout
    assert said[":env:.trusted-host"] == found.trusted_hosts[0]


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("https://user:secret@one.example:8443/simple/x/?sig=secret#sha256=1", "https://one.example:8443/simple/x/"),
        ("https://secret@one.example/", "https://one.example/"),
        ("https://one.example/a@b", "https://one.example/a@b"),
        ("file:///srv/simple/", "file:///srv/simple/"),
        ("git@one.example:a/b", "git@one.example:a/b"),
    ],
)
def test_a_url_is_shown_without_its_secrets(url: str, shown: str) -> None:
    assert redact(url) == shown


@pytest.mark.parametrize(
    ("url", "login"),
    [
        ("https://one.example/", None),
        ("https://user:pass%40word@one.example/", ("user", "pass@word")),
        ("https://token@one.example/", ("token", "")),
    ],
)
def test_the_login_of_a_url(url: str, login: tuple[str, str] | None) -> None:
    assert credentials(url) == login


@pytest.mark.parametrize("name", ["plain", "with space", "caf\udce9", "ü%41"])
def test_a_file_url_and_its_path(name: str) -> None:
    assert file_path(file_url(Path("/srv") / name)) == Path("/srv") / name
    assert file_path("https://one.example/srv") is None
    assert file_path("/srv/simple") == Path("/srv/simple")
