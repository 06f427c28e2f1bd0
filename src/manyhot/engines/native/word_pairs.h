/* Pairs of neighbouring words, numbered and counted. Included by engine.c. */

typedef struct {
    int64_t *slots;    /* the number of a pair plus 1; 0: empty */
    int32_t *last_row; /* the last row of each pair */
    int64_t size;      /* slots, a power of two */
} pair_table;

static uint64_t pair_hash(int64_t key) {
    uint64_t h = (uint64_t)key * 0x9E3779B97F4A7C15u;
    h = (h ^ (h >> 32)) * 0xFF51AFD7ED558CCDu;
    return h ^ (h >> 32);
}

static int64_t pair_slot(const pair_table *table, const int64_t *keys, int64_t key) {
    int64_t at = (int64_t)(pair_hash(key) & (uint64_t)(table->size - 1));
    while (table->slots[at] && keys[table->slots[at] - 1] != key) at = (at + 1) & (table->size - 1);
    return at;
}

/* Double the number of slots; returns 0 if memory ran out. */
static int more_pairs(pair_table *table, const int64_t *keys, int64_t distinct) {
    int64_t *slots = calloc((size_t)(2 * table->size), sizeof *slots);
    int32_t *rows = realloc(table->last_row, (size_t)table->size * sizeof *rows);
    if (rows) table->last_row = rows;
    if (!slots || !rows) {
        free(slots);
        return 0;
    }
    free(table->slots);
    table->slots = slots, table->size *= 2;
    for (int64_t n = 0; n < distinct; n++) table->slots[pair_slot(table, keys, keys[n])] = n + 1;
    return 1;
}

/* Number the pairs of neighbouring words of a row, in the order of first appearance, and count the rows that have each. The key
 * of a pair is places[first] * width + second; a pair with a word whose place is negative is left out. Only the pairs of `part`
 * are numbered, of `parts` that keys are divided into, so that parts can be done by several threads: `numbers[w]` becomes
 * number * parts + part for the pair that starts at word w. `keys` and `counts` have space for a pair at every word. Returns the
 * number of distinct pairs, -1 if memory ran out. */
int64_t manyhot_words_pairs(const int64_t *offsets, int64_t rows, const int32_t *words, const int32_t *places, int64_t width,
                            int64_t part, int64_t parts, int64_t *numbers, int64_t *keys, int64_t *counts) {
    pair_table table = {calloc(1 << 16, sizeof *table.slots), malloc((1 << 15) * sizeof *table.last_row), 1 << 16};
    int64_t distinct = 0;
    int enough = table.slots && table.last_row;
    for (int64_t r = 0; enough && r < rows; r++)
        for (int64_t w = offsets[r]; enough && w + 1 < offsets[r + 1]; w++) {
            if (places[words[w]] < 0 || places[words[w + 1]] < 0) continue;
            int64_t key = places[words[w]] * width + words[w + 1];
            if ((int64_t)((pair_hash(key) >> 40) % (uint64_t)parts) != part) continue;
            int64_t at = pair_slot(&table, keys, key), own = table.slots[at] - 1;
            if (own < 0) {
                own = distinct++;
                table.slots[at] = own + 1, keys[own] = key, counts[own] = 0, table.last_row[own] = -1;
                if (2 * distinct >= table.size) enough = more_pairs(&table, keys, distinct);
            }
            if (enough && table.last_row[own] != r) table.last_row[own] = (int32_t)r, counts[own]++;
            numbers[w] = own * parts + part;
        }
    free(table.slots), free(table.last_row);
    return enough ? distinct : -1;
}
