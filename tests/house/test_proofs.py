"""Every citation of a proof is true: the step exists, and every file that a proof or a README names is there."""

import re
from pathlib import Path

import pytest

import quorate

PACKAGE = Path(quorate.__file__).parent
ROOT = Path(__file__).parents[2]
NUMBERS = r"steps? (\d+(?:(?:, | and | to |, and )\d+)*)"
CITATION = re.compile(
    rf"(?:(?P<before>[\w/.]*PROOF\w*\.md)`?, |proof(?:: |, )){NUMBERS}(?: of `?(?P<after>[\w/.]*PROOF\w*\.md))?",
    re.IGNORECASE,
)
STEP = re.compile(r"^(?:#+ )?(?:\*\*)?(?:Step )?(\d+)[a-z]?[.:]", re.MULTILINE)
NAMED_FILE = re.compile(r"`((?:\w+/)*\w+\.(?:py|md))`")


def steps_of(text):
    """Return the numbers of the steps that a proof has."""
    return {int(number) for number in STEP.findall(text)}


def cited_steps(numbers):
    """Return the step numbers of a citation: "3", "3 and 5", "1, 2 and 4" or "1 to 6"."""
    first, *rest = (int(number) for number in re.findall(r"\d+", numbers))
    return set(range(first, rest[0] + 1)) if " to " in numbers else {first, *rest}


def proofs_beside(path, package=PACKAGE):
    """Return the proofs that a module cites where it names none: its own, those beside it, or those of its package."""
    own = path.with_name(f"PROOF_{path.stem}.md")
    if own.is_file():
        return [own]
    for folder in path.parents:
        if proofs := sorted(folder.glob("PROOF*.md")):
            return proofs
        if folder == package:
            break
    return []


def find_named(name, path, package=PACKAGE):
    """Return the proofs that a citation names, by its path from the module or from the package."""
    return [folder / name for folder in (path.parent, *path.parents, package) if (folder / name).is_file()][:1]


def false_citations(path, package=PACKAGE):
    """Return the citations of a module that name a proof or a step that is not there."""
    wrong = []
    for match in CITATION.finditer(" ".join(line.strip(" #") for line in path.read_text(encoding="utf-8").split("\n"))):
        name = match["before"] or match["after"]
        proofs = find_named(name, path, package) if name else proofs_beside(path, package)
        steps = set().union(*(steps_of(proof.read_text(encoding="utf-8")) for proof in proofs))
        if not cited_steps(match[2]) <= steps:
            wrong.append(f"{path.relative_to(package)}: {match[0]}")
    return wrong


def missing_files(document, package=PACKAGE, root=ROOT):
    """Return the files that a document names and that are neither beside it nor below the package or the root."""
    folders = [document.parent, package, root, root / "tests", *document.parent.iterdir()]
    names = NAMED_FILE.findall(document.read_text(encoding="utf-8"))
    return [f"{document}: {name}" for name in names if not any((folder / name).is_file() for folder in folders)]


def test_every_cited_step_is_in_its_proof():
    assert [wrong for path in sorted(PACKAGE.rglob("*.py")) for wrong in false_citations(path)] == []


@pytest.mark.parametrize("document", sorted(PACKAGE.rglob("*.md")), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_every_file_that_a_proof_names_is_there(document):
    assert missing_files(document) == []


def test_the_rules_find_what_is_wrong(tmp_path):
    (tmp_path / "PROOF.md").write_text("1. **First.** Nothing.\n2. **Second** (`code.py`, `gone.py`).\n## 3. Third\n")
    (tmp_path / "PROOF_own.md").write_text("1. Alone.\n")
    code, own = tmp_path / "code.py", tmp_path / "own.py"
    code.write_text(
        "a = 1  # proof: step 2\nb = 2  # proof: steps 1 and 4\n# PROOF.md, steps 1 to\n# 3; PROOF_no.md, step 1\n"
    )
    own.write_text("a = 1  # proof: step 1\nb = 2  # proof: step 2\nc = 3  # proof: step 2 of PROOF.md\n")
    assert false_citations(code, tmp_path) == ["code.py: proof: steps 1 and 4", "code.py: PROOF_no.md, step 1"]
    assert false_citations(own, tmp_path) == ["own.py: proof: step 2"]
    assert missing_files(tmp_path / "PROOF.md", tmp_path, tmp_path) == [f"{tmp_path / 'PROOF.md'}: gone.py"]
