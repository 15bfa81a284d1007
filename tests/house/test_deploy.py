"""What people run: every file of deploy/ is one that its reader takes, and names only what there is."""

import inspect
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from importlib import resources
from pathlib import Path

import numpy as np
import pytest
from image_steps import environment_of, stages_of

import quorate
from quorate import PrivateClassifier, save
from quorate.cli.app import app
from quorate.cli.serving import serve
from quorate.service._openapi import ROUTES
from quorate.service._telemetry import Metrics
from support.documents import ROOT

yaml = pytest.importorskip("yaml", reason="PyYAML is not installed")

DEPLOY = ROOT / "deploy"
FILES = [path for path in sorted(DEPLOY.rglob("*")) if path.is_file()]
COMPOSE = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
CLUSTER = DEPLOY / "kubernetes"
MANIFESTS = list(yaml.safe_load_all((CLUSTER / "quorate.yaml").read_text()))
INGRESS, MONITOR = (yaml.safe_load((CLUSTER / f"{name}.yaml").read_text()) for name in ("ingress", "monitoring"))
RULES = yaml.safe_load((DEPLOY / "prometheus" / "rules.yml").read_text())
DASHBOARD = json.loads((DEPLOY / "grafana" / "dashboards" / "quorate.json").read_text())
POD = MANIFESTS[0]["spec"]["template"]["spec"]
IMAGE = stages_of(DEPLOY / "Dockerfile")
FIGURES = ("left", "spent_epsilon", "epsilon", "phase", "seats", "seats_taken", "drift", "ready", "ledger_seconds")
PROMETHEUS_LABELS = {"instance", "job", "le"}


# Each file by its reader.


def test_the_dockerfile_is_clean():
    tool = shutil.which("hadolint", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}")
    if tool is None:
        pytest.skip("hadolint is not installed")
    done = subprocess.run([tool, DEPLOY / "Dockerfile"], check=False, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "")


def test_compose_meets_its_schema():
    jsonschema = pytest.importorskip("jsonschema")
    pytest.importorskip("check_jsonschema", reason="it has the schema")
    schema = resources.files("check_jsonschema") / "builtin_schemas" / "vendor" / "compose-spec.json"
    schema = json.loads(schema.read_text(encoding="utf-8"))
    jsonschema.validate(COMPOSE, schema)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(COMPOSE | {"services": {"quorate": {"readonly": True}}}, schema)


@pytest.mark.parametrize("manifest", [*MANIFESTS, INGRESS], ids=lambda manifest: manifest["kind"])
def test_manifests_meet_the_schemas_of_kubernetes(manifest):
    validator = pytest.importorskip("kubernetes_validate", reason="it has the schemas")
    validator.validate(manifest, "1.30", strict=True)
    with pytest.raises(validator.ValidationError):
        validator.validate(manifest | {"specs": {}}, "1.30", strict=True)


def test_the_unit_is_one_that_systemd_takes(tmp_path):
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze is not installed")
    unit, text = tmp_path / "quorate.service", (DEPLOY / "systemd" / "quorate.service").read_text()
    unit.write_text(re.sub(r"^ExecStart=.*$", "ExecStart=/bin/true", text, flags=re.MULTILINE))
    done = subprocess.run(["systemd-analyze", "verify", unit], check=False, capture_output=True, text=True)
    if "Failed to initialize manager" in done.stderr or "Failed to setup" in done.stderr:
        pytest.skip("systemd-analyze does not work here")
    assert (done.returncode, done.stderr) == (0, "")


def test_promtool_takes_the_rules():
    tool = shutil.which("promtool")
    if tool is None:
        pytest.skip("promtool is not installed")
    done = subprocess.run([tool, "check", "rules", DEPLOY / "prometheus" / "rules.yml"], check=False)
    assert done.returncode == 0


# What they name is there.


def known_variables():
    source = "".join(path.read_text() for path in Path(quorate.__file__).parent.rglob("*.py"))
    return set(re.findall(r'"(QUORATE_[A-Z_]+)"', source)) | variables_of_serve()


def variables_of_serve():
    """The variables that may give options of `quorate serve`."""
    given = [option.annotation.__metadata__ for option in inspect.signature(serve).parameters.values()]
    return {variable for parameters in given for one in parameters for variable in one.env_var or ()}


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.relative_to(DEPLOY).as_posix())
def test_every_variable_is_one_that_is_read(path):
    assert set(re.findall(r"\bQUORATE_[A-Z_]+\b", path.read_text())) <= known_variables()


def test_the_page_of_limits_has_every_option_and_variable():
    page = (ROOT / "docs" / "reference" / "server.md").read_text()
    listed = set(re.findall(r"`(QUORATE_[A-Z_]+)`", page))
    assert len(variables_of_serve()) > 15
    assert variables_of_serve() <= listed
    assert listed <= known_variables()


def test_settings_of_the_samples_can_be_read(monkeypatch):
    sample = (DEPLOY / "systemd" / "quorate.env").read_text()
    settings = dict(line.lstrip("#").split("=", 1) for line in sample.splitlines() if re.match(r"#?QUORATE_", line))
    settings |= {one["name"]: one["value"] for one in POD["containers"][0]["env"]}
    settings |= {name: value for name, value in environment_of(IMAGE[-1]).items() if name.startswith("QUORATE_")}
    assert len(settings) >= 8
    for name, value in settings.items():
        monkeypatch.setenv(name, value)
    _, bound, _ = app.parse_args(["serve", "triage"], exit_on_error=False, print_error=False)
    assert bound.arguments["host"] == "0.0.0.0"  # the image's
    assert bound.arguments["workers"] == 2


def commands():
    entry, last = json.loads(IMAGE[-1].last("ENTRYPOINT")), json.loads(IMAGE[-1].last("CMD"))
    yield [*entry, *last]
    yield [*entry, *COMPOSE["services"]["quorate"]["command"]]
    yield [*entry, *POD["containers"][0]["args"]]
    unit = (DEPLOY / "systemd" / "quorate.service").read_text()
    yield shlex.split(re.findall(r"^ExecStart=(.*)$", unit, flags=re.MULTILINE)[0])


@pytest.mark.parametrize("command", list(commands()), ids=" ".join)
def test_every_command_is_one_of_ours(command):
    assert Path(command[0]).name == "quorate"
    app.parse_args(command[1:], exit_on_error=False, print_error=False)


def test_every_probe_is_a_route_and_all_speak_of_one_port_and_one_user():
    paths = {route.path for route in ROUTES}
    container = POD["containers"][0]
    for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
        assert container[probe]["httpGet"]["path"] in paths
    assert re.findall(r"8900(/[\w/]+)", IMAGE[-1].last("HEALTHCHECK")) == ["/v2/health/live"]
    assert {"/metrics"} <= paths
    user = IMAGE[-1].last("USER")
    assert user == COMPOSE["services"]["quorate"]["user"]
    assert user.split(":")[0] == str(POD["securityContext"]["runAsUser"])
    ports = [container["ports"][0]["containerPort"], MANIFESTS[1]["spec"]["ports"][0]["port"]]
    assert {int(IMAGE[-1].last("EXPOSE")), *ports} == {8900}


def test_nothing_runs_as_root_or_writes_to_its_root():
    service = COMPOSE["services"]["quorate"]
    assert service["read_only"]
    assert service["cap_drop"] == ["ALL"]
    container = POD["containers"][0]["securityContext"]
    assert container["readOnlyRootFilesystem"]
    assert not container["allowPrivilegeEscalation"]
    assert POD["securityContext"]["runAsNonRoot"]
    mounted = {mount["mountPath"] for mount in POD["containers"][0]["volumeMounts"]}
    mounted_by_compose = {one.split(":")[1] for one in service["volumes"]} | set(service["tmpfs"])
    assert mounted == mounted_by_compose == {"/models", "/var/lib/quorate", "/tmp"}


def of_kind(kind):
    return [manifest for manifest in MANIFESTS if manifest["kind"] == kind]


def pods():
    """Return the labels of the pods of each workload, by its name."""
    (job,) = of_kind("CronJob")
    templates = {"quorate": MANIFESTS[0]["spec"]["template"]}
    templates["quorate-backup"] = job["spec"]["jobTemplate"]["spec"]["template"]
    return {name: template["metadata"]["labels"] for name, template in templates.items()}


def test_manifests_select_the_pods_and_ports_that_there_are():
    (service,), labels = of_kind("Service"), pods()
    assert service["spec"]["selector"] == labels["quorate"]
    for kind in ("PodDisruptionBudget", "StatefulSet"):
        (manifest,) = of_kind(kind)
        assert manifest["spec"]["selector"]["matchLabels"] == labels["quorate"]
    policies = {policy["metadata"]["name"]: policy["spec"] for policy in of_kind("NetworkPolicy")}
    assert {name: policy["podSelector"]["matchLabels"] for name, policy in policies.items()} == labels
    assert all(policy["policyTypes"] == ["Ingress", "Egress"] for policy in policies.values())
    assert not {"ingress", "egress"} & policies["quorate-backup"].keys()  # no network at all
    (port,) = service["spec"]["ports"]
    assert [one["ports"] for one in policies["quorate"]["ingress"]] == [[{"port": port["name"]}]]
    (rule,) = INGRESS["spec"]["rules"]
    (path,) = rule["http"]["paths"]
    assert path["backend"]["service"] == {"name": service["metadata"]["name"], "port": {"name": port["name"]}}
    assert INGRESS["spec"]["tls"][0]["hosts"] == [rule["host"]]
    (endpoint,) = MONITOR["spec"]["endpoints"]
    assert MONITOR["spec"]["selector"]["matchLabels"].items() <= service["metadata"]["labels"].items()
    assert endpoint["port"] == port["name"]
    assert endpoint["path"] in {route.path for route in ROUTES}
    assert service["metadata"]["labels"][MONITOR["spec"]["jobLabel"]] == "quorate"  # the job of the alerts


def test_the_ingress_buffers_as_the_proxy_does():
    """The options of nginx that keep slow clients from the server, and bodies from disks, are the same in both."""
    proxy = (DEPLOY / "nginx" / "quorate.conf").read_text()
    options = dict(re.findall(r"^\s*(\w+)\s+(\w+);", proxy, flags=re.MULTILINE))
    prefix, annotations = "nginx.ingress.kubernetes.io/", INGRESS["metadata"]["annotations"]
    shared = (
        *("client-body-buffer-size", "proxy-request-buffering", "proxy-buffering"),
        *("proxy-max-temp-file-size", "proxy-next-upstream"),
    )
    assert {name: annotations[prefix + name] for name in shared} == {
        name: options[name.replace("-", "_")] for name in shared
    }
    assert annotations[prefix + "proxy-body-size"] == options["client_max_body_size"] == "4m"


# The recipes of the manifests, with folders of this machine in the place of volumes.


def in_a_pod(command, home):
    """Return a command of a container, whose volumes are folders of `home`."""
    words = [re.sub(r"(?<![\w/])/(models|backups)\b", lambda found: f"{home}/{found[1]}", word) for word in command]
    (home / "bin").mkdir(exist_ok=True)
    program = home / "bin" / "quorate"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m quorate "$@"\n')
    program.chmod(0o755)
    environment = os.environ | {"PATH": f"{program.parent}:{os.environ['PATH']}"}
    return subprocess.Popen(words, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


@pytest.fixture
def volumes(tmp_path):
    """A model that was fitted elsewhere, and the folders of two empty volumes."""
    for name in ("models", "backups"):
        (tmp_path / name).mkdir()
    X, y = np.array([[0.0], [1.0]] * 2000), np.array([0, 1] * 2000)
    classifier = PrivateClassifier(epsilon=2.0, teachers=200, queries=40, aggregator="noisy_max", classes=[0, 1])
    save(classifier.fit(X, y), tmp_path / "triage")
    classifier.session_.close()
    return tmp_path


def test_the_server_starts_when_the_whole_folder_is_there(volumes):
    (init,) = POD["initContainers"]
    with in_a_pod(init["command"], volumes) as waiting:
        try:
            shutil.copytree(volumes / "triage", volumes / "models" / "incoming")  # as `kubectl cp` does
            with pytest.raises(subprocess.TimeoutExpired):
                waiting.wait(2)
            (volumes / "models" / "incoming").rename(volumes / "models" / "triage")
            assert waiting.wait(120) == 0
        finally:
            waiting.kill()
    assert {mount["name"] for mount in init["volumeMounts"]} <= {"models", "tmp"}


def test_the_nightly_backup_can_be_restored(volumes):
    (volumes / "triage").rename(volumes / "models" / "triage")
    job = next(one for one in MANIFESTS if one["kind"] == "CronJob")["spec"]["jobTemplate"]["spec"]["template"]["spec"]
    (container,) = job["containers"]
    running = in_a_pod([*container["command"], *container["args"]], volumes)
    said, _ = running.communicate(timeout=120)
    assert running.returncode == 0, said
    (backup,) = (volumes / "backups").iterdir()
    assert "can be restored by --charge mark, which leaves 100.00% of the budget" in said
    assert (backup / "ledger.sqlite").exists()
    claims = [one for one in job["volumes"] if "persistentVolumeClaim" in one]
    templates = [f"{one['metadata']['name']}-quorate-0" for one in MANIFESTS[0]["spec"]["volumeClaimTemplates"]]
    assert claims[0]["persistentVolumeClaim"]["claimName"] in templates


def exported():
    """Return the labels of every metric that the server exports, by the names of its samples."""
    metrics = Metrics()
    metrics.count_request(route="/", model="m", status=200, code="", seconds=0.02)
    metrics.count_queries("m", "answered", 1)
    metrics.set_load(1, {"m": 1})
    told = metrics.expose(
        {"m": dict.fromkeys(FIGURES, 1.0)}, models=["m"], owned=["m"], keys={"m": {"k": 1.0}}, processes=True
    ).decode()
    found = {}
    for name, labels in re.findall(r"^([a-z_]+)(?:\{(.*)\})? \S+$", told, flags=re.MULTILINE):
        found.setdefault(name, set()).update(re.findall(r"(\w+)=", labels))
    return found | {"up": set()}


def expressions():
    for rule in RULES["groups"][0]["rules"]:
        yield rule["alert"], rule["expr"]
    for panel in DASHBOARD["panels"]:
        for target in panel["targets"]:
            yield panel["title"], target["expr"]


@pytest.mark.parametrize(("where", "expression"), list(expressions()))
def test_every_metric_is_exported_with_these_labels(where, expression):
    parser = pytest.importorskip("promql_parser")
    plain = expression.replace("$__rate_interval", "5m").replace("$model", "m")
    parser.parse(plain)
    have = exported()
    texts_left_out = re.sub(r'"[^"]*"', '""', plain)
    names = set(re.findall(r"\b((?:quorate|process)_[a-z_]+|up)\b", texts_left_out))
    assert names
    assert names <= set(have), where
    labels = set(re.findall(r"(\w+)(?:=|!=|=~)\"", texts_left_out))
    for grouped in re.findall(r"\bby \(([^)]*)\)", texts_left_out):
        labels |= set(grouped.replace(" ", "").split(","))
    assert labels <= PROMETHEUS_LABELS.union(*(have[name] for name in names)), where


def test_alerts_say_what_to_do_and_panels_know_their_source():
    for rule in RULES["groups"][0]["rules"]:
        assert set(rule["annotations"]) == {"summary", "description", "runbook_url"}
        page, _, entry = rule["annotations"]["runbook_url"].rpartition("/")[2].partition("#")
        written = (ROOT / "docs" / "howto" / page).with_suffix(".md").read_text()
        assert f"\n### {rule['alert']}\n" in written
        assert entry == rule["alert"].lower()
        assert rule["labels"]["severity"] in ("page", "ticket")
    source = yaml.safe_load((DEPLOY / "grafana/provisioning/datasources/prometheus.yml").read_text())["datasources"][0]
    assert {panel["datasource"]["uid"] for panel in DASHBOARD["panels"]} == {source["uid"]}
    assert len({panel["id"] for panel in DASHBOARD["panels"]}) == len(DASHBOARD["panels"])
    codes = set(re.findall(r'code="(\w+)"', json.dumps(RULES).replace('\\"', '"')))
    from quorate.service._errors import PROBLEMS

    assert codes <= set(PROBLEMS)
    told = {route.path for route in ROUTES}
    assert set(re.findall(r'route=\\?"([^"\\]+)', json.dumps(RULES).replace('\\"', '"'))) <= told


def test_only_what_the_image_needs_is_sent_to_its_build():
    ignored = (ROOT / ".dockerignore").read_text().splitlines()
    copied = {source for word, rest in IMAGE[0].steps if word == "COPY" for source in rest.split()[:-1]}
    assert {line[1:] for line in ignored if line.startswith("!")} == copied
    assert "*" in ignored


# The image itself cannot be built here; its steps can be taken.


@pytest.mark.long
def test_the_steps_of_the_image_make_a_server_on_a_read_only_root(tmp_path):
    if os.geteuid() or shutil.which("unshare") is None:
        pytest.skip("only root may unshare and mount")
    tried = subprocess.run(["unshare", "--mount", "--net", "true"], check=False, capture_output=True)
    if tried.returncode:
        pytest.skip("namespaces are not allowed here")
    steps = [sys.executable, ROOT / "tests" / "house" / "image_steps.py", ROOT, tmp_path / "image"]
    done = subprocess.run(steps, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    told = json.loads(next(line for line in done.stdout.splitlines() if line.startswith('{"read_only"')))
    assert told["read_only"]
    assert told["answer"]["model_name"] == "triage"
    assert "ended with 0" in done.stdout
    print(done.stdout)  # noqa: T201  the size, with -rP
