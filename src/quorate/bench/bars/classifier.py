"""Bars of `quorate bench classifier`: learners, the price of privacy in time, the planner, students."""

from quorate.bench.figures import Bar

__all__ = ["CLASSIFIER"]

CLASSIFIER: dict[str, Bar | None] = {
    # `quorate bench classifier`: 10,000 logistic teachers of 50 rows and 20 features, 100,000 queries, one thread each.
    "learners.logistic_times_faster_than_a_loop": (">=", 25.0),
    "learners.ballots_equal_to_scikit_learn": (">=", 0.99),
    "learners.counting_share_of_bare_product": (">=", 0.5),
    "learners.counting_peak_bytes": ("<=", 2.0**30),
    "learners.counting_share_of_bare_product.any_scale": None,  # columns of any size, which takes three products
    # 250 decision trees, two classes, batches of 1000: CPU time of a prediction beyond counting the ballots, and beyond
    # the bare predictions of the trees. A noisy maximum waits for its Gaussian sampler: reported, not promised.
    "overhead.quorum.microseconds_a_query": ("<=", 20.0),
    "overhead.quorum.share_of_250_trees": ("<=", 0.25),
    "overhead.sharp_majority.microseconds_a_query": ("<=", 20.0),
    "overhead.sharp_majority.share_of_250_trees": ("<=", 0.25),
    "overhead.noisy_max.microseconds_a_query": None,
    "overhead.noisy_max.share_of_250_trees": None,
    # The planner's choice against the best single aggregator, answered and right, on both vote files.
    "auto.worst_gap_percent.mnist": ("<=", 1.0),
    "auto.worst_gap_percent.adult": ("<=", 1.0),
    # The same where a query without a quorum gets a label at random, so that every query is answered.
    "auto.guessing.worst_gap_percent.mnist": ("<=", 1.0),
    "auto.guessing.worst_gap_percent.adult": ("<=", 1.0),
    # Students on UCI Adult and MNIST, delta 1e-5, for all data sets.
    "student.adult.accuracy_percent.epsilon1": (">=", 83.3),
    "student.adult.smallest_epsilon_for_83_7": None,
    "student.adult.not_private_percent": None,
    "student.adult.any_columns_percent": None,
    "student.mnist.accuracy_percent.epsilon1": None,
    "student.mnist.accuracy_percent.epsilon2": None,
}
