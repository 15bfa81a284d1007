"""Small synthetic tables that ship with the package, for examples and tutorials. Nobody in them is real.

    hospital    visits of people; will a visit end in an admission?
    bank        customers; who will say yes to an offer?
    census      households of a region; its tables are to be published
    triage      patients at a door, one number each; who cannot wait?

Each has private rows, and most have public rows and new ones to ask about. They are the same every time.
`quorate datasets` writes them as CSV files.
"""

from quorate.tables.datasets.generated import Dataset, bank, census, hospital, triage

__all__ = ["Dataset", "bank", "census", "hospital", "triage"]
