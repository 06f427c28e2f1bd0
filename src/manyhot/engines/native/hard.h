/* Hard labels without weights or smoothing: one exponential per entry. Included by rows.h.
 *
 * With u = s for negatives and u = -s for positives a term is e^{u - m}, where m is the shift of its side. The stash keeps the
 * terms for the gradient, negated for positives. */

/* Add the sums of both sides of n entries, a multiple of LANES, and write the stash. With many labels nearly all blocks have no
 * positives; these skip the work of separating the sides. */
INLINE void NAME(hard_block)(const float *s, const uint8_t *y, int64_t n, int shifted,
                                                                   float mp, float mn, float *stash, stats *st) {
    NAME(vf) sp[PER] = {{0}}, sn[PER] = {{0}}, none = {0};
    NAME(vu) shift_p = (NAME(vu))(none + mp), shift_n = (NAME(vu))(none + mn);
    for (int64_t i = 0; i < n; i += 64) {
        int64_t stop = n - i < 64 ? n : i + 64;
        if (stop - i == 64 && NAME(all_negative)(y + i)) {
            for (int64_t l = i; l < stop; l += LANES)
                for (int64_t v = 0; v < PER; v++) {
                    NAME(vf) u = NAME(get)(s + l + v * WIDE), e = NAME(exp_of)(shifted ? u - mn : u);
                    sn[v] += e;
                    NAME(put)(stash + l + v * WIDE, e);
                }
        } else for (int64_t l = i; l < stop; l += LANES)
            for (int64_t v = 0; v < PER; v++) {
                NAME(vu) side = NAME(positives)(y + l + v * WIDE), sign = side & 0x80000000u;
                NAME(vf) u = (NAME(vf))((NAME(vu))NAME(get)(s + l + v * WIDE) ^ sign);
                if (shifted) u -= (NAME(vf))((side & shift_p) | (~side & shift_n));
                NAME(vu) e = (NAME(vu))NAME(exp_of)(u);
                sp[v] += (NAME(vf))(e & side);
                sn[v] += (NAME(vf))(e & ~side);
                NAME(put)(stash + l + v * WIDE, (NAME(vf))(e | sign));
            }
    }
    st->sp += NAME(sum_lanes)(sp), st->sn += NAME(sum_lanes)(sn);
}

static void NAME(hard_sums)(const float *s, const uint8_t *y, int64_t n, float mp, float mn, float *stash, stats *st) {
    *st = (stats){.mp = mp, .mn = mn, .kind = HARD};
    for (int64_t i = 0; i < n; i += BLOCK) {
        int64_t size = n - i < BLOCK ? n - i : BLOCK;
        if (mp == 0.0f && mn == 0.0f) NAME(hard_block)(s + i, y + i, size, 0, 0.0f, 0.0f, stash + i, st);
        else NAME(hard_block)(s + i, y + i, size, 1, mp, mn, stash + i, st);
    }
}

/* Whether sums without a shift are finite and have not underflowed: a side that is nearly 0 must be empty. */
static int NAME(in_range)(const stats *st, const uint8_t *y, int64_t n) {
    int positives = 0, negatives = 0;
    if (!(st->sp > 1e-25)) for (int64_t i = 0; i < n; i++) positives |= y[i] != 0;
    if (!(st->sn > 1e-25)) for (int64_t i = 0; i < n; i++) negatives |= y[i] == 0;
    return (st->sp > 1e-25 ? st->sp < 1e30 : !positives) && (st->sn > 1e-25 ? st->sn < 1e30 : !negatives);
}

INLINE void NAME(largest)(const float *p, const float *q, float *mp, float *mn) {
    *mp = *mn = -LARGEST;
    for (int64_t l = 0; l < LANES; l++) {
        *mp = p[l] > *mp ? p[l] : *mp;
        *mn = q[l] > *mn ? q[l] : *mn;
    }
}

static void NAME(hard_stats)(const float *restrict s, const uint8_t *restrict y, int64_t n, float *restrict stash, stats *st) {
    NAME(hard_sums)(s, y, n, 0.0f, 0.0f, stash, st);
    if (NAME(in_range)(st, y, n)) return; /* no shift is needed for nearly all scores */
    float p[LANES], q[LANES], mp, mn;
    for (int64_t l = 0; l < LANES; l++) p[l] = q[l] = -LARGEST;
    for (int64_t i = 0; i < n; i += LANES)
        for (int64_t l = 0; l < LANES; l++) {
            float a = y[i + l] ? -s[i + l] : -LARGEST, b = y[i + l] ? -LARGEST : s[i + l];
            p[l] = a > p[l] ? a : p[l];
            q[l] = b > q[l] ? b : q[l];
        }
    NAME(largest)(p, q, &mp, &mn);
    NAME(hard_sums)(s, y, n, mp, mn, stash, st);
    if (mp == INFINITY) st->sp = 1.0; /* inf - inf above gave NaN; only a NaN among the scores stays */
    if (mn == INFINITY) st->sn = 1.0;
    if (mp == INFINITY || mn == INFINITY) for (int64_t i = 0; i < n; i++)
        if (s[i] != s[i]) *(y[i] ? &st->sp : &st->sn) = NAN;
}

/* The gradient of a row with finite totals. */
static void NAME(hard_grad)(const float *s, const uint8_t *y, int64_t n, const rowstate *w, int64_t at, float *out) {
    float mp = w->mp[at], mn = w->mn[at], rp = w->rp[at], rn = w->rn[at];
    rp = rp == -INFINITY ? LARGEST : rp, rn = rn == -INFINITY ? LARGEST : rn; /* an empty side contributes no gradient */
    NAME(vf) none = {0};
    NAME(vu) factor_p = (NAME(vu))(none - w->gp[at]), factor_n = (NAME(vu))(none + w->gn[at]);
    NAME(vu) shift_p = (NAME(vu))(none + mp), shift_n = (NAME(vu))(none + mn);
    NAME(vu) rest_p = (NAME(vu))(none + rp), rest_n = (NAME(vu))(none + rn);
    for (int64_t i = 0; i < n; i += WIDE) {
        NAME(vu) side = NAME(positives)(y + i);
        NAME(vf) u = (NAME(vf))((NAME(vu))NAME(get)(s + i) ^ (side & 0x80000000u));
        u = (u - (NAME(vf))((side & shift_p) | (~side & shift_n))) - (NAME(vf))((side & rest_p) | (~side & rest_n));
        NAME(put)(out + i, (NAME(vf))((side & factor_p) | (~side & factor_n)) * NAME(exp_of)(u));
    }
}

static void NAME(scale_stash)(const float *stash, float *out, int64_t n, float p, float q) {
#pragma omp simd
    for (int64_t i = 0; i < n; i++) out[i] = stash[i] * (stash[i] < 0.0f ? p : q);
}
