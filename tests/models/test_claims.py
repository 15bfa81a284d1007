"""Claims, as people read them."""

from types import SimpleNamespace

from quorate.models.everlasting import EverlastingClassifier


def test_the_claim_about_a_pool_is_a_whole_sentence():
    """It once read "(1, 1e-06)-so"."""
    guarantee = SimpleNamespace(epsilon=1.0, delta=1e-6)
    terms = SimpleNamespace(training=guarantee, queries=guarantee, pool=guarantee)
    text = EverlastingClassifier.claim_.fget(SimpleNamespace(unit_="row", terms_=terms, declared_=True, account_=None))
    assert "-so" not in text
    assert text.count("(1, 1e-06)-differentially private under replacement of one ") == 3
    assert text.endswith("under replacement of one point of the pool.")
