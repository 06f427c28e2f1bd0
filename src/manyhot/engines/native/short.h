/* Rows of hard labels that need no shift, several at a time, so that their logarithms and all later steps are vectorised across
 * rows. Included by rows.h. */

/* Sums of the positive and the negative terms of one row of the stash. */
INLINE void NAME(row_sums)(const float *restrict v, int64_t n, double *sp, double *sn) {
    *sp = *sn = 0.0;
    for (int64_t start = 0; start < n; start += BLOCK) {
        float p = 0.0f, q = 0.0f;
        int64_t stop = n - start < BLOCK ? n : start + BLOCK;
#pragma omp simd reduction(+ : p, q)
        for (int64_t i = start; i < stop; i++) {
            uint32_t b = bits_of(v[i]), side = (uint32_t)((int32_t)b >> 31);
            p += from_bits(b & side & 0x7fffffffu);
            q += from_bits(b & ~side);
        }
        *sp += p, *sn += q;
    }
}

/* Treat rows r to r + n as one row; returns 0 if that is not possible, for example because they are not contiguous. */
static int NAME(as_one_row)(const job *j, int64_t r, int64_t n, job *row) {
    int64_t size = j->num_labels;
    if (n * size > CHUNK || n < 2 || size == 0 || j->label_kind == SPARSE || j->x_stride != size || j->label_stride != size ||
        (j->where && j->where_stride != size))
        return 0;
    *row = *j;
    row->x = (const char *)j->x + r * size * kind_size[j->x_kind];
    row->labels = (const char *)j->labels + r * size * kind_size[j->label_kind];
    row->where = j->where ? j->where + r * size : NULL;
    row->num_labels = n * size;
    return 1;
}

/* Set the sums of row i of a tile, without a shift. */
INLINE void NAME(set_sums)(rowstate *w, int64_t i, const stats *st) {
    w->mp[i] = w->mn[i] = w->tp[i] = w->tn[i] = 0.0f, w->sp[i] = (float)st->sp, w->sn[i] = (float)st->sn;
}

/* Write the gradient of a row from its stash; scaled may be the stash. */
INLINE void NAME(scale_row)(const job *j, int64_t r, const float *stash, float *scaled, const rowstate *w, int64_t i) {
    float p = w->sp[i] > 0.0f ? w->gp[i] / w->sp[i] : 0.0f, q = w->sn[i] > 0.0f ? w->gn[i] / w->sn[i] : 0.0f;
    char *to = (char *)j->grad + r * j->num_labels * kind_size[j->x_kind];
    NAME(scale_stash)(stash, j->x_kind == F32 ? (float *)to : scaled, j->num_labels, p, q);
    if (j->x_kind != F32) NAME(narrow)(scaled, to, j->x_kind, j->num_labels);
}

/* Rows whose length is a multiple of LANES. Float rows use the gradient itself as the stash. */
static int NAME(whole_rows)(const job *j, int64_t r, int64_t n, worker *me) {
    int64_t size = j->num_labels;
    scratch *k = &me->scratch;
    float *stash = j->x_kind == F32 ? (float *)j->grad + r * size : me->stash;
    stats st;
    for (int64_t i = 0; i < n; i++) {
        NAME(load)(j, r + i, 0, 1, k);
        if (!k->hard) return 0;
        NAME(hard_sums)(k->s, k->y, size, 0.0f, 0.0f, j->task == SIDES ? k->out : stash + i * size, &st);
        if (!NAME(in_range)(&st, k->y, size)) return 0;
        NAME(set_sums)(&me->rows, i, &st);
    }
    NAME(finish)(j, r, n, &me->rows);
    for (int64_t i = 0; i < n && j->task != SIDES; i++) NAME(scale_row)(j, r + i, stash + i * size, k->out, &me->rows, i);
    return 1;
}

/* Rows of other lengths: adjacent rows are read as one row, and summed row by row afterwards. */
static int NAME(packed_rows)(const job *j, int64_t r, int64_t n, worker *me) {
    int64_t size = j->num_labels;
    scratch *k = &me->scratch;
    job all;
    stats st;
    if (!NAME(as_one_row)(j, r, n, &all)) return 0;
    NAME(load)(&all, 0, 0, 1, k);
    if (!k->hard) return 0;
    NAME(hard_sums)(k->s, k->y, (n * size + LANES - 1) / LANES * LANES, 0.0f, 0.0f, k->out, &st);
    for (int64_t i = 0; i < n; i++) {
        NAME(row_sums)(k->out + i * size, size, &st.sp, &st.sn);
        if (!NAME(in_range)(&st, k->y + i * size, size)) return 0;
        NAME(set_sums)(&me->rows, i, &st);
    }
    NAME(finish)(j, r, n, &me->rows);
    for (int64_t i = 0; i < n && j->task != SIDES; i++)
        NAME(scale_row)(j, r + i, k->out + i * size, k->out + i * size, &me->rows, i);
    return 1;
}

/* Several short rows at a time. Returns 0 if that is not possible; the rows are then computed one by one. */
static int NAME(short_rows)(const job *j, int64_t r, int64_t n, worker *me) {
    if (j->task == GRADIENT || !is_plain(j) || j->num_labels == 0 || j->num_labels > CHUNK) return 0;
    return j->num_labels % LANES == 0 ? NAME(whole_rows)(j, r, n, me) : NAME(packed_rows)(j, r, n, me);
}
