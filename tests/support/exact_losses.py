"""The privacy loss of discrete Gaussian noise on vectors of whole numbers, by its own law: nothing is bounded."""

import math

import numpy as np


def losses(scale, shifts):
    """The privacy loss of entries of one scale moved by `shifts`, and its probability, by enumeration.

    The loss is (|shifts|**2 + 2 <shifts, noise>) / (2 scale**2): whole numbers are convolved, nothing else.
    """
    radius = int(12 * scale) + 2
    noise = np.arange(-radius, radius + 1)
    law = np.exp(-(noise**2) / (2 * scale**2))
    law /= law.sum()
    total, reach = np.ones(1), 0
    for shift in shifts:
        spread = np.zeros(2 * radius * abs(shift) + 1)
        spread[:: abs(shift)] = law
        total, reach = np.convolve(total, spread), reach + radius * abs(shift)
    products = np.arange(-reach, reach + 1)
    return (sum(shift**2 for shift in shifts) + 2 * products) / (2 * scale**2), total


def joint(moved):
    """All losses of entries of these (scale, shift), with their probabilities."""
    loss, law = np.zeros(1), np.ones(1)
    for scale in sorted({scale for scale, _ in moved}):
        more, chance = losses(scale, [shift for other, shift in moved if other == scale])
        loss, law = (loss[:, None] + more[None, :]).ravel(), (law[:, None] * chance[None, :]).ravel()
    return loss, law


def exact_delta(moved, epsilon):
    loss, law = joint(moved)
    over = loss > epsilon
    return float((law[over] * -np.expm1(epsilon - loss[over])).sum())


def exact_renyi(moved, order):
    loss, law = joint(moved)
    return math.log(float((law * np.exp((order - 1) * loss)).sum())) / (order - 1)
