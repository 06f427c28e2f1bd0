/* Exponentials, logarithms and number types for the loops of rows.h, which includes this file. */

#include "vector.h"

/* The exponential of vector.h in plain C, for loops that the compiler vectorises; 0 below -87.3. */
INLINE float NAME(vexp)(float x) {
    float t = x * 1.44269504f + 12583039.0f, k = t - 12583039.0f, r = (x - k * 0.693359375f) + k * 2.12194440e-4f;
    float r2 = r * r, high = (8.3687454462e-3f * r + 4.1668388993e-2f) + 1.3814539416e-3f * r2;
    float p = (high * r2 + (1.6666521132e-1f * r + 4.9999994040e-1f)) * r2 + (r + 1.0f);
    uint32_t e = bits_of(p * from_bits(bits_of(t) << 23)), below = -(uint32_t)(x < -87.3f), above = -(uint32_t)(x > 88.3f);
    return from_bits((e & ~(below | above)) | (above & 0x7f800000u));
}

INLINE float NAME(atanh2)(float s) { /* 2 atanh(s) for |s| <= 1/3 */
    float w = s * s;
    float p = 0.11619509f;
    p = p * w + 0.10851661f;
    p = p * w + 0.14296291f;
    p = p * w + 0.19999851f;
    p = p * w + 0.33333334f;
    return 2.0f * s + 2.0f * s * (w * p);
}

INLINE float NAME(vlog1p)(float z) { return NAME(atanh2)(z / (2.0f + z)); } /* 0 <= z <= 1 */

INLINE float NAME(vlog_rest)(float x, float *whole) { /* log x = *whole + the result; *whole has few bits, 0 to infinity */
    float tiny = x < 1.1754944e-38f ? 1.0f : 0.0f;
    uint32_t b = bits_of(x * (1.0f + tiny * 16777215.0f));
    uint32_t shifted = b - 0x3f3504f3u; /* mantissa in [sqrt(1/2), sqrt(2)) */
    float k = (float)((int32_t)shifted >> 23) - 24.0f * tiny;
    float m = from_bits((shifted & 0x007fffffu) + 0x3f3504f3u);
    float l = NAME(atanh2)((m - 1.0f) / (m + 1.0f)) - k * 2.12194440e-4f;
    int regular = (x > 0.0f) & (x < INFINITY);
    *whole = regular ? k * 0.693359375f : 0.0f;
    return regular ? l : x == 0.0f ? -INFINITY : x;
}

INLINE float NAME(vlog)(float x) { /* -inf at 0, +inf and NaN stay */
    float whole, rest = NAME(vlog_rest)(x, &whole);
    return whole + rest;
}

INLINE float NAME(softplus)(float x) {
    float a = x < 0.0f ? -x : x;
    float l = NAME(vlog1p)(NAME(vexp)(-a));
    return x < 0.0f ? l : x + l;
}

INLINE float NAME(sigmoid)(float x) {
    float z = NAME(vexp)(x < 0.0f ? x : -x);
    return (x < 0.0f ? z : 1.0f) / (1.0f + z);
}

static void NAME(widen)(const char *from, int64_t kind, int64_t n, float *restrict to) {
    const uint16_t *half = (const uint16_t *)from;
    switch (kind) {
    case F32: memcpy(to, from, (size_t)n * 4); break;
    case BF16: for (int64_t i = 0; i < n; i++) to[i] = from_bits((uint32_t)half[i] << 16); break;
    case F16: for (int64_t i = 0; i < n; i++) to[i] = from_half(half[i]); break;
    case F64: for (int64_t i = 0; i < n; i++) to[i] = (float)((const double *)from)[i]; break;
    case I64: for (int64_t i = 0; i < n; i++) to[i] = ((const int64_t *)from)[i] > 0; break;
    case I32: for (int64_t i = 0; i < n; i++) to[i] = ((const int32_t *)from)[i] > 0; break;
    default: for (int64_t i = 0; i < n; i++) to[i] = ((const uint8_t *)from)[i] != 0; break;
    }
}

static void NAME(narrow)(const float *restrict from, char *to, int64_t kind, int64_t n) {
    uint16_t *restrict half = (uint16_t *)to;
    if (kind == F32) memcpy(to, from, (size_t)n * 4);
    else if (kind == BF16) for (int64_t i = 0; i < n; i++) half[i] = to_bfloat(from[i]);
    else for (int64_t i = 0; i < n; i++) half[i] = to_half(from[i]);
}
