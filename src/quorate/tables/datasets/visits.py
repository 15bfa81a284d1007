"""A generated clinic: visits of people who do not exist."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from quorate.core.checks import check_count
from quorate.tables.results import Table, make_table

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
