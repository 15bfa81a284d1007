"""Bars of `quorate bench service`: answers through HTTP."""

from quorate.bench.figures import Bar

__all__ = ["SERVICE"]

SERVICE: dict[str, Bar | None] = {
    # `quorate bench service`: 1000 logistic teachers, 20 features, ids and a ledger, client and server on one machine;
    # 64 connections, or 16 for batches of 64 rows. An answer waits for its pace of 20 ms, and 50 ms more at most.
    "service.single_answers_per_second": (">=", 1500.0),
    "service.single_p99_milliseconds": ("<=", 70.0),
    "service.rows_per_second.batch64.json": (">=", 20_000.0),
    "service.rows_per_second.batch64.binary": (">=", 20_000.0),
    "service.speed_over_no_privacy.singles": None,
    "service.speed_over_no_privacy.json": None,
    "service.speed_over_no_privacy.binary": None,
    # How well the time of an answer tells close votes from clear ones, and the same with a planted delay.
    "service.timing.served.paced.auc_from_half": ("<=", 0.03),
    "service.timing.served.not_paced.auc_from_half": None,
    "service.timing.slow.paced.auc_from_half": ("<=", 0.03),
    "service.timing.slow.not_paced.auc_from_half": (">=", 0.1),
    # How well the time of a refusal, which costs nothing, tells whether another caller has asked about the same one of
    # 60 categories; and the same where inputs remember what callers have sent. 1,800 probes an arm: 0.01 is one
    # standard error.
    "service.callers.served.paced.rows512.auc_from_half": ("<=", 0.03),
    "service.callers.served.paced.rows4096.auc_from_half": ("<=", 0.03),
    "service.callers.served.not_paced.rows512.auc_from_half": None,
    "service.callers.served.not_paced.rows4096.auc_from_half": None,
    "service.callers.remembering.not_paced.rows512.auc_from_half": (">=", 0.1),
    "service.callers.remembering.not_paced.rows4096.auc_from_half": (">=", 0.3),
}
