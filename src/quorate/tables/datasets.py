"""Small synthetic tables for examples and tutorials, and a generated clinic. They describe no real people.

    hospital    visits of people; will a visit end in an admission?
    bank        customers; will a customer accept an offer?
    census      households of a region; its tables are to be published
    triage      patients at a door, one number each; is a patient urgent?

Each has private rows, and most have public rows and new rows for queries. The rows never change: each table has a fixed
seed, so that an example prints the same rows everywhere. Noise is never seeded. `quorate datasets` writes them as CSV
files.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quorate.core.checks import check_count
from quorate.tables.results import Table, make_table, write_csv

__all__ = ["OUTCOMES", "Dataset", "bank", "census", "draw_visits", "hospital", "triage"]

OUTCOMES = ("admitted", "home")
_ARRIVALS = np.array(["walk-in", "referred", "ambulance"])
_WARDS = np.array(["general", "cardiology", "surgery", "geriatrics", "neurology"])
_VISITS_PER_PERSON = 200 / 120
_ACUTE = 0.38  # share of the visits on which the person is acutely ill
_SLIP = 0.03  # share of the outcomes that no vital sign explains: staffing, wishes, mistakes


def draw_visits(records: int, chance: np.random.Generator) -> Table:
    """Return this many generated visits, about five for every three people. None of them is real.

    The outcome follows from an acute illness that shows in the vital signs and the laboratory, from age and from
    earlier admissions; a part of it follows from nothing in the table.
    """
    records = check_count("records", records)
    people = max(1, round(records / _VISITS_PER_PERSON))
    person = np.sort(np.concatenate([np.arange(people), chance.integers(0, people, records - people)]))
    stay = {name: values[person] for name, values in _people(chance, people).items()}
    ill = chance.normal(-1.0, 0.45, records) + 0.3 * stay["frailty"]
    ill += np.where(chance.random(records) < _ACUTE, 2.4, 0.0)
    columns = _visits(chance, stay, ill)
    score = ill + 0.25 * (stay["age"] - 54) / 19 + 0.2 * columns["prior_admissions"] + 0.2 * (stay["smoker"] == "yes")
    score += 0.3 * (columns["arrival"] == "ambulance") + chance.normal(-0.35, 0.2, records)
    admitted = (score > 0) ^ (chance.random(records) < _SLIP)
    table = {"person": person, **columns, "outcome": np.where(admitted, *OUTCOMES)}
    return make_table(table).take(chance.permutation(records))


def _people(chance: np.random.Generator, people: int) -> dict[str, NDArray[Any]]:
    """Return what does not change between the visits of one person. Frailty is not in the table."""
    age = np.clip(chance.normal(54, 19, people), 18, 98).round()
    return {
        "age": age,
        "sex": np.where(chance.random(people) < 0.52, "female", "male"),
        "bmi": np.clip(chance.normal(27 + 0.02 * (age - 54), 4.8), 15, 60).round(1),
        "smoker": np.where(chance.random(people) < 0.23, "yes", "no"),
        "frailty": chance.normal(0, 1, people),
    }


def _visits(chance: np.random.Generator, stay: dict[str, NDArray[Any]], ill: NDArray[Any]) -> dict[str, NDArray[Any]]:
    """Return the columns of the table, one value a visit."""
    older, heavier = stay["age"] - 54, stay["bmi"] - 27
    systolic = chance.normal(125 + 0.35 * older + 0.8 * heavier - 6 * ill, 11)
    arrival = np.digitize(chance.random(ill.size) + 0.12 * ill, [0.55, 0.85])
    return {
        **{name: stay[name] for name in ("age", "sex", "bmi", "smoker")},
        "prior_admissions": chance.poisson(np.exp(-1.0 + 0.3 * stay["frailty"] + 0.01 * older)),
        "systolic": systolic.round(),
        "diastolic": (0.45 * systolic + chance.normal(24, 6, ill.size)).round(),
        "heart_rate": chance.normal(82 + 9 * ill, 8).round(),
        "breaths": chance.normal(17 + 2.4 * ill, 2.0).round(),
        "oxygen": np.clip(chance.normal(96 - 1.6 * ill - 0.8 * (stay["smoker"] == "yes"), 1.2), 70, 100).round(),
        "temperature": chance.normal(37.0 + 0.4 * ill, 0.4).round(1),
        "log_glucose": chance.normal(4.6 + 0.012 * heavier + 0.06 * ill, 0.2).round(3),
        "cholesterol": chance.normal(195 + 0.3 * older, 35).round(),
        "log_creatinine": chance.normal(-0.05 + 0.006 * older + 0.15 * ill, 0.2).round(3),
        "log_crp": chance.normal(2.2 + 0.7 * ill, 0.6).round(3),
        "log_lactate": chance.normal(0.2 + 0.25 * ill, 0.25).round(3),
        "arrival": _ARRIVALS[arrival],
        "ward": _WARDS[chance.integers(0, _WARDS.size, ill.size)],
    }


@dataclass(frozen=True, kw_only=True)
class Dataset:
    """A synthetic table in parts: `private` rows, `public` rows of the same kind, and `new` rows to ask about.

    `label` names the column to predict and `classes` its values; `groups` names the column that says whose row it is.
    `truth` has the labels of the new rows, known because they are invented. What a table lacks is None.

    >>> data = hospital()
    >>> data.private.num_rows, data.label, data.classes, data.groups
    (20000, 'outcome', ('admitted', 'home'), 'person')
    >>> data.new.column_names == [name for name in data.private.column_names if name != "outcome"]
    True
    """

    name: str
    about: str
    private: Table
    public: Table | None = None
    new: Table | None = None
    truth: Any = None
    label: str | None = None
    classes: tuple[str, ...] = ()
    groups: str | None = None

    def write(self, folder: str | Path) -> list[Path]:
        """Write the parts as private.csv, public.csv and new.csv into a folder, and return their paths."""
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        parts = {"private": self.private, "public": self.public, "new": self.new}
        written = []
        for name, table in parts.items():
            if table is not None:
                written.append(folder / f"{name}.csv")
                write_csv(table, written[-1])
        return written


def hospital() -> Dataset:
    """Return 20,000 visits of 12,000 people to a hospital, a public study of 4,000 other visits, and 500 new visits.

    >>> hospital().private.select(["person", "age", "ward", "outcome"]).slice(0, 2).to_pylist()
    [{'person': 1299, 'age': 78.0, 'ward': 'neurology', 'outcome': 'admitted'},
     {'person': 9312, 'age': 54.0, 'ward': 'surgery', 'outcome': 'admitted'}]
    """
    chance = np.random.default_rng(1)
    private, public, new = (draw_visits(rows, chance) for rows in (20_000, 4_000, 500))
    return Dataset(
        name="hospital",
        about="visits to a hospital: will the visit end in an admission?",
        private=private,
        public=public,
        new=new.drop_columns(["outcome"]),
        truth=new["outcome"],
        label="outcome",
        classes=OUTCOMES,
        groups="person",
    )


def bank() -> Dataset:
    """Return 20,000 customers of a bank, of whom one in eight says yes; 2,000 public rows without labels; 1,000 new.

    >>> bank().private["answer"].to_pylist().count("yes")
    2390
    """
    chance = np.random.default_rng(2)
    private, public, new = (_draw_customers(rows, chance) for rows in (20_000, 2_000, 1_000))
    return Dataset(
        name="bank",
        about="customers of a bank: who will say yes to an offer?",
        private=private,
        public=public.drop_columns(["answer"]),
        new=new.drop_columns(["answer"]),
        truth=new["answer"],
        label="answer",
        classes=("no", "yes"),
    )


def census() -> Dataset:
    """Return 30,000 people of a region with six columns each, and a public sample of 1,000 others.

    >>> census().private.column_names
    ['age', 'sex', 'region', 'education', 'work', 'income']
    """
    chance = np.random.default_rng(3)
    private, public = (_draw_people(rows, chance) for rows in (30_000, 1_000))
    return Dataset(name="census", about="people of a region: tables to publish", private=private, public=public)


def triage() -> Dataset:
    """Return 20,000 patients at a door with a severity from 0 to 100 and what became of them; and 60,000 that follow.

    Who has more than 61.5 could not wait. There are no public rows.

    >>> data = triage()
    >>> sorted(set(data.truth.to_pylist())), data.new.num_rows
    (['urgent', 'wait'], 60000)
    """
    chance = np.random.default_rng(4)
    private, new = (_draw_patients(rows, chance) for rows in (20_000, 60_000))
    return Dataset(
        name="triage",
        about="patients at a door: who cannot wait?",
        private=private,
        new=new.drop_columns(["outcome"]),
        truth=new["outcome"],
        label="outcome",
        classes=("urgent", "wait"),
    )


def _draw_customers(rows: int, chance: np.random.Generator) -> Table:
    age = np.clip(chance.normal(41, 12, rows), 18, 90).round()
    job = chance.choice(["office", "manual", "service", "retired", "student"], rows, p=[0.34, 0.28, 0.22, 0.1, 0.06])
    balance = np.round(np.expm1(chance.normal(6.6, 1.3, rows)) - 300)
    loan = chance.random(rows) < 0.5
    calls = 1 + chance.poisson(1.5, rows)
    earlier = chance.choice(["none", "no", "yes"], rows, p=[0.8, 0.14, 0.06])
    score = -3.5 + 0.28 * np.log1p(np.maximum(balance, 0)) - 1.4 * loan - 0.45 * (calls - 1)
    score += 0.06 * np.abs(age - 42) + 3.5 * (earlier == "yes") - 0.5 * (earlier == "no")
    score += np.where(job == "student", 1.1, np.where(job == "retired", 0.8, np.where(job == "manual", -0.7, 0.0)))
    columns = {"age": age, "job": job, "balance": balance, "loan": np.where(loan, "yes", "no"), "calls": calls}
    return make_table({**columns, "earlier_offer": earlier, "answer": np.where(_happens(score, chance), "yes", "no")})


def _draw_people(rows: int, chance: np.random.Generator) -> Table:
    region = chance.choice(["north", "south", "east", "west"], rows, p=[0.4, 0.3, 0.2, 0.1])
    age = np.clip(chance.gamma(5.0, 9.0, rows), 0, 99).round()
    schooling = chance.normal(size=rows) + 0.4 * (region == "north") - 0.01 * np.abs(age - 40)
    education = np.array(["school", "trade", "degree"])[np.digitize(schooling, [-0.2, 0.7])]
    works = (age >= 18) & (age < 67) & _happens(1.2 + 0.6 * (education == "degree"), chance)
    work = np.where(works, "works", np.where(age >= 67, "retired", "other"))
    income = np.exp(chance.normal(9.6 + 0.35 * (education == "degree") + 0.7 * works, 0.5)).round(-2)
    return make_table(
        {
            "age": age,
            "sex": chance.choice(["female", "male"], rows),
            "region": region,
            "education": np.where(age < 16, "school", education),
            "work": work,
            "income": np.where(age < 16, 0.0, income),
        }
    )


def _draw_patients(rows: int, chance: np.random.Generator) -> Table:
    severity = (100 * chance.random(rows)).round(2)
    return make_table({"severity": severity, "outcome": np.where(severity > 61.5, "urgent", "wait")})


def _happens(score: Any, chance: np.random.Generator) -> NDArray[np.bool_]:
    """Return which events happen by a logistic law."""
    happens: NDArray[np.bool_] = chance.random(len(score)) < 1 / (1 + np.exp(-score))
    return happens
