"""Whether this commit can be released, and the files to release: `make release`.

Nothing is published and no tag is set. The tree is clean; the changelog, the citation and the conda recipe name the
version of the package; its tag is free or is this commit; and two builds, from copies in two places with other times of
files, another umask and another time zone, give the same bytes. dist/ then holds the files and their hashes. With
`--rehearse` what is wrong with tree, tag and versions is said, and the rest goes on.
"""

import hashlib
import os
import re
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from wheels import ROOT, build, run

VERSION = re.compile(r'^__version__ = "([^"]+)"$', re.MULTILINE)
PLACES = {  # beside the package itself: where a release must name its version
    "CHANGELOG.md": re.compile(r"^## \[?v?([^\s\],]+)", re.MULTILINE),  # the first heading
    "CITATION.cff": re.compile(r"^version: \"?([^\"\s]+)", re.MULTILINE),
    "packaging/conda/recipe.yaml": re.compile(r"^  version: \"?([^\"\s]+)", re.MULTILINE),
}


def version_of(root: Path) -> str:
    """Return the version that the package says."""
    return VERSION.findall((root / "src/quorate/__init__.py").read_text(encoding="utf-8"))[0]


def wrong_versions(root: Path) -> Iterator[str]:
    """Yield what is wrong with the versions that files name."""
    version = version_of(root)
    for name, pattern in PLACES.items():
        found = pattern.findall((root / name).read_text(encoding="utf-8"))
        if found[:1] != [version]:
            yield f"{name} names {found[0] if found else 'no version'}, and the package {version}"


def wrong_commit(version: str) -> Iterator[str]:
    """Yield what is wrong with the tree and the tag."""
    changed = run(["git", "status", "--porcelain"]).splitlines()
    if changed:
        yield f"the tree is not clean: {', '.join(line[3:] for line in changed[:5])}"
    tag = f"v{version}"
    if run(["git", "tag", "--list", tag]).strip() and tag not in run(["git", "tag", "--points-at", "HEAD"]).split():
        yield f"the tag {tag} is another commit; a release needs a version of its own"


def check_recipe(path: Path) -> None:
    """Render the conda recipe as its builder does; a mistake in it is an error of that builder."""
    from rattler_build import Stage0Recipe, VariantConfig

    [rendered] = Stage0Recipe.from_file(path).render(VariantConfig())
    print(f"The conda recipe is one of {rendered.recipe.package.name} {rendered.recipe.package.version}.")


def build_copy(place: Path, *, other: bool) -> dict[str, bytes]:
    """Build what is committed in a new place; `other` means other times and rights of files, umask and time zone."""
    source = place / ("copied" if other else "source")
    source.mkdir(parents=True)
    run(["git", "archive", "--format=tar", f"--output={place / 'tree.tar'}", "HEAD"])
    with tarfile.open(place / "tree.tar") as archive:
        archive.extractall(source, filter="data")
    how: dict[str, Any] = {"umask": 0o077, "TZ": "Pacific/Chatham"} if other else {}
    for path in source.rglob("*") if other else ():
        os.utime(path, (10**9, 10**9))
        path.chmod(0o700 if path.is_dir() else 0o600)
    return {path.name: path.read_bytes() for path in build(source, place / "built", **how)}


def main() -> None:
    """Check everything, and write dist/."""
    version = version_of(ROOT)
    problems = [*wrong_commit(version), *wrong_versions(ROOT)]
    refusal = "\n- ".join([f"{version} cannot be released:", *problems])
    if problems and "--rehearse" not in sys.argv[1:]:
        sys.exit(refusal)
    print(refusal if problems else f"{version} can be released.", flush=True)
    print(run([Path(sys.executable).parent / "cffconvert", "--validate", "--infile", "CITATION.cff"]).strip())
    check_recipe(ROOT / "packaging" / "conda" / "recipe.yaml")
    with tempfile.TemporaryDirectory(prefix="quorate-release-") as folder:
        first, second = (build_copy(Path(folder) / str(other), other=other) for other in (False, True))
    if first != second:
        sys.exit(f"two builds differ: {', '.join(name for name in first if first[name] != second.get(name))}")
    target = ROOT / "dist"
    target.mkdir(exist_ok=True)
    sums = {name: hashlib.sha256(content).hexdigest() for name, content in first.items()}
    for name, content in first.items():
        (target / name).write_bytes(content)
    (target / "SHA256SUMS").write_text("".join(f"{digest}  {name}\n" for name, digest in sums.items()))
    print("\n".join(f"{digest}  dist/{name}" for name, digest in sums.items()))
    print(
        "Built twice, the same bytes." + ("" if problems else f" To release: git tag --sign v{version}, and push it.")
    )


if __name__ == "__main__":
    main()
