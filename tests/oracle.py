"""Values to a hundred digits, term by term as the formulas are written, to hold the library against."""

from mpmath import exp, inf, isinf, log, mp, mpf

mp.dps = 100


def _number(value):
    value = float(value)
    return mpf(value) if abs(value) != float("inf") else (inf if value > 0 else -inf)


def _grown(weight, exponent):
    """``weight e^exponent``, skipped where the weight is 0 and 0 where the exponent is -inf."""
    if weight == 0 or exponent == -inf:
        return mpf(0)
    return inf if isinf(exponent) else weight * exp(exponent)


def side_sums(scores, labels, *, where=None, pos_weight=None, neg_weight=None):
    """``sum t e^{-s}`` and ``sum (1 - t) e^{s}`` of one row."""
    pos = neg = mpf(0)
    for i, (score, label) in enumerate(zip(scores, labels, strict=True)):
        if where is not None and not where[i]:
            continue
        s, t = _number(score), _number(label)
        pos += _grown(t * (1 if pos_weight is None else _number(pos_weight[i])), -s)
        neg += _grown((1 - t) * (1 if neg_weight is None else _number(neg_weight[i])), s)
    return pos, neg


def zlpr(scores, labels, **settings):
    pos, neg = side_sums(scores, labels, **settings)
    return float(log(1 + pos) + log(1 + neg))


def tlpr(scores, labels, threshold, **settings):
    pos, neg = side_sums(scores, labels, **settings)
    s0 = _number(threshold)
    return float(log(1 + pos * exp(s0)) + log(1 + neg * exp(-s0)))


def pairwise(scores, labels, *, scale=1.0, margin=0.0, **settings):
    pos, neg = side_sums([scale * float(s) for s in scores], labels, **settings)
    return float(log(1 + pos * neg * exp(_number(scale) * _number(margin))))


def zlpr_gradient(scores, labels, **settings):
    """The gradient of ``zlpr`` by its closed form, as a list of floats."""
    pos, neg = side_sums(scores, labels, **settings)
    where, pos_weight, neg_weight = (settings.get(name) for name in ("where", "pos_weight", "neg_weight"))
    gradient = []
    for i, (score, label) in enumerate(zip(scores, labels, strict=True)):
        if where is not None and not where[i]:
            gradient.append(0.0)
            continue
        s, t = _number(score), _number(label)
        down = _grown(t * (1 if pos_weight is None else _number(pos_weight[i])), -s) / (1 + pos)
        up = _grown((1 - t) * (1 if neg_weight is None else _number(neg_weight[i])), s) / (1 + neg)
        gradient.append(float(up - down))
    return gradient
