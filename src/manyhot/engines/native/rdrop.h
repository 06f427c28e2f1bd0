/* Two predictions a and b of the same rows: both losses, the divergence of a and b, and both gradients. Included by rows.h.
 *
 *     apart     (p - q) k (a - b)                              p = sigma(k a), q = sigma(k b)
 *     by a      k ((p - q) + p (1 - p) k (a - b))              by b the same with a, b swapped
 *
 * The formulas never subtract numbers near 1, and half of a - b never overflows. Chunks that need no shift are simple: the
 * exponentials of the losses are also used for the probabilities. Let u = s for negatives and u = -s for positives. The
 * formulas above are the same in u, except for the sign of the derivatives. With soft labels u = s everywhere. */

typedef struct { NAME(vf) value, by_a, by_b; } NAME(gaps);

/* For any scores. */
INLINE NAME(gaps) NAME(any_gap)(NAME(vf) a, NAME(vf) b, float link) {
    NAME(vu) sign_a = (NAME(vu))a & 0x80000000u, sign_b = (NAME(vu))b & 0x80000000u;
    NAME(vf) za = NAME(exp_of)((NAME(vf))((NAME(vu))(link * a) | 0x80000000u));
    NAME(vf) zb = NAME(exp_of)((NAME(vf))((NAME(vu))(link * b) | 0x80000000u));
    NAME(vf) inverse = 1.0f / ((1.0f + za) * (1.0f + zb)), larger_a = (1.0f + zb) * inverse, larger_b = (1.0f + za) * inverse;
    /* p - q up to its sign, for scores on one side of 0 and on both; the sign is flipped where b is positive */
    NAME(vu) same = (NAME(vu))((za - zb) * inverse), across = (NAME(vu))((1.0f - za * zb) * inverse);
    NAME(vu) apart = (NAME(vu))((NAME(vi))(sign_a ^ sign_b) >> 31);
    NAME(vf) between = (NAME(vf))(((apart & across) | (~apart & same)) ^ (sign_b ^ 0x80000000u));
    NAME(vf) half = 0.5f * a - 0.5f * b, slope_a = za * larger_a * larger_a, slope_b = zb * larger_b * larger_b;
    float twice = 2.0f * link;
    NAME(gaps) g = {twice * between * half, link * (between + twice * slope_a * half),
                    -link * (between + twice * slope_b * half)};
    return g;
}

typedef struct { float by_a, by_b; } NAME(pulls);

/* The derivatives from e^u and e^v, both below 1e30, for link 1 or 2. */
INLINE NAME(pulls) NAME(quick_pulls)(float u, float v, float e, float f, int twice) {
    float a = twice ? e * e : e, b = twice ? f * f : f, link = twice ? 2.0f : 1.0f;
    a = a < 1e18f ? a : 1e18f, b = b < 1e18f ? b : 1e18f; /* keeps the product finite; the probability is 1 long before that */
    float inverse = 1.0f / ((1.0f + a) * (1.0f + b)), rest_a = (1.0f + b) * inverse, rest_b = (1.0f + a) * inverse;
    float between = (a - b) * inverse, half = 0.5f * u - 0.5f * v;
    float slope_a = 2.0f * link * a * rest_a * rest_a, slope_b = 2.0f * link * b * rest_b * rest_b;
    NAME(pulls) g = {link * (between + slope_a * half), -link * (between + slope_b * half)};
    return g;
}

INLINE int NAME(is_simple_link)(const job *j) { return j->link == 1.0f || j->link == 2.0f; }

/* The terms of n entries of both predictions without a shift, in the form of the stash, and their sums. */
INLINE void NAME(pair_block)(const float *s, const float *z, const scratch *k, int64_t at, int64_t n, int hard, int twice,
                             float *one, float *two, float *apart, stats *a, stats *b) {
    NAME(vf) zero = {0}, most = zero + 1e18f;
    NAME(vf) pos_one = zero, neg_one = zero, pos_two = zero, neg_two = zero, total = zero;
    for (int64_t i = at; i < at + n; i += WIDE) {
        NAME(vu) side = (NAME(vu))zero;
        if (hard) side = NAME(positives)(k->y + i);
        NAME(vu) sign = side & 0x80000000u;
        NAME(vf) u = (NAME(vf))((NAME(vu))NAME(get)(s + i) ^ sign), v = (NAME(vf))((NAME(vu))NAME(get)(z + i) ^ sign);
        NAME(vf) e = NAME(exp_of)(u), f = NAME(exp_of)(v);
        NAME(vf) p = LEAST(most, twice ? e * e : e), q = LEAST(most, twice ? f * f : f); /* as in quick_pulls */
        NAME(vf) gap = (p - q) / ((1.0f + p) * (1.0f + q)) * ((twice ? 4.0f : 2.0f) * (0.5f * u - 0.5f * v));
        total += gap;
        if (hard) {
            pos_one += (NAME(vf))((NAME(vu))e & side), neg_one += (NAME(vf))((NAME(vu))e & ~side);
            pos_two += (NAME(vf))((NAME(vu))f & side), neg_two += (NAME(vf))((NAME(vu))f & ~side);
        } else {
            NAME(vf) wp = NAME(get)(k->wp + i), wn = NAME(get)(k->wn + i);
            pos_one += wp / e, neg_one += wn * e;
            pos_two += wp / f, neg_two += wn * f;
        }
        NAME(put)(one + i, (NAME(vf))((NAME(vu))e | sign)), NAME(put)(two + i, (NAME(vf))((NAME(vu))f | sign));
        if (apart) NAME(put)(apart + i, gap);
    }
    a->sp += NAME(sum_lane)(pos_one), a->sn += NAME(sum_lane)(neg_one), a->apart += NAME(sum_lane)(total);
    b->sp += NAME(sum_lane)(pos_two), b->sn += NAME(sum_lane)(neg_two);
}

/* The same for any n, a multiple of LANES. If apart is not NULL it receives the divergence of every entry. */
static void NAME(pair_terms)(const job *j, const float *s, const float *z, const scratch *k, int64_t n, float *one, float *two,
                             float *apart, stats *a, stats *b) {
    *a = *b = (stats){.simple = k->hard ? HARD : SOFT};
    for (int64_t i = 0; i < n; i += BLOCK / 2) {
        int64_t size = n - i < BLOCK / 2 ? n - i : BLOCK / 2;
        if (k->hard && j->link == 1.0f) NAME(pair_block)(s, z, k, i, size, 1, 0, one, two, apart, a, b);
        else if (k->hard) NAME(pair_block)(s, z, k, i, size, 1, 1, one, two, apart, a, b);
        else if (j->link == 1.0f) NAME(pair_block)(s, z, k, i, size, 0, 0, one, two, apart, a, b);
        else NAME(pair_block)(s, z, k, i, size, 0, 1, one, two, apart, a, b);
    }
}

/* Factors of the terms of either prediction and of the derivatives of the divergence. */
typedef struct { float pos_one, neg_one, pos_two, neg_two, pull; } NAME(factors);

INLINE NAME(factors) NAME(factors_of)(const job *j, const stats *a, const stats *b, const rowstate *one, const rowstate *two,
                                      int64_t at) {
    NAME(factors) by = {NAME(pos_factor)(a, one, at), NAME(neg_factor)(a, one, at), NAME(pos_factor)(b, two, at),
                        NAME(neg_factor)(b, two, at), 2.0f * j->alpha * one->scale[at]};
    return by;
}

/* Both gradients from the terms; the terms may share the memory of the gradients. */
INLINE void NAME(hard_pulls)(const float *s, const float *z, const float *one, const float *two, int64_t n, int twice,
                             NAME(factors) by, float *grad_a, float *grad_b) {
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        uint32_t side = (uint32_t)((int32_t)bits_of(one[i]) >> 31), sign = side & 0x80000000u;
        float u = from_bits(bits_of(s[i]) ^ sign), v = from_bits(bits_of(z[i]) ^ sign);
        float e = from_bits(bits_of(one[i]) ^ sign), f = from_bits(bits_of(two[i]) ^ sign);
        NAME(pulls) g = NAME(quick_pulls)(u, v, e, f, twice);
        grad_a[i] = from_bits(bits_of(by.pull * g.by_a + (side ? by.pos_one : by.neg_one) * e) ^ sign);
        grad_b[i] = from_bits(bits_of(by.pull * g.by_b + (side ? by.pos_two : by.neg_two) * f) ^ sign);
    }
}

INLINE void NAME(soft_pulls)(const float *s, const float *z, const float *one, const float *two, const float *wp,
                             const float *wn, int64_t n, int twice, NAME(factors) by, float *grad_a, float *grad_b) {
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        float e = one[i], f = two[i], p = wp[i], q = wn[i];
        NAME(pulls) g = NAME(quick_pulls)(s[i], z[i], e, f, twice);
        grad_a[i] = by.pull * g.by_a + (by.neg_one * (q * e) - by.pos_one * (p / e));
        grad_b[i] = by.pull * g.by_b + (by.neg_two * (q * f) - by.pos_two * (p / f));
    }
}

static void NAME(pair_pulls)(const job *j, const float *s, const float *z, const float *one, const float *two, const scratch *k,
                             int64_t n, NAME(factors) by, float *grad_a, float *grad_b) {
    if (k->hard && j->link == 1.0f) NAME(hard_pulls)(s, z, one, two, n, 0, by, grad_a, grad_b);
    else if (k->hard) NAME(hard_pulls)(s, z, one, two, n, 1, by, grad_a, grad_b);
    else if (j->link == 1.0f) NAME(soft_pulls)(s, z, one, two, k->wp, k->wn, n, 0, by, grad_a, grad_b);
    else NAME(soft_pulls)(s, z, one, two, k->wp, k->wn, n, 1, by, grad_a, grad_b);
}
