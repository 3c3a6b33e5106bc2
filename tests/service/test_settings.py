"""Where settings come from, which combinations are refused, and that their reference is current."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from dra_extender.allocation.plan import STEP_BUDGET
from dra_extender.cli.serve import flag
from dra_extender.placement.policies import PlacementStrategy
from dra_extender.scheduling.config import SchedulingConfig
from dra_extender.service.addresses import is_loopback, split_address
from dra_extender.service.settings import CONFIG_VARIABLE, PREFIX, Settings, SettingsError, load
from dra_extender.workers import WorkerLimits


@pytest.fixture(autouse=True)
def nothing_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith(PREFIX)]:
        monkeypatch.delenv(name)


def test_every_setting_is_explained_and_has_a_name_that_kubernetes_does_not_use() -> None:
    for name, field in Settings.model_fields.items():
        assert field.description, name
        assert not name.startswith(("port", "service_")), name


def test_flags_win_over_the_environment_over_the_file_over_defaults(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "settings.yaml"
    file.write_text("namespace: file\nlease_name: file\nidentity: file\n")
    monkeypatch.setenv("DRA_EXTENDER_NAMESPACE", "environment")
    monkeypatch.setenv("DRA_EXTENDER_LEASE_NAME", "environment")
    settings = load({"namespace": "flag", "context": None}, config=file)
    assert (settings.namespace, settings.lease_name, settings.identity) == ("flag", "environment", "file")
    assert settings.context == ""


def test_the_environment_can_name_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "settings.yaml"
    file.write_text("namespace: file\n")
    monkeypatch.setenv(CONFIG_VARIABLE, str(file))
    assert load().namespace == "file"


def test_an_empty_variable_counts_as_not_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DRA_EXTENDER_TLS_CERT", "")
    assert load().tls_cert is None


def test_what_is_printed_gives_the_same_settings_when_it_is_read(tmp_path: Path) -> None:
    settings = load({"listen": "127.0.0.1:0", "feature_gates": "DRAAdminAccess=false", "bind_timeout": 3.5})
    file = tmp_path / "settings.yaml"
    file.write_text(settings.yaml())
    assert load(config=file).model_dump() == settings.model_dump()


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        *(
            ({"listen": wrong}, f"{wrong!r} is not host:port")
            for wrong in ("host", "host:", "host:http", "h:70000", "h:-1")
        ),
        ({"listen": "0.0.0.0:8888"}, "reachable from outside and has no TLS"),
        (
            {"listen": "0.0.0.0:8443", "tls_cert": "a.crt", "tls_key": "a.key"},
            "listen 0.0.0.0:8443 is reachable from outside and asks clients for no certificate: set tls_client_ca, "
            "or allow_any_client if something else protects it",
        ),
        (
            {"listen": ":8443", "tls_cert": "a.crt", "tls_key": "a.key", "allow_plain_http": True},
            "asks clients for no certificate",
        ),
        ({"listen": "0.0.0.0:8888", "allow_any_client": True}, "reachable from outside and has no TLS"),
        (
            {"insight_listen": "0.0.0.0:8080", "insight_authorization": True},
            "insight_listen 0.0.0.0:8080 is reachable from outside and has no TLS for the tokens",
        ),
        ({"tls_cert": "a.crt"}, "tls_cert and tls_key belong together"),
        ({"tls_client_ca": "ca.crt"}, "tls_client_ca needs tls_cert"),
        ({"expander_listen": "127.0.0.1:1"}, "expander_listen needs tls_cert, and tls_client_ca or"),
        (
            {"expander_listen": "127.0.0.1:1", "tls_cert": "a.crt", "tls_key": "a.key"},
            "expander_listen needs tls_cert, and tls_client_ca or expander_any_client",
        ),
        ({"provisioning_requests": True, "diagnose": False}, "provisioning_requests needs diagnose"),
        ({"provisioning_requests": True, "mode": "shadow"}, "and a service that binds"),
        ({"expander_listen": "127.0.0.1"}, "'127.0.0.1' is not host:port"),
        ({"allowed_clients": " ,"}, "allowed_clients contains no name"),
        ({"allowed_clients": "dra-scheduler"}, "allowed_clients needs tls_client_ca"),
        ({"feature_gates": "DRAAdminAcces=true"}, "feature gate 'DRAAdminAcces' is unknown"),
        (
            {"feature_gates": "DRADerivedAttributes=true", "emulated_version": "1.36"},
            "feature gate DRADerivedAttributes is not available with the rules of Kubernetes 1.36",
        ),
        (
            {"feature_gates": "GangScheduling=true", "emulated_version": "1.37"},
            "feature gate GangScheduling is not available with the rules of Kubernetes 1.37",
        ),
        ({"lease_duration": 5}, "lease_duration must exceed renew_deadline"),
        ({"advertise": "10.0.0.1"}, "advertise needs leader_election"),
        (
            {"advertise": "10.0.0.1", "leader_election": True, "tls_cert": "a.crt", "tls_key": "a.key"},
            "advertise with tls_cert needs tls_client_ca and peer_name",
        ),
        ({"shutdown_linger": 30}, "shutdown_grace must exceed shutdown_linger"),
        ({"bind_timeout": 0}, "bind_timeout: Input should be greater than 0"),
        ({"log_level": "loud"}, "log_level: Input should be 'debug'"),
        ({"typo": 1}, "typo: no such setting"),
    ],
)
def test_what_cannot_work_is_refused_by_name(given: dict[str, Any], problem: str) -> None:
    with pytest.raises(SettingsError) as caught:
        load(given)
    assert problem in str(caught.value)


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("typo: 1\n", "typo: no such setting"),
        ("namespace: [\n", "settings.yaml"),
        ("- just\n- a list\n", "settings.yaml"),
        ("max_body: lots\n", "max_body"),
        (None, "does not exist"),
    ],
)
def test_a_bad_or_missing_file_is_refused_by_name(tmp_path: Path, content: str | None, problem: str) -> None:
    file = tmp_path / "settings.yaml"
    if content is not None:
        file.write_text(content)
    with pytest.raises(SettingsError) as caught:
        load(config=file)
    assert problem in str(caught.value)


TLS = {"tls_cert": "a.crt", "tls_key": "a.key"}


@pytest.mark.parametrize(
    "given",
    [
        pytest.param({"listen": "0.0.0.0:8888", "allow_plain_http": True}, id="plain HTTP on purpose"),
        pytest.param({"listen": "0.0.0.0:8443", "allow_any_client": True, **TLS}, id="any client on purpose"),
        pytest.param({"listen": "0.0.0.0:8443", "tls_client_ca": "ca.crt", **TLS}, id="mutual TLS"),
        pytest.param({"listen": "127.0.0.1:8443", **TLS}, id="TLS on loopback"),
        pytest.param({"listen": "[::1]:8888"}, id="plain HTTP on loopback"),
        pytest.param(
            {"listen": "127.0.0.1:8443", "insight_listen": ":8080", "insight_authorization": True, **TLS},
            id="tokens over TLS",
        ),
        pytest.param({"listen": "127.0.0.1:8888", "insight_authorization": True}, id="tokens on loopback"),
    ],
)
def test_the_verbs_are_served_where_they_are_protected_or_somebody_took_the_risk(given: dict[str, Any]) -> None:
    assert load(given).listen == given["listen"]


@pytest.mark.parametrize(
    ("address", "parts", "local"),
    [
        ("127.0.0.1:8888", ("127.0.0.1", 8888), True),
        ("localhost:0", ("localhost", 0), True),
        ("[::1]:80", ("::1", 80), True),
        (":8443", ("0.0.0.0", 8443), False),
        ("10.0.0.1:1", ("10.0.0.1", 1), False),
        ("example.com:1", ("example.com", 1), False),
    ],
)
def test_addresses_are_split_and_judged(address: str, parts: tuple[str, int], local: bool) -> None:
    assert (split_address(address), is_loopback(address)) == (parts, local)


def test_settings_reach_the_parts_they_are_for() -> None:
    settings = load(
        {
            "namespace": "ns",
            "identity": "me",
            "scheduler_names": "a, b",
            "allowed_clients": " s,,spiffe://x/s ",
            "tls_client_ca": "ca.crt",
            **TLS,
            "bind_timeout": 7,
            "feature_gates": "DRAExtendedResource=false",
            "server": "http://127.0.0.1:1",
        }
    )
    assert (settings.lease(1).namespace, settings.lease(1).identity) == ("ns", "me")
    assert settings.config.scheduler_names == {"a", "b"}
    assert settings.client_names == {"s", "spiffe://x/s"}
    assert settings.config.bind_timeout == 7
    assert not settings.features("").DRAExtendedResource
    assert settings.client.server == "http://127.0.0.1:1"
    assert (settings.namespace, settings.requeue_claim) == ("ns", "dra-extender-requeue")
    assert flag("bind_timeout") == "--bind-timeout"


def test_defaults_are_those_of_the_parts_and_a_replica_has_a_name_of_its_own() -> None:
    settings = load()
    assert (settings.config, settings.worker_limits) == (SchedulingConfig(), WorkerLimits())
    assert settings.step_budget == STEP_BUDGET
    assert str(os.getpid()) in settings.replica


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        ({}, PlacementStrategy()),
        ({"placement": "pack"}, PlacementStrategy(policy="pack")),
        ({"placement": "pack", "placement_only_chosen": True}, PlacementStrategy(policy="pack", only_chosen=True)),
    ],
)
def test_placement_is_set_by_name(flags: dict[str, Any], expected: PlacementStrategy) -> None:
    assert load(flags).strategy == expected


def test_a_placement_that_does_not_exist_is_refused() -> None:
    with pytest.raises(SettingsError, match="placement"):
        load({"placement": "best"})


@pytest.mark.parametrize(
    ("advertised", "url"),
    [
        ("", ""),
        ("10.0.0.1", "http://10.0.0.1:8888"),
        ("fd00::1", "http://[fd00::1]:8888"),
        ("replica-0.example.com", "http://replica-0.example.com:8888"),
        ("10.0.0.1:9000", "http://10.0.0.1:9000"),
        ("[fd00::1]:9000", "http://[fd00::1]:9000"),
    ],
)
def test_a_replica_is_reached_at_the_address_it_advertises(advertised: str, url: str) -> None:
    settings = load({"listen": "127.0.0.1:0", "leader_election": True, "advertise": advertised})
    assert settings.lease(8888).address == url


@pytest.mark.parametrize(
    ("emulated", "version", "release"),
    [("", "v1.36.3", "1.36"), ("", "v1.37.2", "1.37"), ("1.36", "v1.37.2", "1.36"), ("1.37", "v1.36.3", "1.37")],
)
def test_the_rules_are_those_of_the_api_server_or_of_the_setting(emulated: str, version: str, release: str) -> None:
    settings = load({"listen": "127.0.0.1:0", "emulated_version": emulated, "feature_gates": "DRAAdminAccess=false"})
    found = settings.features(version)
    assert (found.release, found.DRAAdminAccess) == (release, False)
