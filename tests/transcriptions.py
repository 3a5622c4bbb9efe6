"""Federated algorithms written out once more, in plain NumPy, to serve as oracles in tests.

Every function follows the pseudo-code of the paper named in its docstring, client by client, on quadratic clients
F_k(w) = 1/2 (w - b_k)^T A_k (w - b_k). Nothing is shared with the library under test.

Weights: p_k (summing to 1) stand wherever a paper has 1/m, 1/N or n_k/n.
  * a mean over the active clients is                    sum_{k in S} p_k r_k / sum_{k in S} p_k   -> cohort_mean
  * a sum over the active clients with a factor 1/m is   sum_{k in S} p_k r_k                      -> cohort_sum

Inputs are float64 NumPy arrays. Every algorithm returns the server's models after rounds 0, ..., len(cohorts) - 1.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

Array = np.ndarray
Cohorts = Sequence[Sequence[int]]


class Federation(NamedTuple):
    """N quadratic clients in d dimensions, with population weights."""

    A: Array  # [N, d, d], symmetric positive definite
    b: Array  # [N, d], the clients' own minimisers
    p: Array  # [N], sums to 1


def grad(fed: Federation, k: int, w: Array) -> Array:
    """Gradient of F_k at w."""
    return fed.A[k] @ (w - fed.b[k])


def optimum(fed: Federation) -> Array:
    """Minimiser of sum_k p_k F_k."""
    everyone = range(len(fed.p))
    return np.linalg.solve(
        sum(fed.p[k] * fed.A[k] for k in everyone), sum(fed.p[k] * fed.A[k] @ fed.b[k] for k in everyone)
    )


def argmin(fed: Federation, k: int, linear: Array | float, penalty: float, centre: Array) -> Array:
    """Exact minimiser over v of F_k(v) + <linear, v> + penalty/2 |v - centre|^2."""
    identity = np.eye(len(centre))
    return np.linalg.solve(fed.A[k] + penalty * identity, fed.A[k] @ fed.b[k] + penalty * centre - linear)


def prox(fed: Federation, k: int, y: Array, eta: float) -> Array:
    """Exact prox_{eta F_k}(y) = argmin over v of F_k(v) + |v - y|^2 / (2 eta)."""
    return argmin(fed, k, 0.0, 1.0 / eta, y)


def gd(fed: Federation, k: int, start: Array, lr: float, steps: int, extra: Callable[[Array], Array] | None = None):
    """`steps` full-gradient steps on F_k from `start`; `extra(v)` is added to the gradient at v."""
    v = start
    for _ in range(steps):
        v = v - lr * (grad(fed, k, v) + (0.0 if extra is None else extra(v)))
    return v


def cohort_sum(fed: Federation, cohort: Sequence[int], r: dict[int, Array] | list[Array]) -> Array:
    """sum_{k in S} p_k r_k."""
    return sum(fed.p[k] * r[k] for k in cohort)


def cohort_mean(fed: Federation, cohort: Sequence[int], r: dict[int, Array] | list[Array]) -> Array:
    """sum_{k in S} p_k r_k / sum_{k in S} p_k."""
    return cohort_sum(fed, cohort, r) / sum(fed.p[k] for k in cohort)


def mean_gd_delta(fed: Federation, w: Array, cohort: Sequence[int], eta_l: float, steps: int) -> Array:
    """Cohort mean of Delta_k = (model after `steps` local gradient steps) - w."""
    delta = {k: gd(fed, k, w, eta_l, steps) - w for k in cohort}
    return cohort_mean(fed, cohort, delta)


def fedsgd(fed, w, cohorts: Cohorts, *, lr) -> list[Array]:
    """FedSGD (McMahan et al. 2017, AISTATS): one server step along the cohort's mean gradient."""
    out = []
    for cohort in cohorts:
        g = {k: grad(fed, k, w) for k in cohort}
        w = w - lr * cohort_mean(fed, cohort, g)
        out.append(w)
    return out


def fedavg(fed, w, cohorts: Cohorts, *, lr, eta_l, steps) -> list[Array]:
    """Generalized FedAvg (Yang, Fang, Liu 2021, ICLR, Alg. 1): x <- x + eta * mean Delta; lr=1 is FedAvg."""
    out = []
    for cohort in cohorts:
        w = w + lr * mean_gd_delta(fed, w, cohort, eta_l, steps)
        out.append(w)
    return out


def fedavgm(fed, w, cohorts: Cohorts, *, lr, beta, eta_l, steps) -> list[Array]:
    """FedAvgM (Hsu et al. 2019; Reddi et al. 2021), Keras momentum: lr inside the buffer, no dampening."""
    velocity = np.zeros_like(w)
    out = []
    for cohort in cohorts:
        velocity = beta * velocity + lr * mean_gd_delta(fed, w, cohort, eta_l, steps)
        w = w + velocity
        out.append(w)
    return out


def fedopt_momentum(fed, w, cohorts: Cohorts, *, lr, momentum, eta_l, steps) -> list[Array]:
    """FedOpt (Reddi et al. 2021, Alg. 1) with a generic momentum-SGD server: lr outside the trace."""
    u = np.zeros_like(w)
    out = []
    for cohort in cohorts:
        pseudo_gradient = -mean_gd_delta(fed, w, cohort, eta_l, steps)
        u = momentum * u + pseudo_gradient
        w = w - lr * u
        out.append(w)
    return out


def fedprox(fed, w, cohorts: Cohorts, *, mu, lr, eta_l, steps) -> list[Array]:
    """FedProx (Li et al. 2020, MLSys, Alg. 2): local steps on F_k(v) + mu_k/2 |v - w|^2 from w; mu scalar or [N]."""
    mu = np.broadcast_to(np.asarray(mu, dtype=float), (len(fed.p),))
    out = []
    for cohort in cohorts:
        delta = {k: gd(fed, k, w, eta_l, steps, lambda v, k=k, w=w: mu[k] * (v - w)) - w for k in cohort}
        w = w + lr * cohort_mean(fed, cohort, delta)
        out.append(w)
    return out


def fedprox_linear(fed, w, cohorts: Cohorts, *, mu, lr, eta_l, steps) -> list[Array]:
    """FedProx in FedDyn's program until January 2022: local steps on F_k(v) - mu_k <v, w> from w."""
    mu = np.broadcast_to(np.asarray(mu, dtype=float), (len(fed.p),))
    out = []
    for cohort in cohorts:
        delta = {k: gd(fed, k, w, eta_l, steps, lambda v, k=k, w=w: -mu[k] * w) - w for k in cohort}
        w = w + lr * cohort_mean(fed, cohort, delta)
        out.append(w)
    return out


def fedasync(fed, w, cohorts: Cohorts, *, alpha, rho, eta_l, steps) -> list[Array]:
    """FedAsync (Xie et al. 2019, Alg. 1) without staleness: local steps on F_k(v) + rho/2 |v - w|^2, then a mean."""
    out = []
    for cohort in cohorts:
        v = {k: gd(fed, k, w, eta_l, steps, lambda v, w=w: rho * (v - w)) for k in cohort}
        w = (1 - alpha) * w + alpha * cohort_mean(fed, cohort, v)
        out.append(w)
    return out


def scaffold(fed, w, cohorts: Cohorts, *, lr, option, first_contact, eta_l, steps, divisor=None) -> list[Array]:
    """SCAFFOLD (Karimireddy et al. 2020, ICML, Alg. 1), options I and II.

    first_contact, for a client never seen before:
      "zero"          c_k = 0 (the original);
      "c"             the client works with c_k = c, the server's sum gets the whole c_k^+, so c = sum_k p_k c_k holds
                      with c_k = 0 for the clients not seen yet;
      "c-as-printed"  c_k = c everywhere, the server's sum gets c_k^+ - c (Reddi et al. 2021, Alg. 6).
    divisor: what FedDyn's program divides w - y by in option II, K times the first round's step size.
    """
    divisor = steps * eta_l if divisor is None else divisor
    if option not in ("I", "II") or first_contact not in ("zero", "c", "c-as-printed"):
        raise ValueError((option, first_contact))
    c = np.zeros_like(w)
    c_k = [None] * len(fed.p)  # None: not met yet
    out = []
    for cohort in cohorts:
        delta_w, delta_c = {}, {}
        for k in cohort:
            if c_k[k] is not None:
                used = known_to_server = c_k[k]
            elif first_contact == "zero":
                used = known_to_server = np.zeros_like(w)
            elif first_contact == "c":
                used, known_to_server = c, np.zeros_like(w)
            else:
                used = known_to_server = c
            y = gd(fed, k, w, eta_l, steps, extra=lambda v, used=used, c=c: c - used)
            c_plus = grad(fed, k, w) if option == "I" else used - c + (w - y) / divisor
            delta_w[k] = y - w
            delta_c[k] = c_plus - known_to_server
            c_k[k] = c_plus
        w = w + lr * cohort_mean(fed, cohort, delta_w)
        c = c + cohort_sum(fed, cohort, delta_c)
        out.append(w)
    return out


def feddane(fed, w, cohorts: Cohorts, *, mu, correction, decay, second_cohorts=None, pipelined=False) -> list[Array]:
    """FedDANE (Li et al. 2019, Asilomar, Alg. 2), exact local solves; decayed and pipelined as in its discussion.

    mu is a number, or [N] for the device-specific mu_k of theorem 7.

    Client: argmin over v of F_k(v) + gamma_t <g - grad F_k(w), v - w> + mu/2 |v - w|^2, gamma_t = correction * decay^t.
    Two exchanges: g is the first cohort's mean gradient at w; the second cohort (default: the same) solves.
    Pipelined, one exchange: g is the mean gradient of the previous round's cohort at the previous round's w, the
    client's own gradient is fresh, and round 0, which has no g yet, goes without correction.
    """
    if pipelined and second_cohorts is not None:
        raise ValueError("pipelined FedDANE has a single exchange, hence a single cohort")
    mu = np.broadcast_to(np.asarray(mu, dtype=float), (len(fed.p),))
    previous_g = None
    out = []
    for t, cohort in enumerate(cohorts):
        gamma = correction * decay**t
        g = cohort_mean(fed, cohort, {k: grad(fed, k, w) for k in cohort})
        solvers = cohort if second_cohorts is None else second_cohorts[t]
        g_used = previous_g if pipelined else g
        w_k = {}
        for k in solvers:
            pull = 0.0 if g_used is None else gamma * (g_used - grad(fed, k, w))
            w_k[k] = argmin(fed, k, pull, mu[k], w)
        w = cohort_mean(fed, solvers, w_k)
        previous_g = g
        out.append(w)
    return out


def _dynamic_regularisation(fed, w, cohorts, alpha, local) -> list[Array]:
    """The loop common to Alg. 1 and Alg. 2 of Acar et al. 2021, ICLR; `local(k, w, h_k)` gives theta_k."""
    h_k = [np.zeros_like(w) for _ in fed.p]  # Alg. 1 calls it grad L_k(theta_k)
    h = np.zeros_like(w)
    out = []
    for cohort in cohorts:
        theta, shift = {}, {}
        for k in cohort:
            theta[k] = local(k, w, h_k[k])
            shift[k] = theta[k] - w
            h_k[k] = h_k[k] - alpha * shift[k]
        h = h - alpha * cohort_sum(fed, cohort, shift)
        w = cohort_mean(fed, cohort, theta) - h / alpha
        out.append(w)
    return out


def feddyn(fed, w, cohorts: Cohorts, *, alpha) -> list[Array]:
    """FedDyn (Acar et al. 2021, Alg. 1): exact argmin of F_k(v) - <h_k, v> + alpha/2 |v - w|^2, one alpha for all."""
    return _dynamic_regularisation(fed, w, cohorts, alpha, lambda k, w, h_k: argmin(fed, k, -h_k, alpha, w))


def feddyn_code(fed, w, cohorts: Cohorts, *, alpha) -> list[Array]:
    """FedDyn as its authors' code runs it on devices of unequal sizes; fed.p stands for n_k / n. Exact local solves.

    n_k enters alpha_k only: the server's means, that of the active models and that of all h_k, are plain.
    """
    m = len(fed.p)
    relative_size = fed.p / np.mean(fed.p)
    h = np.zeros((m, len(w)))  # the running sums of (device's model - cloud's)
    cloud = w
    out = []
    for cohort in cohorts:
        models = []
        for k in cohort:
            alpha_k = alpha / relative_size[k]
            # mean loss + alpha_k <v, h_k - cloud>, and alpha_k / 2 |v|^2 by weight decay
            model = np.linalg.solve(fed.A[k] + alpha_k * np.eye(len(w)), fed.A[k] @ fed.b[k] - alpha_k * (h[k] - cloud))
            h[k] += model - cloud
            models.append(model)
        cloud = np.mean(models, axis=0) + np.mean(h, axis=0)
        out.append(cloud)
    return out


def feddyn_onegd(fed, w, cohorts: Cohorts, *, alpha) -> list[Array]:
    """FedDynOneGD (Acar et al. 2021, appendix, Alg. 2): one gradient step of length 1/alpha instead of the argmin."""
    return _dynamic_regularisation(fed, w, cohorts, alpha, lambda k, w, h_k: w - (grad(fed, k, w) - h_k) / alpha)


def fedsplit(fed, w, cohorts: Cohorts, *, eta, averaging) -> list[Array]:
    """FedSplit (Pathak & Wainwright 2020, NeurIPS), exact prox; inactive z_k frozen, and the server averages "all" z_k
    or the "active" ones (Acar et al. 2021, appendix)."""
    if averaging not in ("all", "active"):
        raise ValueError(averaging)
    everyone = range(len(fed.p))
    z = [w for _ in everyone]
    out = []
    for cohort in cohorts:
        for k in cohort:
            half = prox(fed, k, 2 * w - z[k], eta)
            z[k] = z[k] + 2 * (half - w)
        w = cohort_sum(fed, everyone, z) if averaging == "all" else cohort_mean(fed, cohort, z)
        out.append(w)
    return out


def fedpd(fed, w, cohorts: Cohorts, *, eta, repeats) -> list[Array]:
    """FedPD (Zhang et al. 2021, IEEE TSP), exact primal step; all clients always (cohorts only counts the rounds).

    repeats[t] primal-dual updates, each client going on from its own x0_k, precede the t-th averaging of the x0_k.
    """
    everyone = range(len(fed.p))
    lam = [np.zeros_like(w) for _ in everyone]
    out = []
    for t in range(len(cohorts)):
        x0 = [w for _ in everyone]
        for _ in range(repeats[t]):
            for k in everyone:
                x = argmin(fed, k, lam[k], 1.0 / eta, x0[k])
                lam[k] = lam[k] + (x - x0[k]) / eta
                x0[k] = x + eta * lam[k]
        w = cohort_sum(fed, everyone, x0)
        out.append(w)
    return out


def fedpd_steps(fed, w, cohorts: Cohorts, *, eta, repeats, start, eta_l, steps) -> list[Array]:
    """FedPD as above, but the primal step is `steps` gradient steps, from x0_k ("x0"), or from the client's last x_k
    ("own"), as in the code of Tran-Dinh et al. 2021, whose clients load a model once, before the first round."""
    everyone = range(len(fed.p))
    lam = [np.zeros_like(w) for _ in everyone]
    x = [w for _ in everyone]
    out = []
    for t in range(len(cohorts)):
        x0 = [w for _ in everyone]
        for _ in range(repeats[t]):
            for k in everyone:
                v = {"x0": x0, "own": x}[start][k]
                for _ in range(steps):
                    v = v - eta_l * (grad(fed, k, v) + lam[k] + (v - x0[k]) / eta)
                x[k] = v
                lam[k] = lam[k] + (x[k] - x0[k]) / eta
                x0[k] = x[k] + eta * lam[k]
        w = cohort_sum(fed, everyone, x0)
        out.append(w)
    return out


def feddr(fed, w, cohorts: Cohorts, *, eta, alpha, prox=lambda v, eta: v) -> list[Array]:
    """FedDR (Tran-Dinh et al. 2021, NeurIPS, Alg. 1), exact local prox; prox(v, eta) = prox_{eta g}(v) at the server.

    Lazy start x_k = y_k = x_hat_k = w: a client's first visit is an ordinary update, so that with everyone the first
    round is the paper's initialisation. The aggregate sum_k p_k x_hat_k is recomputed from all clients in every round.
    """
    everyone = range(len(fed.p))
    x, y, x_hat = [w for _ in everyone], [w for _ in everyone], [w for _ in everyone]
    x_bar = w
    out = []
    for cohort in cohorts:
        for k in cohort:
            y[k] = y[k] + alpha * (x_bar - x[k])
            x[k] = argmin(fed, k, 0.0, 1.0 / eta, y[k])
            x_hat[k] = 2 * x[k] - y[k]
        x_bar = prox(cohort_sum(fed, everyone, x_hat), eta)
        out.append(x_bar)
    return out


def _adaptive_server(
    fed, w, cohorts, grow, scale, *, lr, beta1, tau, eta_l, steps, initial_v=None, second_moment="smoothed"
) -> list[Array]:
    """Reddi et al. 2021, ICLR, Alg. 2: `grow(v, u)` is the line that updates v, `scale(t)` multiplies lr in round t.

    v_{-1} = tau^2 unless initial_v is given; v is fed the "smoothed" Delta_t as printed, or the "raw" mean delta.
    """
    if second_moment not in ("smoothed", "raw"):
        raise ValueError(second_moment)
    m = np.zeros_like(w)
    v = np.zeros_like(w) + (tau**2 if initial_v is None else initial_v)
    out = []
    for t, cohort in enumerate(cohorts):
        delta = mean_gd_delta(fed, w, cohort, eta_l, steps)
        m = beta1 * m + (1 - beta1) * delta
        v = grow(v, m if second_moment == "smoothed" else delta)
        w = w + lr * scale(t) * m / (np.sqrt(v) + tau)
        out.append(w)
    return out


def _bias(correction: str, beta1: float, beta2: float) -> Callable[[int], float]:
    """sqrt(1 - beta2^n) / (1 - beta1^n); the first round (t = 0) has n = 1 in Keras and n = 2 in Flower."""
    if correction == "none":
        return lambda t: 1.0
    first = {"keras": 1, "flower": 2}[correction]
    return lambda t: np.sqrt(1 - beta2 ** (t + first)) / (1 - beta1 ** (t + first))


def fedadagrad(fed, w, cohorts: Cohorts, **options) -> list[Array]:
    """FedAdagrad (Reddi et al. 2021, Alg. 2); options lr, beta1, tau, eta_l, steps, initial_v, second_moment."""
    return _adaptive_server(fed, w, cohorts, lambda v, u: v + u**2, lambda t: 1.0, **options)


def fedadam(fed, w, cohorts: Cohorts, *, beta1, beta2, bias_correction="none", **options) -> list[Array]:
    """FedAdam (Reddi et al. 2021, Alg. 2); further options lr, tau, eta_l, steps, initial_v, second_moment."""

    def grow(v, u):
        return beta2 * v + (1 - beta2) * u**2

    return _adaptive_server(fed, w, cohorts, grow, _bias(bias_correction, beta1, beta2), beta1=beta1, **options)


def fedyogi(fed, w, cohorts: Cohorts, *, beta1, beta2, bias_correction="none", **options) -> list[Array]:
    """FedYogi (Reddi et al. 2021, Alg. 2); further options lr, tau, eta_l, steps, initial_v, second_moment."""

    def grow(v, u):
        return v - (1 - beta2) * u**2 * np.sign(v - u**2)

    return _adaptive_server(fed, w, cohorts, grow, _bias(bias_correction, beta1, beta2), beta1=beta1, **options)


def lookahead_adam(fed, w, cohorts: Cohorts, *, lr, adam_lr, beta1, beta2, eps, steps) -> list[Array]:
    """Lookahead (M. Zhang et al. 2019; Reddi et al. 2021, B.3) around Adam (Kingma & Ba 2015, Alg. 1), fresh slots."""
    out = []
    for cohort in cohorts:
        delta = {}
        for k in cohort:
            x, m, v = w, np.zeros_like(w), np.zeros_like(w)
            for i in range(1, steps + 1):
                g = grad(fed, k, x)
                m = beta1 * m + (1 - beta1) * g
                v = beta2 * v + (1 - beta2) * g**2
                m_hat, v_hat = m / (1 - beta1**i), v / (1 - beta2**i)
                x = x - adam_lr * m_hat / (np.sqrt(v_hat) + eps)
            delta[k] = x - w
        w = w + lr * cohort_mean(fed, cohort, delta)
        out.append(w)
    return out


def adaalter(fed, w, cohorts: Cohorts, *, lr, initial_a, eta_l, steps, epsilon) -> list[Array]:
    """AdaAlter as Reddi et al. 2021, B.3, describe it (after Xie et al. 2019): local Adagrad from the broadcast
    accumulator, the server averages models and accumulators over the cohort."""
    a = np.zeros_like(w) + initial_a
    out = []
    for cohort in cohorts:
        delta, a_k = {}, {}
        for k in cohort:
            v, acc = w, a
            for _ in range(steps):
                g = grad(fed, k, v)
                acc = acc + g**2
                v = v - eta_l * g / (np.sqrt(acc) + epsilon)
            delta[k], a_k[k] = v - w, acc
        w = w + lr * cohort_mean(fed, cohort, delta)
        a = cohort_mean(fed, cohort, a_k)
        out.append(w)
    return out
