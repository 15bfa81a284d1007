"""The steps of deploy/Dockerfile on a machine that cannot build images: in namespaces of their own, on an overlay.

`python image_steps.py CHECKOUT` needs the rights to unshare and to mount. All that is written is in memory, and gone
when it ends. The base image is stood in for by this machine with its Python in /usr/local. Each RUN, COPY, ENV, USER,
ENTRYPOINT and CMD is read from the Dockerfile, so that what is tried here is what an image is built of. Then the server
is started as the image's user, on a read-only root, with a model, and asked.
"""

import fcntl
import json
import os
import re
import shlex
import socket
import struct
import subprocess
import sys
import time
import urllib.request
from dataclasses import dataclass, field
from pathlib import Path

_PHASE = "QUORATE_IMAGE_PHASE"
_SET_FLAGS, _UP = 0x8914, 1  # of a network interface, as Linux numbers them
WRITABLE = ("/models", "/var/lib/quorate", "/tmp")  # what compose.yaml and the manifests mount


@dataclass
class Stage:
    """One FROM and what follows it."""

    name: str
    steps: list = field(default_factory=list)  # (instruction, the rest of the line)

    def last(self, instruction):
        return [rest for word, rest in self.steps if word == instruction][-1]


def stages_of(path):
    """Return the stages of a Dockerfile."""
    lines = re.sub(r"\\\n", " ", re.sub(r"^#.*\n", "", Path(path).read_text(), flags=re.MULTILINE)).splitlines()
    stages = []
    for line in filter(None, map(str.strip, lines)):
        instruction, rest = line.split(maxsplit=1)
        if instruction == "FROM":
            stages.append(Stage(rest.partition(" AS ")[2]))
        elif stages:
            stages[-1].steps.append((instruction, rest.strip()))
    return stages


def environment_of(stage):
    """Return the variables that a stage sets."""
    variables = {"PATH": "/usr/local/bin:/usr/local/sbin:/usr/bin:/usr/sbin:/bin:/sbin"}
    for instruction, rest in stage.steps:
        if instruction == "ENV":
            for pair in shlex.split(rest):
                name, _, value = pair.partition("=")
                variables[name] = value.replace("$PATH", variables["PATH"])
    return variables


def run(*command, **options):
    return subprocess.run(command, check=True, **options)


def say(*words):
    sys.stdout.write(" ".join(map(str, words)) + "\n")
    sys.stdout.flush()


def make_root(base):
    """Return a copy of this machine's root, in memory, with its Python where the base image has it."""
    run("mount", "-t", "tmpfs", "-o", "mode=755", "tmpfs", base)
    for name in ("upper", "work", "root"):
        (base / name).mkdir()
    layers = f"lowerdir=/,upperdir={base}/upper,workdir={base}/work"
    run("mount", "-t", "overlay", "overlay", "-o", layers, base / "root")
    root = base / "root"
    run("mount", "-t", "proc", "proc", root / "proc")
    run("mount", "--rbind", "/dev", root / "dev")
    run("mount", "-t", "tmpfs", "-o", "mode=1777", "tmpfs", root / "tmp")
    run("cp", "-a", f"{sys.base_prefix}/.", f"{root}/usr/local/")
    (root / "usr/local/bin/python").unlink(missing_ok=True)
    (root / "usr/local/bin/python").symlink_to("python3")
    run("chroot", root, "ldconfig")
    return root


def build(root, stages, checkout):
    """Take every step of every stage; stages share one root, as nothing that they make is in another's way."""
    for stage in stages:
        variables, folder = environment_of(stage) | {"HOME": "/root"}, "/"
        for instruction, rest in stage.steps:
            if instruction == "WORKDIR":
                folder = rest
                (root / folder.lstrip("/")).mkdir(parents=True, exist_ok=True)
            elif instruction == "COPY" and not rest.startswith("--from"):
                *sources, target = rest.split()
                for source in sources:
                    place = root / folder.lstrip("/") / target
                    run("cp", "-a", checkout / source, place if (checkout / source).is_dir() else f"{place}/")
            elif instruction == "RUN":
                say("RUN", rest)
                run("chroot", root, "/bin/sh", "-c", f"cd {folder} && {rest}", env=variables)


def close_root(root):
    """Make the root read-only, but for what is mounted where the server writes."""
    for place in WRITABLE[:2]:
        run("mount", "--bind", f"{root}{place}", f"{root}{place}")
    run("mount", "-o", "remount,bind,ro", root)


def serve(root, stage):
    """Start the image's command as the image's user, ask it, and stop it; return what came back."""
    command = [*json.loads(stage.last("ENTRYPOINT")), *json.loads(stage.last("CMD"))]
    inside = ["chroot", "--userspec", stage.last("USER"), str(root)]
    server = subprocess.Popen([*inside, *command], env=environment_of(stage))
    try:
        address = "http://127.0.0.1:8900"
        for _ in range(240):
            time.sleep(0.5)
            assert server.poll() is None, f"the server ended with {server.returncode}"
            try:
                with urllib.request.urlopen(f"{address}/v2/health/ready", timeout=2):
                    break
            except OSError:
                continue
        check = json.loads(re.findall(r"CMD (\[.*\])", stage.last("HEALTHCHECK"))[0])
        run(*inside, *check, env=environment_of(stage))
        key = (root / "models/key").read_text().strip()
        tensor = {"name": "features", "shape": [1, 2], "datatype": "FP64", "data": [3.0, 0.0]}
        asked = urllib.request.Request(
            f"{address}/v2/models/triage/infer",
            json.dumps({"inputs": [tensor]}).encode(),
            {"authorization": f"Bearer {key}"},
        )
        with urllib.request.urlopen(asked, timeout=30) as response:
            return json.load(response)
    finally:
        server.terminate()
        say("ended with", server.wait(30))


MODEL = """
import numpy as np
from quorate import PrivateClassifier, load, save
X = np.random.default_rng(0).normal(size=(3000, 2))
made = PrivateClassifier(epsilon=20.0, delta=1e-6, teachers=100, queries=100, classes=["no", "yes"])
save(made.fit(X, np.where(X[:, 0] > 0, "yes", "no")), "/models/triage")
with open("/models/key", "w") as file:
    file.write(load("/models/triage").session_.ledger.add_key("me"))
"""


def main(checkout, base):
    stages = stages_of(checkout / "deploy" / "Dockerfile")
    root = make_root(base)
    build(root, stages, checkout)
    last = stages[-1]
    inside = ["chroot", "--userspec", last.last("USER"), str(root)]
    run(*inside, "python", "-W", "ignore", "-c", MODEL, env=environment_of(last))
    size = run("du", "-sm", root / "opt/quorate", capture_output=True, text=True).stdout.split()[0]
    close_root(root)
    say("megabytes", size)


def ask(checkout, base):
    """Serve with a network of its own, which has a loopback and nothing else."""
    with socket.socket() as any_socket:
        fcntl.ioctl(any_socket, _SET_FLAGS, struct.pack("16sh", b"lo", _UP))
    last, root = stages_of(checkout / "deploy" / "Dockerfile")[-1], base / "root"
    inside = ["chroot", "--userspec", last.last("USER"), str(root)]
    wrote = subprocess.run([*inside, "touch", "/opt/quorate/x", "/x"], check=False, capture_output=True)
    say(json.dumps({"read_only": b"Read-only" in wrote.stderr, "answer": serve(root, last)}))


PHASES = {
    "": ["--mount", "--pid", "--fork", "--propagation", "private"],
    "build": ["--net"],
}


def enter(phase, following):
    """Go on in new namespaces."""
    command = ["unshare", *PHASES[phase], sys.executable, *sys.argv]
    return subprocess.run(command, env=os.environ | {_PHASE: following}, check=False).returncode


if __name__ == "__main__":
    told = Path(sys.argv[1]).resolve(), Path(sys.argv[2])
    phase = os.environ.get(_PHASE, "")
    if not phase:
        told[1].mkdir(parents=True, exist_ok=True)
        sys.exit(enter("", "build"))
    if phase == "build":
        main(*told)
        sys.exit(enter("build", "ask"))
    ask(*told)
