"""The Helm chart: its values, what it renders, and what it refuses."""

import functools
import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import jsonschema
import kubernetes_validate
import pytest
import yaml

from delvec_service.config import Settings

ROOT = Path(__file__).parents[2]
CHART = ROOT / "helm" / "delvec"
EXAMPLES = sorted((CHART / "examples").glob("*.yaml"))
SCHEMA = json.loads((CHART / "values.schema.json").read_text())
VALUES = yaml.safe_load((CHART / "values.yaml").read_text())
KUBERNETES = "1.31.0"
FOREIGN = {"ServiceMonitor", "PrometheusRule", "HTTPRoute"}
"""Kinds of operators, which Kubernetes' own schemas do not know."""
DATABASE = {"postgresql.enabled": "true", "postgresql.password": "p"}
MIN = {"config.roots[0]": "s3://lake", "auth.token": "t", **DATABASE}


def program():
    """Return Helm: the one on PATH, or the one that `make helm` has built."""
    built = ROOT / ".build" / "helm" / "helm"
    found = shutil.which("helm") or (str(built) if built.exists() else None)
    if found is None:
        pytest.skip("no helm: it is not on PATH, and `make helm` has not built it")
    return found


def helm(*arguments):
    return subprocess.run(
        [program(), *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "HELM_CACHE_HOME": "/nonexistent", "HELM_CONFIG_HOME": "/nonexistent"},
    )


@functools.cache
def rendered(*options):
    done = helm("template", "lake", CHART, "--kube-version", KUBERNETES, "--namespace", "data", *options)
    assert done.returncode == 0, done.stderr
    found = [one for one in yaml.safe_load_all(done.stdout) if one]
    names = [(one["kind"], one["metadata"]["name"]) for one in found if "hook" not in str(one["metadata"])]
    assert len(names) == len(set(names))
    return {(one["kind"], one["metadata"]["name"]): one for one in found}


def example(name):
    return rendered("--values", CHART / "examples" / f"{name}.yaml")


def with_values(**given):
    options = [f"{name}={value}" for name, value in {**MIN, **given}.items()]
    return rendered("--set", ",".join(options))


def refused(values):
    options = [f"{name}={value}" for name, value in values.items()]
    done = helm("template", "lake", CHART, "--kube-version", KUBERNETES, "--set", ",".join(options))
    assert done.returncode != 0
    return done.stderr


def pods(objects):
    """Yield the name and the pod of everything that has one."""
    for (kind, name), one in objects.items():
        spec = one.get("spec", {})
        if kind == "CronJob":
            spec = spec["jobTemplate"]["spec"]
        if kind == "Pod":
            yield name, spec
        elif "template" in spec:
            yield name, spec["template"]["spec"]


def environment(container):
    return {one["name"]: one.get("value", one.get("valueFrom")) for one in container["env"]}


# --- values, without Helm -----------------------------------------------------------------------------


def merged(base, over):
    if not isinstance(base, dict) or not isinstance(over, dict):
        return over
    return {**base, **{key: merged(base.get(key), value) for key, value in over.items()}}


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_the_schema_takes_the_examples(path):
    jsonschema.validate(merged(VALUES, yaml.safe_load(path.read_text())), SCHEMA)


@pytest.mark.parametrize(
    "wrong",
    [
        {"replicas": 2},
        {"config": {"rootz": []}},
        {"config": {"roots": "s3://lake"}},
        {"config": {"namespaceRoots": {"sales": []}}},
        {"config": {"namespaceRoots": {"no space": ["s3://lake"]}}},
        {"config": {"workers": 0}},
        {"config": {"settings": {"SNAPSHOT_CACHE_BYTES": 1}}},
        {"image": {"digest": "latest"}},
        {"externalDatabase": {"sslMode": "yes"}},
        {"cronJobs": [{"name": "a", "schedule": "@daily"}]},
    ],
)
def test_the_schema_refuses_what_would_be_overlooked(wrong):
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(merged(VALUES, wrong), SCHEMA)


def test_settings_are_those_of_the_service_that_the_chart_does_not_set_itself():
    of_the_chart = {"token", "database_url", "fault_points"} | {
        name.removeprefix("DELVEC_").lower()
        for name in re.findall("DELVEC_[A-Z_]+(?=:)", (CHART / "templates" / "configmap.yaml").read_text())
    }
    known = {f"DELVEC_{name.upper()}" for name in Settings.model_fields if name not in of_the_chart}
    assert set(SCHEMA["properties"]["config"]["properties"]["settings"]["propertyNames"]["enum"]) == known
    for wrong in ("DELVEC_PORT", "DELVEC_TOKEN", "DELVEC_DASHBORD"):
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(merged(VALUES, {"config": {"settings": {wrong: "1"}}}), SCHEMA)


def test_the_schema_knows_every_value():
    def compare(values, schema, path):
        properties = schema.get("properties")
        if properties is None:
            return
        assert set(values) == set(properties) - {"global"}, path
        for name, value in values.items():
            if isinstance(value, dict):
                compare(value, properties[name], (*path, name))

    compare(VALUES, SCHEMA, ())


def test_the_chart_has_the_version_of_the_package():
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert f'version = "{chart["appVersion"]}"' in (ROOT / "pyproject.toml").read_text()


def test_dashboards_and_rules_are_those_of_the_repository():
    """The chart cannot refer to files outside of it: `make helm` copies them."""
    for folder, source in (("dashboards", "grafana"), ("rules", "prometheus")):
        ours, theirs = (
            {path.name: path.read_bytes() for path in place.iterdir()}
            for place in (CHART / "files" / folder, ROOT / "monitoring" / source)
        )
        assert ours == theirs, "make helm"


# --- what is rendered ---------------------------------------------------------------------------------


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_examples_pass_lint_and_kubernetes_own_schemas(path):
    done = helm("lint", CHART, "--strict", "--values", path)
    assert done.returncode == 0, done.stdout + done.stderr
    for one in rendered("--values", path).values():
        if one["kind"] not in FOREIGN:
            kubernetes_validate.validate(one, "1.31", strict=True)


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_no_pod_is_root_or_writes_to_its_image(path):
    for name, pod in pods(rendered("--values", path)):
        assert pod["securityContext"]["runAsNonRoot"] is True, name
        for container in [*pod["containers"], *pod.get("initContainers", [])]:
            context = container["securityContext"]
            assert context["readOnlyRootFilesystem"] is True, name
            assert context["capabilities"] == {"drop": ["ALL"]}
            assert not context["allowPrivilegeEscalation"]


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_no_secret_is_in_anything_but_a_secret(path):
    for (kind, name), one in rendered("--values", path).items():
        if kind != "Secret":
            assert "change-me" not in json.dumps(one), name


def test_settings_are_those_of_the_service(monkeypatch):
    objects = example("production")
    pod = objects["Deployment", "lake-delvec"]["spec"]["template"]["spec"]
    settings = dict(objects["ConfigMap", "lake-delvec"]["data"])
    settings |= {
        key: value for key, value in environment(pod["containers"][0]).items() if isinstance(value, str)
    }
    for key, value in settings.items():
        monkeypatch.setenv(key, value)

    read = Settings()

    assert read.roots == ("s3://lake/tables",)
    assert (read.workers, read.drain_seconds, read.host, read.port) == (2, 15, "0.0.0.0", 8710)
    assert {key.removeprefix("DELVEC_").lower() for key in settings if key.startswith("DELVEC_")} <= set(
        Settings.model_fields
    )


def test_pods_have_time_to_end():
    spec = example("production")["Deployment", "lake-delvec"]["spec"]["template"]["spec"]
    probe = spec["containers"][0]["readinessProbe"]
    assert (
        probe["periodSeconds"] * probe["failureThreshold"] < 15 < spec["terminationGracePeriodSeconds"] - 60
    )


def test_liveness_does_not_ask_the_database():
    container = example("production")["Deployment", "lake-delvec"]["spec"]["template"]["spec"]["containers"][
        0
    ]
    assert container["livenessProbe"]["httpGet"]["path"] == "/livez"
    assert container["readinessProbe"]["httpGet"]["path"] == "/readyz"


def test_the_database_is_migrated_before_pods_are_replaced():
    objects = example("production")
    job = objects["Job", "lake-delvec-migrate"]
    assert job["metadata"]["annotations"]["helm.sh/hook"] == "pre-install,pre-upgrade"
    assert job["spec"]["template"]["spec"]["containers"][0]["args"] == ["database", "migrate"]
    assert "serviceAccountName" not in job["spec"]["template"]["spec"]  # it comes after the hook
    assert ("Secret", "lake-delvec-migrate") not in objects

    own = example("gateway-and-nfs")["Job", "lake-delvec-migrate"]["spec"]["template"]["spec"]["containers"][
        0
    ]
    assert environment(own)["PGPASSWORD"]["secretKeyRef"]["name"] == "lake-delvec-migrate"


def test_the_bundled_database_is_migrated_by_the_first_pod():
    objects = example("quick-start")
    assert ("Job", "lake-delvec-migrate") not in objects
    pod = objects["Deployment", "lake-delvec"]["spec"]["template"]["spec"]
    assert pod["initContainers"][0]["args"][:2] == ["database", "wait"]
    service = objects["Service", "lake-delvec-postgresql"]["metadata"]["name"]
    assert service in environment(pod["containers"][0])["DELVEC_DATABASE_URL"]


def test_selectors_find_the_service_and_not_the_database():
    objects = with_values()
    labels = objects["Deployment", "lake-delvec"]["spec"]["template"]["metadata"]["labels"]
    other = objects["StatefulSet", "lake-delvec-postgresql"]["spec"]["template"]["metadata"]["labels"]
    selectors = [
        objects["Service", "lake-delvec"]["spec"]["selector"],
        objects["PodDisruptionBudget", "lake-delvec"]["spec"]["selector"]["matchLabels"],
        objects["NetworkPolicy", "lake-delvec"]["spec"]["podSelector"]["matchLabels"],
        objects["Deployment", "lake-delvec"]["spec"]["selector"]["matchLabels"],
    ]
    for selector in selectors:
        assert selector.items() <= labels.items()
        assert not selector.items() <= other.items()


def test_pods_accept_only_clients_of_the_service():
    policy = with_values()["NetworkPolicy", "lake-delvec"]["spec"]
    assert policy["policyTypes"] == ["Ingress"]
    assert policy["ingress"] == [{"ports": [{"port": "http"}], "from": [{"podSelector": {}}]}]
    database = with_values()["NetworkPolicy", "lake-delvec-postgresql"]["spec"]
    [rule] = database["ingress"]
    client = with_values()["Deployment", "lake-delvec"]["spec"]["template"]["metadata"]["labels"]
    assert rule["from"][0]["podSelector"]["matchLabels"].items() <= client.items()


@pytest.mark.parametrize(
    "values",
    [
        {"ingress.enabled": "true", "ingress.hosts[0].host": "h"},
        {"httpRoute.enabled": "true"},
        {"serviceMonitor.enabled": "true"},
        {"service.type": "LoadBalancer"},
    ],
)
def test_a_proxy_in_another_namespace_reaches_the_service_and_no_other_port(values):
    policy = with_values(**values)["NetworkPolicy", "lake-delvec"]["spec"]
    assert policy["ingress"] == [{"ports": [{"port": "http"}]}]


def test_a_policy_says_who_connects_to_what():
    objects = example("production")
    given = yaml.safe_load((CHART / "examples" / "production.yaml").read_text())["networkPolicy"]
    policy = objects["NetworkPolicy", "lake-delvec"]["spec"]
    assert policy["policyTypes"] == ["Ingress", "Egress"]
    assert policy["ingress"] == [{"ports": [{"port": "http"}], "from": given["from"]}]
    ports = [port["port"] for rule in policy["egress"] for port in rule["ports"]]
    assert ports == [53, 53, 5432, 443]
    assert not [
        kind for kind, _ in with_values(**{"networkPolicy.enabled": "false"}) if kind == "NetworkPolicy"
    ]


def test_autoscaling_decides_about_replicas():
    objects = example("production")
    assert "replicas" not in objects["Deployment", "lake-delvec"]["spec"]
    scaler = objects["HorizontalPodAutoscaler", "lake-delvec"]["spec"]
    assert (scaler["minReplicas"], scaler["maxReplicas"]) == (3, 12)
    assert "HorizontalPodAutoscaler" not in {kind for kind, _ in example("quick-start")}


def test_maintenance_runs_one_round_at_a_time_and_asks_the_service():
    job = example("production")["CronJob", "lake-delvec-maintain"]["spec"]
    container = job["jobTemplate"]["spec"]["template"]["spec"]["containers"][0]
    assert job["concurrencyPolicy"] == "Forbid"
    assert container["args"] == ["maintain"]
    assert environment(container)["DELVEC_URL"] == "http://lake-delvec:8710"
    assert "DELVEC_DATABASE_URL" not in environment(container)
    assert example("gateway-and-nfs")["CronJob", "lake-delvec-health"]


def test_a_changed_setting_replaces_the_pods():
    def annotations(**values):
        found = with_values(**values)["Deployment", "lake-delvec"]
        return found["spec"]["template"]["metadata"]["annotations"]

    assert annotations() == annotations()
    assert annotations() != annotations(**{"config.logLevel": "debug"})
    assert annotations() != annotations(**{"auth.token": "another"})


def test_routes_lead_to_the_service():
    ingress = example("production")["Ingress", "lake-delvec"]["spec"]
    assert ingress["rules"][0]["http"]["paths"][0]["backend"]["service"]["name"] == "lake-delvec"
    route = example("gateway-and-nfs")["HTTPRoute", "lake-delvec"]["spec"]
    assert route["rules"][0]["backendRefs"] == [{"name": "lake-delvec", "port": 8710}]


def test_prometheus_finds_the_metrics_with_the_token():
    monitor = example("production")["ServiceMonitor", "lake-delvec"]["spec"]
    endpoint = monitor["endpoints"][0]
    assert (endpoint["port"], endpoint["path"]) == ("http", "/metrics")
    assert endpoint["authorization"]["credentials"] == {"name": "delvec-token", "key": "token"}


def test_files_of_the_chart_become_rules_and_dashboards():
    objects = example("production")
    assert ("PrometheusRule", "lake-delvec") in objects
    for path in (CHART / "files" / "dashboards").glob("*.json"):
        found = [
            one for (kind, _), one in objects.items() if kind == "ConfigMap" and path.name in one["data"]
        ]
        assert json.loads(found[0]["data"][path.name]) == json.loads(path.read_text())
    groups = [
        group["name"]
        for path in (CHART / "files" / "rules").glob("*.y*ml")
        for group in yaml.safe_load(path.read_text())["groups"]
    ]
    rule = objects.get(("PrometheusRule", "lake-delvec"), {"spec": {"groups": []}})
    assert [group["name"] for group in rule["spec"]["groups"]] == groups


def test_roots_of_namespaces_are_set(monkeypatch):
    own = {"config.namespaceRoots.sales[0]": "s3://sales/lake", "config.namespaceRoots.hr[0]": "s3://hr"}
    settings = with_values(**own)["ConfigMap", "lake-delvec"]["data"]
    monkeypatch.setenv("DELVEC_NAMESPACE_ROOTS", settings["DELVEC_NAMESPACE_ROOTS"])

    assert Settings().namespace_roots == {"sales": ("s3://sales/lake",), "hr": ("s3://hr",)}


# --- what is refused ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ({"config.roots[0]": "s3://lake", "auth.token": "t"}, "no database is configured"),
        ({**MIN, "externalDatabase.host": "db"}, "contradict each other"),
        ({"config.roots[0]": "s3://a", "auth.token": "t", "externalDatabase.host": "db"}, "has no password"),
        ({"auth.token": "t", **DATABASE}, "config.roots is empty"),
        ({**MIN, "config.roots[0]": "/data"}, "which other pods cannot see"),
        ({**MIN, "config.namespaceRoots.sales[0]": "/data"}, "which other pods cannot see"),
        ({**MIN, "persistence.enabled": "true"}, "needs persistence.existingClaim"),
        ({"config.roots[0]": "s3://lake", **DATABASE}, "needs a token"),
        ({**MIN, "podDisruptionBudget.minAvailable": "1"}, "not both"),
        ({**MIN, "autoscaling.enabled": "true", "autoscaling.minReplicas": "9"}, "greater than"),
        ({**MIN, "backup.enabled": "true"}, "needs backup.existingClaim"),
        ({**MIN, "serviceMonitor.enabled": "true", "metrics.enabled": "false"}, "needs metrics.enabled"),
        ({**MIN, "replicas": "3"}, "replicas"),
    ],
)
def test_values_that_contradict_each_other_are_refused_in_one_sentence(values, reason):
    assert reason in refused(values)


def test_no_pod_takes_the_variables_of_a_service_called_delvec_for_settings():
    for name in (path.stem for path in EXAMPLES):
        for (kind, _), one in example(name).items():
            spec = one.get("spec") or {}
            template = spec.get("jobTemplate", {}).get("spec", spec).get("template") or one
            if kind in ("Deployment", "Job", "CronJob", "Pod"):
                assert template["spec"]["enableServiceLinks"] is False, one["metadata"]["name"]


def test_a_pod_has_the_time_that_its_commits_need():
    assert "config.drainSeconds + 60" in refused({**MIN, "terminationGracePeriodSeconds": "5"})


def test_a_budget_of_no_disruption_is_kept():
    options = [f"{name}={value}" for name, value in MIN.items()]
    budget = rendered("--set", ",".join([*options, "podDisruptionBudget.maxUnavailable=0"]))
    assert budget["PodDisruptionBudget", "lake-delvec"]["spec"]["maxUnavailable"] == 0
