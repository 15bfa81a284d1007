"""Small synthetic tables for examples and tutorials. They describe no real people.

    hospital    visits of people; will a visit end in an admission?
    bank        customers; will a customer accept an offer?
    census      households of a region; its tables are to be published
    triage      patients at a door, one number each; is a patient urgent?

Each has private rows, and most have public rows and new rows for queries. The rows never change.
`quorate datasets` writes them as CSV files.
"""

from quorate.tables.datasets.generated import Dataset, bank, census, hospital, triage

__all__ = ["Dataset", "bank", "census", "hospital", "triage"]
