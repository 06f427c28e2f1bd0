/* Labels between 0 and 1, weights and smoothing: every entry has a term on both sides, w_p e^{-s} and w_n e^s. Included by
 * rows.h. The stash holds e^s. */

/* Sums without a shift, with one exponential: e^{-s} is 1 / e^s. A weight of 0 times an infinite exponential gives NaN. */
static void NAME(soft_sums)(const float *s, const float *wp, const float *wn, int64_t n, float *stash, stats *st) {
    *st = (stats){.kind = SOFT};
    for (int64_t start = 0; start < n; start += BLOCK) {
        int64_t stop = n - start < BLOCK ? n : start + BLOCK;
        NAME(vf) sp[PER] = {{0}}, sn[PER] = {{0}};
        for (int64_t l = start; l < stop; l += LANES)
            for (int64_t v = 0; v < PER; v++) {
                int64_t i = l + v * WIDE;
                NAME(vf) e = NAME(exp_of)(NAME(get)(s + i));
                sp[v] += NAME(get)(wp + i) / e;
                sn[v] += NAME(get)(wn + i) * e;
                NAME(put)(stash + i, e);
            }
        st->sp += NAME(sum_lanes)(sp), st->sn += NAME(sum_lanes)(sn);
    }
}

/* Like in_range, for soft labels. */
static int NAME(soft_in_range)(const stats *st, const float *wp, const float *wn, int64_t n) {
    int positives = 0, negatives = 0;
    if (!(st->sp > 1e-25)) for (int64_t i = 0; i < n; i++) positives |= wp[i] > 0.0f;
    if (!(st->sn > 1e-25)) for (int64_t i = 0; i < n; i++) negatives |= wn[i] > 0.0f;
    return (st->sp > 1e-25 ? st->sp < 1e30 : !positives && st->sp == 0.0) &&
           (st->sn > 1e-25 ? st->sn < 1e30 : !negatives && st->sn == 0.0);
}

static void NAME(soft_stats)(const float *restrict s, const float *restrict wp, const float *restrict wn, int64_t n,
                             float *restrict stash, stats *st) {
    NAME(soft_sums)(s, wp, wn, n, stash, st);
    if (NAME(soft_in_range)(st, wp, wn, n)) return;
    float p[LANES], q[LANES], mp, mn;
    for (int64_t l = 0; l < LANES; l++) p[l] = q[l] = -LARGEST;
    for (int64_t i = 0; i < n; i += LANES)
        for (int64_t l = 0; l < LANES; l++) {
            float a = wp[i + l] > 0.0f ? -s[i + l] : -LARGEST, b = wn[i + l] > 0.0f ? s[i + l] : -LARGEST;
            p[l] = a > p[l] ? a : p[l];
            q[l] = b > q[l] ? b : q[l];
        }
    NAME(largest)(p, q, &mp, &mn);
    *st = (stats){.mp = mp, .mn = mn};
    for (int64_t start = 0; start < n; start += BLOCK) {
        float sp = 0.0f, sn = 0.0f;
        int64_t stop = n - start < BLOCK ? n : start + BLOCK;
#pragma omp simd reduction(+ : sp, sn)
        for (int64_t i = start; i < stop; i++) {
            sp += wp[i] * NAME(vexp)(wp[i] > 0.0f ? -s[i] - mp : -INFINITY);
            sn += wn[i] * NAME(vexp)(wn[i] > 0.0f ? s[i] - mn : -INFINITY);
        }
        st->sp += sp, st->sn += sn;
    }
    if (mp == INFINITY) st->sp = 1.0; /* as in hard_stats */
    if (mn == INFINITY) st->sn = 1.0;
    if (mp == INFINITY || mn == INFINITY) for (int64_t i = 0; i < n; i++) if (s[i] != s[i]) {
        if (wp[i] > 0.0f) st->sp = NAN;
        if (wn[i] > 0.0f) st->sn = NAN;
    }
}

/* w e^u / e^total; top is infinite if the total is, otherwise NaN, so that an infinite term gets the whole gradient. */
INLINE float NAME(share)(float u, float weight, float shift, float rest, float top) {
    float x = u == top ? 0.0f : (u - shift) - rest;
    return weight * NAME(vexp)(weight > 0.0f && u != -INFINITY ? x : -INFINITY);
}

static void NAME(soft_grad)(const float *restrict s, const float *restrict wp, const float *restrict wn, int64_t n,
                            const rowstate *w, int64_t at, float *restrict out) {
    float gp = w->gp[at], gn = w->gn[at], mp = w->mp[at], mn = w->mn[at], rp = w->rp[at], rn = w->rn[at];
    float top_p = rp == INFINITY ? rp : NAN, top_n = rn == INFINITY ? rn : NAN;
    for (int64_t i = 0; i < n; i++)
        out[i] = gn * NAME(share)(s[i], wn[i], mn, rn, top_n) - gp * NAME(share)(-s[i], wp[i], mp, rp, top_p);
}

static void NAME(scale_soft)(const float *stash, const float *wp, const float *wn, float *out, int64_t n, float p, float q) {
#pragma omp simd
    for (int64_t i = 0; i < n; i++) out[i] = q * (wn[i] * stash[i]) - p * (wp[i] / stash[i]);
}
