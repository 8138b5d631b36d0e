#!/usr/bin/env python3
"""Writes tracking.json: what a Kalman filter over boxes believes, step by step.

    python3 tests/golden/make_tracking.py        (needs numpy; the committed file came from numpy 2.4)

The filter is written out as in the textbook: a state of eight numbers (centre, sides, and the rates of these), its
whole transition, measurement and covariance matrices, one frame after another. src/tracking goes axis by axis and
several frames at once. Noise is measured by the square root of the area as it is when a prediction begins.
"""

import json
import pathlib

import numpy as np

PLACE, RATE, FIRST_RATE = 1 / 20, 1 / 80, 1 / 16
rng = np.random.default_rng(20240531)

transition = np.eye(8)
transition[:4, 4:] = np.eye(4)
measurement = np.eye(4, 8)


def scale(mean):
    return np.sqrt(max(mean[2], 1.0) * max(mean[3], 1.0))


def start(z):
    deviation = scale(z) * np.repeat([2 * PLACE, FIRST_RATE], 4)
    return np.concatenate([z, np.zeros(4)]), np.diag(deviation**2)


def predict(mean, covariance, frames):
    noise = np.diag((scale(mean) * np.repeat([PLACE, RATE], 4)) ** 2)
    for _ in range(frames):
        mean = transition @ mean
        covariance = transition @ covariance @ transition.T + noise
    return mean, covariance


def correct(mean, covariance, z):
    noise = np.eye(4) * (PLACE * scale(mean)) ** 2
    total = measurement @ covariance @ measurement.T + noise
    gain = covariance @ measurement.T @ np.linalg.inv(total)
    mean = mean + gain @ (z - measurement @ mean)
    # Joseph's form: the longest way to the same.
    rest = np.eye(8) - gain @ measurement
    return mean, rest @ covariance @ rest.T + gain @ noise @ gain.T


def sequence(center, sides, velocity, growth, length):
    steps, belief = [], None
    for number in range(length):
        frames = int(rng.choice([1, 1, 1, 2, 5])) if number else 1
        center, sides = center + frames * velocity, sides + frames * growth
        place = np.concatenate([center, sides]) + rng.normal(0, 0.03, 4) * np.tile(sides, 2)
        edges = np.concatenate([place[:2] - place[2:] / 2, place[:2] + place[2:] / 2])
        # What a float holds, so that both sides begin with the same numbers.
        edges = edges.astype(np.float32)
        seen = number == 0 or rng.random() > 0.25
        wide = edges.astype(np.float64)
        z = np.concatenate([(wide[:2] + wide[2:]) / 2, wide[2:] - wide[:2]])
        if belief is None:
            belief = start(z)
        else:
            belief = predict(*belief, frames)
            if seen:
                belief = correct(*belief, z)
        mean, covariance = belief
        part = lambda axis: [covariance[axis, axis], covariance[axis, axis + 4], covariance[axis + 4, axis + 4]]
        rounded = lambda values: [float(f"{value:.9g}") for value in values]
        steps.append(
            {
                "frames": frames,
                "seen": [float(edge) for edge in edges] if seen else None,
                "state": rounded(mean),
                "covariance_x": rounded(part(0)),
                "covariance_height": rounded(part(3)),
            }
        )
    return steps


if __name__ == "__main__":
    vector = lambda x, y: np.array([x, y], float)
    sequences = [
        sequence(vector(300, 200), vector(40, 100), vector(4, -1), vector(0.2, 0.5), 30),
        sequence(vector(900, 700), vector(240, 110), vector(-9, 2), vector(-1, -0.4), 30),
        # Smaller than a pixel.
        sequence(vector(5, 5), vector(0.5, 0.6), vector(0.1, 0.1), vector(0, 0), 10),
    ]
    path = pathlib.Path(__file__).with_name("tracking.json")
    lines = [",\n".join(json.dumps(step, separators=(",", ":")) for step in steps) for steps in sequences]
    path.write_text("[[" + "],\n[".join(lines) + "]]\n")
    print(f"{path.name}: {path.stat().st_size} bytes")
