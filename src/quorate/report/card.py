"""The deployment card of a saved model: what its folder shows, and what its owner says of it.

An entry for the public registry of deployments (YAML), the questions of NIST SP 800-226 and an outline for
ISO/IEC 27559 (Markdown, and one page of HTML), and all of it as JSON, for output checkers.
"""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from quorate import __version__
from quorate.core.errors import InvalidInput
from quorate.models.saving.folder import Folder, PublishedFolder, open_folder
from quorate.report._pages import render

QUESTIONS = {  # that only the owner can answer
    "name": "What is this deployment called?",
    "curator": "Which organisation is responsible for the data?",
    "purpose": "What is it meant for?",
    "region": "Which region do the data come from?",
    "sector": "Which sector is it for?",
    "why": "Why this epsilon?",
}
NOT_COVERED = "Not covered by this software."
_UNITS = {"row": "Tuple-level", "record": "Tuple-level", "person": "User-level"}
_RELEASES = ("query release", "group release", "online release", "growing release")
_SECTORS = ("Technology", "Healthcare", "Education", "Government", "Energy", "Finance")  # that the registry lists
Sections = dict[str, dict[str, str]]  # question and answer, by section


@dataclass(frozen=True)
class Card:
    """What is known of a deployment: `facts` from its folder, `owner` from the person who answers for it."""

    facts: Mapping[str, Any]
    owner: Mapping[str, str]

    @classmethod
    def read(cls, folder: str | Path, owner: Mapping[str, str], *, verdict: str) -> "Card":
        """Return the card of a folder, with the verdict of `quorate verify` and the answers of the owner."""
        missing = [name for name in QUESTIONS if not owner.get(name, "").strip()]
        if missing:
            raise InvalidInput(f"a card must have an answer to each question, and these are missing: {missing}")
        opened = open_folder(folder)
        claim = _read_claim(opened)
        facts = {
            "kind": opened.kind,
            "type": opened.manifest.get("type"),
            "access": "published" if isinstance(opened, PublishedFolder) else "private",
            "claims": list(_claims_of(claim, opened.manifest)),
            "mechanisms": sorted(set(_mechanisms_of(claim["part"]))),
            "verdict": verdict,
            "fingerprint": opened.fingerprint,
            "software": f"quorate {__version__}",
            "written": datetime.now(UTC).date().isoformat(),
        }
        return cls(facts, {name: owner[name].strip() for name in QUESTIONS})

    @property
    def claim(self) -> Mapping[str, Any]:
        """The first claim, about the unit that the model protects."""
        first: Mapping[str, Any] = self.facts["claims"][0]
        return first

    def claim_texts(self) -> str:
        """Return all claims as one text."""
        return "; ".join(f"{_loss(claim)} for each {claim['unit']}" for claim in self.claims)

    @property
    def claims(self) -> list[Mapping[str, Any]]:
        """The claims, by unit."""
        listed: list[Mapping[str, Any]] = self.facts["claims"]
        return listed

    def registry_entry(self) -> dict[str, Any]:
        """Return the entry for the registry of deployments, of tier 3: a draft until the registry has looked at it."""
        facts, owner, is_release = self.facts, self.owner, self.facts["kind"] in _RELEASES
        is_published = facts["access"] == "published"
        updates = ("Static", "The records of one fit.")
        if "growing" in facts["kind"]:
            updates = ("Dynamic", "All updates share one budget.")
        parameters = {name: self.claim[name] for name in ("epsilon", "delta") if isinstance(self.claim[name], float)}
        sector = {listed.lower(): listed for listed in _SECTORS}.get(owner["sector"].lower())
        slug = "-".join(re.findall(r"\w+", f"{owner['name']} {owner['curator']} {facts['written'][:4]}".lower()))
        return {
            "url_slug": slug,
            "status": "Draft",
            "tier": 3,
            "deployment": {
                "basic": {
                    "name": owner["name"],
                    "data_curators": [owner["curator"]],
                    "intended_use": owner["purpose"],
                    "data_product_type": "Summary statistics" if is_release else "Machine learning model",
                    "data_product_region": owner["region"],
                    "description": f"A {facts['kind']} ({facts['type']}) made with {facts['software']}.",
                    "publication_date": facts["written"],
                    **({"data_product_sector": sector} if sector else {}),
                },
                "dp_variant": {
                    "variant_name": "Approximate DP" if self.claim["delta"] else "Pure DP",
                    "data_domain": "Tables; two that differ by one unit are neighbours.",
                    "unprotected_quantities": "The number of units, the columns and the classes.",
                },
                "privacy_loss": {
                    "privacy_unit": _UNITS.get(self.claim["unit"], self.claim["unit"]),
                    "privacy_unit_details": f"One {self.claim['unit']}.",
                    "privacy_parameters": parameters,
                    "privacy_parameters_details": self.claim_texts(),
                },
                "deployment_model": {
                    "model_name": "Central",
                    "model_name_details": "The owner holds the records and adds the noise.",
                    "actors": f"Curator: {owner['curator']}. {self._readers()}",
                    "release_type": "One release" if is_published else "Many releases",
                    "release_type_details": "One budget covers all of it, and is never refilled.",
                    "data_source_type": updates[0],
                    "data_source_type_details": updates[1],
                    "access_type": "Non-interactive" if is_published else "Interactive",
                    "access_type_details": self._readers(),
                },
                "accounting": {
                    "post_processing": "Of released values only.",
                    "composition": "One Renyi order" + ("." if is_published else ", in a durable ledger."),
                },
                "implementation": {
                    "preprocessing_and_hyperparameter_tuning": "Whatever is learned from private records is paid for.",
                    "mechanisms": ", ".join(facts["mechanisms"]) or "Not described.",
                    "justification": owner["why"],
                },
                "administrative": {
                    "notes": f"Sector: {owner['sector']}. `quorate verify` says: {facts['verdict']}.",
                    "registry_authors": [owner["curator"]],
                },
            },
        }

    def _readers(self) -> str:
        if self.facts["access"] == "published":
            return "Anybody may have the folder."
        return "The folder is only for its owner; callers get answers, which a ledger pays."

    def sections(self) -> Sections:
        """Return the questions and answers of the card."""
        facts, owner, check = self.facts, self.owner, f"`quorate verify` says: {self.facts['verdict']}."
        is_published = facts["access"] == "published"
        answers = "Nothing more is spent." if is_published else "Each answer is charged before it is drawn."
        return {
            "Deployment": {
                **{QUESTIONS[name]: text for name, text in owner.items()},
                "What is it?": f"A {facts['kind']}, {facts['access']}, made with {facts['software']}.",
                "Which folder?": f"The one whose manifest has the SHA-256 {facts['fingerprint']}.",
            },
            "Questions of NIST SP 800-226": {
                "What is the unit of privacy?": "; ".join(f"one {claim['unit']}" for claim in self.claims) + ".",
                "What is the privacy loss?": f"{self.claim_texts()}. {check}",
                "Why is it adequate?": owner["why"],
                "Which mechanisms are used?": ", ".join(facts["mechanisms"]) or "They are not described.",
                "How do losses add up?": f"At one Renyi order. {answers}",
                "What undermines the guarantee?": "A unit with several names; another release from the same records, "
                "which adds its loss; access to the host; timing of answers outside of a server that paces them.",
                "Is the implementation sound?": "Noise is drawn by exact samplers from the system's randomness. Proofs "
                "lie beside the code, and an auditor attacks it. Nobody outside has certified it.",
                "How were the data collected?": NOT_COVERED,
                "Who has access to the records?": NOT_COVERED,
                "Who has access to the results?": self._readers(),
            },
            "Outline for ISO/IEC 27559": {
                "Context: intended use": owner["purpose"],
                "Context: recipients": self._readers(),
                "Context: transparency and impact on people": NOT_COVERED,
                "Data: subjects and attributes": NOT_COVERED,
                "Identifiability: measure": f"Differential privacy. {self.claim_texts()}.",
                "Identifiability: adversary": "Knows all records but those of one unit, and any public data.",
                "Identifiability: mitigation": ", ".join(facts["mechanisms"]) or "Not described.",
                "Governance before release": check,
                "Governance during release": answers,
                "Governance after release: incidents and review": NOT_COVERED,
            },
        }

    def to_json(self) -> str:
        """Return everything on the card, for programs that check outputs."""
        parts = {"format": 1, **self.facts, "owner": self.owner, "sections": self.sections()}
        return json.dumps(parts | {"registry": self.registry_entry()}, indent=1) + "\n"

    def to_yaml(self) -> str:
        """Return the entry for the registry."""
        return "\n".join(_yaml_lines(self.registry_entry(), "")) + "\n"

    def to_markdown(self) -> str:
        """Return the card for people."""
        lines = [f"# {_one_line(self.owner['name'])}"]
        for title, answers in self.sections().items():
            lines += ["", f"## {title}"]
            lines += [f"- **{question}** {_one_line(answer)}" for question, answer in answers.items()]
        return "\n".join(lines) + "\n"

    def to_html(self) -> str:
        """Return the card as one page."""
        data = {"title": self.owner["name"], "software": {"quorate": __version__}, "verdict": self.facts["verdict"]}
        cards = {f"for each {claim['unit']}": _loss(claim) for claim in self.claims}
        sections = {  # marks of Markdown mean nothing here
            title: {question: answer.replace("`", "") for question, answer in answers.items()}
            for title, answers in self.sections().items()
        }
        return render("card.html", data=data, cards=cards, sections=sections)

    def write(self, out: Path) -> list[Path]:
        """Write the four files of the card to a new folder."""
        contents = {
            "card.md": self.to_markdown(),
            "registry.yaml": self.to_yaml(),
            "card.json": self.to_json(),
            "card.html": self.to_html(),
        }
        try:
            out.mkdir()
            for name, content in contents.items():
                (out / name).write_text(content, encoding="utf-8")
        except OSError as error:
            raise InvalidInput(f"{out} must be a new folder, got: {error.strerror}; name another") from None
        return [out / name for name in contents]


def _read_claim(folder: Folder) -> dict[str, Any]:
    try:
        claim: dict[str, Any] = json.loads((folder.path / "claim.json").read_bytes())
    except (OSError, ValueError):
        raise InvalidInput(f"{folder.path} has no claim.json; save the model again") from None
    return claim


def _claims_of(claim: Mapping[str, Any], manifest: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield each unit with its epsilon and delta, or what the manifest says of a claim that is not described."""
    for part in (claim, *claim.get("also", [])):
        numbers = {
            name: float(manifest.get(name, "nan")) if part[name] is None else part[name][0] / part[name][1]
            for name in ("epsilon", "delta")
        }
        figures = {name: value if value == value else "not described" for name, value in numbers.items()}  # noqa: PLR0124
        yield {"unit": part["unit"] or "unit", **figures}


def _mechanisms_of(part: Mapping[str, Any]) -> Iterator[str]:
    for mechanism in part.get("mechanisms", []):
        yield mechanism["name"]
    for release in part.get("releases", []):
        yield release["mechanism"]
    if part["rule"] == "neighbours":
        yield "discrete gaussian"
    for inner in [*part.get("parts", []), *([part["part"]] if "part" in part else [])]:
        yield from _mechanisms_of(inner)


def _yaml_lines(value: Any, indent: str) -> Iterator[str]:
    """Yield lines of YAML; a text is quoted as in JSON, which YAML reads."""
    for name, inner in value.items():
        if isinstance(inner, dict):
            yield f"{indent}{name}:"
            yield from _yaml_lines(inner, indent + "  ")
        else:
            text = json.dumps(inner, ensure_ascii=False)
            is_bare = isinstance(inner, float) and "." not in text  # 1e-06 is a text in YAML 1.1, and 1.0e-06 a number
            yield f"{indent}{name}: {text.replace('e', '.0e') if is_bare else text}"


def _loss(claim: Mapping[str, Any]) -> str:
    texts = {name: f"{value:g}" if isinstance(value, float) else value for name, value in claim.items()}
    return f"epsilon = {texts['epsilon']}, delta = {texts['delta']}"


def _one_line(text: str) -> str:
    """Return a text of the owner that cannot begin a line or a tag of Markdown."""
    return " ".join(text.split()).replace("<", "&lt;")
