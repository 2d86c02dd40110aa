from __future__ import annotations

import numpy as np
import pytest

from covey.theory import Curvature, estimated_curvature, largest_of, softmax_curvature


def softmax_hessian(features: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Of the mean cross-entropy in the weights (C, F + 1), flattened; it does not depend on the labels."""
    x = np.concatenate([features, np.ones((len(features), 1))], axis=1)
    outputs = x @ weights.T
    p = np.exp(outputs - outputs.max(axis=1, keepdims=True))
    p /= p.sum(axis=1, keepdims=True)
    inner = np.einsum("nc,cd->ncd", p, np.eye(p.shape[1])) - np.einsum("nc,nd->ncd", p, p)
    size = weights.size
    return np.einsum("ncd,nf,ng->cfdg", inner, x, x).reshape(size, size) / len(x)


@pytest.mark.parametrize("classes", [2, 3, 10])
def test_softmax_curvature_is_never_exceeded(classes: int) -> None:
    rng = np.random.default_rng(classes)
    features = rng.standard_normal((40, 4)) + 0.5
    found = softmax_curvature(features, classes)
    assert found.kind == "bound"
    for scale in (0.0, 0.1, 1.0, 10.0):
        hessian = softmax_hessian(features, scale * rng.standard_normal((classes, 5)))
        values = np.linalg.eigvalsh(hessian)
        assert values[-1] <= found.largest * (1 + 1e-12)
        assert values.mean() <= found.mean * (1 + 1e-12)
        assert values[0] == pytest.approx(0.0, abs=1e-10)  # equal shifts of all outputs: not strongly convex


def test_softmax_curvature_is_reached_between_two_even_classes() -> None:
    features = np.random.default_rng(0).standard_normal((30, 3))
    values = np.linalg.eigvalsh(softmax_hessian(features, np.zeros((2, 4))))
    assert softmax_curvature(features, 2).largest == pytest.approx(values[-1])
    assert softmax_curvature(features, 2).mean == pytest.approx(values.mean())


def test_features_must_be_a_table() -> None:
    with pytest.raises(ValueError, match="samples, features"):
        softmax_curvature(np.zeros((3, 2, 2)), 4)


def test_power_iteration_finds_the_largest_eigenvalue_of_either_sign() -> None:
    rng = np.random.default_rng(1)
    basis = np.linalg.qr(rng.standard_normal((30, 30)))[0]
    for top in (5.0, -5.0):
        matrix = basis @ np.diag([top, *np.linspace(0.1, 2.0, 29)]) @ basis.T
        found, vector = estimated_curvature(lambda v, m=matrix: m @ v, np.zeros(30), rng, iterations=60, probes=400)
        assert found.largest == pytest.approx(5.0, rel=0.02)
        assert found.mean == pytest.approx(np.trace(matrix) / 30, rel=0.1)
        assert found.kind == "estimate"
        assert abs(vector @ basis[:, 0]) > 0.99


def test_a_good_start_saves_products() -> None:
    matrix, calls = np.diag([4.0, 1.0, 1.0]), []

    def product(v: np.ndarray) -> np.ndarray:
        calls.append(v)
        return matrix @ v

    found, _ = estimated_curvature(product, np.array([2.0, 0.0, 0.0]), np.random.default_rng(0), probes=0)
    assert found.largest == 4.0
    assert len(calls) == 2


def test_a_flat_loss_has_no_curvature() -> None:
    found, _ = estimated_curvature(lambda v: 0.0 * v, np.ones(4), np.random.default_rng(0))
    assert (found.largest, found.mean) == (0.0, 0.0)


def test_the_largest_of_several_is_a_bound_only_if_all_are() -> None:
    several = [Curvature(2.0, 0.5, "bound"), Curvature(1.0, 0.7, "bound")]
    assert largest_of(several) == Curvature(2.0, 0.7, "bound")
    assert largest_of([*several, Curvature(3.0, 0.1, "estimate")]) == Curvature(3.0, 0.7, "estimate")
