/* Vectors of WIDE floats for the hot loops; included by exponentials.h. Minimum and maximum are written with vector types
 * because compilers do not vectorise the plain C form, which must propagate NaN. */

typedef float NAME(vf) __attribute__((vector_size(4 * WIDE)));
typedef uint32_t NAME(vu) __attribute__((vector_size(4 * WIDE)));
typedef int32_t NAME(vi) __attribute__((vector_size(4 * WIDE)));
#define PER (LANES / WIDE)

INLINE NAME(vf) NAME(get)(const float *from) {
    NAME(vf) x;
    memcpy(&x, from, sizeof x);
    return x;
}

INLINE void NAME(put)(float *to, NAME(vf) x) { memcpy(to, &x, sizeof x); }

/* All bits set where a label is not 0. */
INLINE NAME(vu) NAME(positives)(const uint8_t *labels) { return (NAME(vu))((NAME(vi))SPREAD(labels) > 0); }

/* Whether 64 labels are all 0. */
INLINE int NAME(all_negative)(const uint8_t *labels) {
    uint64_t any = 0, some;
    for (int64_t i = 0; i < 64; i += 8) {
        memcpy(&some, labels + i, 8);
        any |= some;
    }
    return any == 0;
}

/* Sums in a fixed order: of one vector, and of PER vectors. */
INLINE float NAME(sum_lane)(NAME(vf) x) {
    four part, sum = {0};
    for (int64_t i = 0; i < WIDE; i += 4) {
        memcpy(&part, (const float *)&x + i, sizeof part);
        sum += part;
    }
    return (sum[0] + sum[2]) + (sum[1] + sum[3]);
}

INLINE float NAME(sum_lanes)(const NAME(vf) *x) {
    NAME(vf) all = x[0];
    for (int64_t v = 1; v < PER; v++) all += x[v];
    return NAME(sum_lane)(all);
}

/* Accurate to one unit in the last place; 0 below -87.7, infinite above 88.4; NaN stays NaN. The clamps make the biased
 * exponent 0 (zero) or 255 (infinity). */
INLINE NAME(vf) NAME(exp_of)(NAME(vf) x) {
    NAME(vf) highest = {0}, lowest = {0};
    x = LEAST(highest + 88.8f, x), x = MOST(lowest - 88.0f, x);
    NAME(vf) t = x * 1.44269504f + 12583039.0f; /* the nearest integer plus 127 lands in the low bits */
    NAME(vf) k = t - 12583039.0f, r = (x - k * 0.693359375f) + k * 2.12194440e-4f;
    NAME(vf) r2 = r * r, high = (8.3687454462e-3f * r + 4.1668388993e-2f) + 1.3814539416e-3f * r2;
    NAME(vf) p = (high * r2 + (1.6666521132e-1f * r + 4.9999994040e-1f)) * r2 + (r + 1.0f);
    return p * (NAME(vf))((NAME(vu))t << 23);
}
