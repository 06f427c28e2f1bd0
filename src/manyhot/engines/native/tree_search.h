/* Beam search through label trees, for some rows at a time. Included by engine.c, after tree.h.
 *
 * The rows that visit the same node are scored one after the other, so that a table from features to their weights is worth
 * building. Scores do not depend on which rows are searched together. */

#define ROWS_AT_ONCE 128
#define NUMBERS_AT_ONCE (1 << 22) /* most scores, and most sums, of the rows that are searched together */

/* Move the k best of n to the front, in order. */
static void best_first(scored *all, int64_t n, int64_t k) {
    int64_t low = 0, high = n - 1;
    while (k < n && low < high) { /* until the k best are the first k */
        scored pivot = all[(low + high) / 2];
        int64_t i = low, j = high;
        while (i <= j) {
            while (compare_scored(all + i, &pivot) < 0) i++;
            while (compare_scored(all + j, &pivot) > 0) j--;
            if (i <= j) {
                scored kept = all[i];
                all[i++] = all[j], all[j--] = kept;
            }
        }
        if (k - 1 <= j) high = j;
        else if (k - 1 >= i) low = i;
        else break;
    }
    qsort(all, (size_t)(k < n ? k : n), sizeof(scored), compare_scored);
}

/* The weights of a block of children, by feature. */
typedef struct {
    const tree_level *level;
    int64_t first, end;   /* its features */
    const int32_t *place; /* [columns]: the place of a feature in the level, plus 1; NULL: search for it */
} tree_weights;

/* Not inlined: with fewer values in registers around it, the loop would read its pointers again for every weight. */
static __attribute__((noinline)) void add_weights(float *to, const uint8_t *restrict children, const float *restrict weights,
                                                  int64_t n, float by) {
    int64_t i = 0;
    for (; i + 4 <= n; i += 4) {
        float *a = to + children[i], *b = to + children[i + 1], *c = to + children[i + 2], *d = to + children[i + 3];
        *a += by * weights[i];
        *b += by * weights[i + 1];
        *c += by * weights[i + 2];
        *d += by * weights[i + 3];
    }
    for (; i < n; i++) to[children[i]] += by * weights[i];
}

/* Add the products of a row with the weights of a block to `to`, one number per child. */
static void add_products(const tree_search *t, const tree_weights *b, int64_t row, float *to) {
    const tree_level *level = b->level;
    for (int64_t e = t->offsets[row]; e < t->offsets[row + 1]; e++) {
        int64_t low = b->first, high = b->end;
        if (b->place) {
            if (!b->place[t->columns[e]]) continue;
            low = b->place[t->columns[e]] - 1;
        } else {
            while (low < high) { /* the columns of a row need not be sorted, so each search covers the whole block */
                int64_t middle = (low + high) / 2;
                if (level->features[middle] < t->columns[e]) low = middle + 1;
                else high = middle;
            }
            if (low == b->end || level->features[low] != t->columns[e]) continue;
        }
        int64_t start = low ? level->ends[low - 1] : 0;
        add_weights(to, level->children + start, level->weights + start, level->ends[low] - start, t->values[e]);
    }
}

/* A visit of a row to a node: the path to it, and where the scores of its children go. */
typedef struct {
    int64_t row, node;
    float before; /* the logarithm of the probability of the path */
    float *scores;
} visit;

static int compare_visits(const void *a, const void *b) {
    const visit *x = *(visit *const *)a, *y = *(visit *const *)b;
    if (x->node != y->node) return x->node < y->node ? -1 : 1;
    return (x->row > y->row) - (x->row < y->row);
}

/* The workspace of a search. */
typedef struct {
    int64_t rows, most;      /* rows that are searched together; the most labels that one reaches */
    visit *visits, **order;  /* [rows, beam], row by row, and by node */
    int64_t *width, *counts; /* [rows]: visits of each row, and labels reached */
    float *scores;           /* [rows, beam, widest] */
    scored *all;             /* the children or the labels of one row */
    float *sums;             /* [rows, labels]: sums of probabilities over trees */
    int32_t *reached;        /* [rows, most]: the labels whose sum is not 0 */
    int32_t *place;          /* [columns], zeros */
} search_room;

/* The scores of the children of one node, for all its visits. */
static void score_node(const tree_search *t, const tree_level *level, visit **visits, int64_t n, int32_t *place) {
    int64_t node = visits[0]->node, start = level->child_start[node], count = level->child_start[node + 1] - start, entries = 0;
    for (int64_t i = 0; i < n; i++) {
        memcpy(visits[i]->scores, level->bias + start, (size_t)count * 4);
        entries += t->offsets[visits[i]->row + 1] - t->offsets[visits[i]->row];
    }
    for (int64_t b = level->block_start[node], at = 0; b < level->block_start[node + 1]; b++, at += t->block) {
        tree_weights own = {level, level->feature_start[b], level->feature_start[b + 1], NULL};
        int table = 8 * entries > own.end - own.first && own.end < INT32_MAX;
        if (table) {
            own.place = place;
            for (int64_t f = own.first; f < own.end && level->features[f] < t->num_columns; f++)
                place[level->features[f]] = (int32_t)(f + 1);
        }
        for (int64_t i = 0; i < n; i++) add_products(t, &own, visits[i]->row, visits[i]->scores + at);
        for (int64_t f = own.first; f < own.end && table && level->features[f] < t->num_columns; f++)
            place[level->features[f]] = 0;
    }
}

/* log sigma(x), finite. */
static double log_sigmoid(double x) { return x > 0 ? -log1p(exp(-x)) : x - log1p(exp(x)); }

/* The nodes of the next level that a row visits: the best children of those that it visited. */
static void follow_beam(const tree_search *t, const tree_level *level, visit *visits, int64_t *width, scored *all) {
    int64_t found = 0, row = visits[0].row;
    for (int64_t i = 0; i < *width; i++) {
        int64_t start = level->child_start[visits[i].node], size = level->child_start[visits[i].node + 1] - start;
        for (int64_t k = 0; k < size; k++, found++) {
            all[found].score = (float)(visits[i].before + t->power * log_sigmoid(t->slope * visits[i].scores[k]));
            all[found].index = start + k;
        }
    }
    *width = found < t->beam ? found : t->beam;
    best_first(all, found, *width);
    for (int64_t i = 0; i < *width; i++) visits[i].row = row, visits[i].node = all[i].index, visits[i].before = all[i].score;
}

/* Add the probability of every label that a row reaches to its sums. */
static void add_labels(const tree_search *t, int64_t tree, const tree_level *level, int64_t r, search_room *room) {
    const int32_t *labels = t->labels + tree * t->num_labels;
    int32_t *reached = room->reached + r * room->most;
    float *sums = room->sums + r * t->num_labels;
    for (int64_t i = 0; i < room->width[r]; i++) {
        const visit *own = room->visits + r * t->beam + i;
        int64_t start = level->child_start[own->node], size = level->child_start[own->node + 1] - start;
        variants[t->variant].sigmoids(own->scores, size, (float)t->slope, expf(own->before));
        for (int64_t k = 0; k < size; k++) {
            int32_t label = labels[start + k];
            if (sums[label] == 0.0f) reached[room->counts[r]++] = label;
            sums[label] += own->scores[k] + 1e-30f;
        }
    }
}

/* Search one tree for rows `first` to `first + rows`. */
static void search_tree(const tree_search *t, int64_t tree, const tree_level *levels, int64_t first, int64_t rows,
                        int64_t widest, search_room *room) {
    int64_t depth = t->num_levels[tree];
    for (int64_t r = 0; r < rows; r++) {
        room->width[r] = 1;
        room->visits[r * t->beam] = (visit){.row = first + r};
    }
    for (int64_t l = 0; l < depth; l++) {
        int64_t n = 0;
        for (int64_t r = 0; r < rows; r++)
            for (int64_t i = 0; i < room->width[r]; i++) {
                room->visits[r * t->beam + i].scores = room->scores + (r * t->beam + i) * widest;
                room->order[n++] = room->visits + r * t->beam + i;
            }
        qsort(room->order, (size_t)n, sizeof(visit *), compare_visits);
        for (int64_t i = 0, end; i < n; i = end) {
            for (end = i + 1; end < n && room->order[end]->node == room->order[i]->node;) end++;
            score_node(t, levels + l, room->order + i, end - i, room->place);
        }
        for (int64_t r = 0; r < rows; r++) {
            visit *own = room->visits + r * t->beam;
            if (l + 1 < depth) follow_beam(t, levels + l, own, room->width + r, room->all);
            else add_labels(t, tree, levels + l, r, room);
        }
    }
}

/* The k labels of a row with the largest sums, as the log odds of their means; the sums are 0 afterwards. */
static void rank_labels(const tree_search *t, int64_t row, int64_t r, search_room *room) {
    int64_t count = room->counts[r];
    float *sums = room->sums + r * t->num_labels;
    for (int64_t i = 0; i < count; i++) {
        int32_t label = room->reached[r * room->most + i];
        room->all[i].score = sums[label], room->all[i].index = label, sums[label] = 0.0f;
    }
    best_first(room->all, count, t->k < count ? t->k : count);
    for (int64_t i = 0; i < t->k; i++) {
        double p = i < count ? room->all[i].score / (double)t->num_trees : 0.0;
        p = p < 1e-12 ? 1e-12 : p > 1.0 - 1e-7 ? 1.0 - 1e-7 : p;
        t->scores[row * t->k + i] = i < count ? (float)log(p / (1.0 - p)) : -INFINITY;
        t->indices[row * t->k + i] = i < count ? room->all[i].index : -1;
    }
}

/* Returns 1 if memory ran out. */
static int make_room(const tree_search *t, int64_t widest, search_room *room) {
    int64_t found = t->beam * widest, fit = NUMBERS_AT_ONCE / at_least(found > t->num_labels ? found : t->num_labels, 1);
    room->most = at_most(found * t->num_trees, t->num_labels);
    room->rows = at_most(at_least(fit, 1), at_least(at_most(t->num_rows, ROWS_AT_ONCE), 1));
    size_t rows = (size_t)room->rows, visits = rows * (size_t)t->beam;
    room->visits = malloc(visits * sizeof(visit)), room->order = malloc(visits * sizeof(visit *));
    room->width = malloc(rows * 8), room->counts = malloc(rows * 8);
    room->scores = malloc((visits * (size_t)widest + LANES) * 4);
    room->all = malloc((size_t)(at_least(found, room->most) + 1) * sizeof(scored));
    room->sums = calloc(rows * (size_t)t->num_labels + 1, 4), room->reached = malloc((rows * (size_t)room->most + 1) * 4);
    room->place = calloc((size_t)t->num_columns + 1, 4);
    return !room->visits || !room->order || !room->width || !room->counts || !room->scores || !room->all || !room->sums ||
           !room->reached || !room->place;
}

/* The k labels of each row with the largest mean probability over the trees, as log odds. `widest` is the largest number of
 * children of a node. Returns 0, or 1 if memory ran out. */
int manyhot_tree_search(const tree_search *t, int64_t widest) {
    search_room room = {0};
    int failed = make_room(t, widest, &room);
    for (int64_t first = 0; first < t->num_rows && !failed; first += room.rows) {
        int64_t rows = at_most(t->num_rows - first, room.rows);
        const tree_level *levels = t->levels;
        memset(room.counts, 0, (size_t)rows * 8);
        for (int64_t tree = 0; tree < t->num_trees; levels += t->num_levels[tree++])
            search_tree(t, tree, levels, first, rows, widest, &room);
        for (int64_t r = 0; r < rows; r++) rank_labels(t, first + r, r, &room);
    }
    free(room.visits), free(room.order), free(room.width), free(room.counts), free(room.scores), free(room.all);
    free(room.sums), free(room.reached), free(room.place);
    return failed;
}
