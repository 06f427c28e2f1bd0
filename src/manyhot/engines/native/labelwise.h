/* Labelwise losses, a sum of one cost per label: binary cross-entropy, focal and asymmetric loss. Included by rows.h. */

INLINE float NAME(whole_power)(float x, int k) { /* x^k for k = 0 ... 15 */
    float x2 = x * x, x4 = x2 * x2;
    return ((k & 1 ? x : 1.0f) * (k & 2 ? x2 : 1.0f)) * ((k & 4 ? x4 : 1.0f) * (k & 8 ? x4 * x4 : 1.0f));
}

INLINE float NAME(log_rest)(float m) { /* log(1 - m) for 0 <= m < 1 */
    return m < 0.5f ? -NAME(atanh2)(m / (2.0f - m)) : NAME(vlog)(1.0f - m);
}

/* sigma(x)^g log(1 + e^x) and its derivative from p = sigma(x), q = 1 - p, up = softplus(x), down = softplus(-x). */
#define FOCUSED_TERM(value, slope, p, q, up, down, factor, gamma)                                                              \
    float value##_f = (factor), value = value##_f == 0.0f ? 0.0f : value##_f * (up);                                           \
    float slope = value##_f * (((q) == 0.0f ? 0.0f : (gamma) * (q) * (up)) + (p));

/* sum_i p f(s_i) + n g(s_i) of one chunk and its derivative; for f and g see manyhot.losses.bce and focal. The last three
 * arguments are compile-time constants at every call, so that each loop contains one formula. power: 0 none, 1 whole numbers,
 * 2 any. */
INLINE float NAME(labelwise)(const job *j, const scratch *k, int64_t start, int64_t n,
                                                                   float scale, float *restrict out, int power, int cut, int hard) {
    const float *restrict s = k->s + start, *restrict wp = k->wp + start, *restrict wn = k->wn + start;
    const uint32_t *restrict side = k->side + start;
    float total = 0.0f, a = j->gamma_pos, b = j->gamma_neg, margin = j->margin;
    uint32_t pos_scale = bits_of(j->pos_scale), neg_scale = bits_of(j->neg_scale);
    int whole_a = (int)a, whole_b = (int)b;
#pragma omp simd reduction(+ : total)
    for (int64_t i = 0; i < n; i++) {
        float vp = hard ? from_bits(side[i] & pos_scale) : wp[i] > 0.0f ? wp[i] : 0.0f;
        float vn = hard ? from_bits(~side[i] & neg_scale) : wn[i] > 0.0f ? wn[i] : 0.0f;
        float x = hard ? s[i] : vp + vn > 0.0f ? s[i] : 0.0f;
        if (hard && !cut) x = from_bits(bits_of(x) ^ (side[i] & 0x80000000u)); /* a positive is a negative of score -s */
        float z = NAME(vexp)(x < 0.0f ? x : -x), d = 1.0f / ((1.0f + z) * (2.0f + z)), l = NAME(atanh2)(z * (1.0f + z) * d);
        float inner = (2.0f + z) * d, outer = z * inner, large = (x < 0.0f ? -x : x) + l;
        float up = x < 0.0f ? l : large, down = x < 0.0f ? large : l;      /* softplus(x) and softplus(-x) */
        float p = x < 0.0f ? outer : inner, q = x < 0.0f ? inner : outer; /* sigma(x) and sigma(-x) */
        if (hard && !cut) {
            float v = vp + vn, g = up, dg = p;
            if (power) {
                float gamma = side[i] ? a : b, whole_p = NAME(whole_power)(p, whole_a), whole_n = NAME(whole_power)(p, whole_b);
                FOCUSED_TERM(h, dh, p, q, up, down, power == 1 ? (side[i] ? whole_p : whole_n) : gamma > 0.0f ? NAME(vexp)(-gamma * down) : 1.0f, gamma)
                g = h, dg = dh;
            }
            total += v > 0.0f ? v * g : 0.0f;
            out[i] = from_bits(bits_of(scale * v * dg) ^ (side[i] & 0x80000000u));
            continue;
        }
        float f = down, df = q, g = up, dg = p;
        if (power) {
            FOCUSED_TERM(h, dh, q, p, down, up, power == 1 ? NAME(whole_power)(q, whole_a) : a > 0.0f ? NAME(vexp)(-a * up) : 1.0f, a)
            f = h, df = dh;
        }
        if (power && !cut) {
            FOCUSED_TERM(h, dh, p, q, up, down, power == 1 ? NAME(whole_power)(p, whole_b) : b > 0.0f ? NAME(vexp)(-b * down) : 1.0f, b)
            g = h, dg = dh;
        }
        if (cut) {
            float m = p - margin;
            m = m > 0.0f ? m : p == p ? 0.0f : p;
            float safe = m == 0.0f ? 0.5f : m, rest = NAME(log_rest)(m);
            float fn = power == 1 ? NAME(whole_power)(safe, whole_b) : b > 0.0f ? NAME(vexp)(b * NAME(vlog)(safe)) : 1.0f;
            g = m == 0.0f ? 0.0f : -fn * rest;
            dg = m == 0.0f ? 0.0f : fn * p * q * (1.0f / (1.0f - m) - b * rest / safe);
        }
        total += (vp > 0.0f ? vp * f : 0.0f) + (vn > 0.0f ? vn * g : 0.0f);
        out[i] = scale * (vn * dg - vp * df);
    }
    return total;
}
#undef FOCUSED_TERM

static float NAME(labelwise_by_kind)(const job *j, const scratch *k, int64_t start, int64_t n, float scale, float *out) {
    int whole = j->gamma_pos <= 15.0f && j->gamma_neg <= 15.0f && j->gamma_pos == (float)(int)j->gamma_pos &&
                j->gamma_neg == (float)(int)j->gamma_neg;
    int power = j->form == BCE ? 0 : whole ? 1 : 2, cut = j->form != BCE && j->margin > 0.0f;
    switch (power + 4 * cut + 8 * (k->hard != 0)) {
    case 0: return NAME(labelwise)(j, k, start, n, scale, out, 0, 0, 0);
    case 1: return NAME(labelwise)(j, k, start, n, scale, out, 1, 0, 0);
    case 2: return NAME(labelwise)(j, k, start, n, scale, out, 2, 0, 0);
    case 5: return NAME(labelwise)(j, k, start, n, scale, out, 1, 1, 0);
    case 6: return NAME(labelwise)(j, k, start, n, scale, out, 2, 1, 0);
    case 8: return NAME(labelwise)(j, k, start, n, scale, out, 0, 0, 1);
    case 9: return NAME(labelwise)(j, k, start, n, scale, out, 1, 0, 1);
    case 10: return NAME(labelwise)(j, k, start, n, scale, out, 2, 0, 1);
    case 13: return NAME(labelwise)(j, k, start, n, scale, out, 1, 1, 1);
    default: return NAME(labelwise)(j, k, start, n, scale, out, 2, 1, 1);
    }
}

static double NAME(chunk_labelwise)(const job *j, int64_t r, int64_t c, scratch *k) {
    int64_t n = NAME(load)(j, r, c, 1, k), padded = (n + LANES - 1) / LANES * LANES;
    char *to = (char *)j->grad + (r * j->num_labels + c * CHUNK) * kind_size[j->x_kind];
    float *out = j->x_kind == F32 && padded == n ? (float *)to : k->out;
    float scale = j->row_scales ? j->row_scales[r] : j->scale;
    for (int64_t i = 0; i < padded && k->hard; i++) k->side[i] = -(uint32_t)(k->y[i] != 0);
    double total = 0.0;
    for (int64_t i = 0; i < padded; i += BLOCK)
        total += NAME(labelwise_by_kind)(j, k, i, padded - i < BLOCK ? padded - i : BLOCK, scale, out + i);
    if (out == k->out) NAME(narrow)(out, to, j->x_kind, n);
    return total;
}
