/* JSON lines of a plain shape: an object with one string and one list of strings, without a backslash. Included by engine.c. */

typedef struct {
    const uint8_t *at, *end;
} line_cursor;

static void skip_blanks(line_cursor *c) {
    while (c->at < c->end && (*c->at == ' ' || *c->at == '\t' || *c->at == '\r')) c->at++;
}

static int take(line_cursor *c, uint8_t mark) {
    skip_blanks(c);
    if (c->at >= c->end || *c->at != mark) return 0;
    c->at++;
    return 1;
}

/* A string without escapes or control characters; `span` gets its start and end, counted from `block`. */
static int take_string(line_cursor *c, const uint8_t *block, int64_t *span) {
    if (!take(c, '"')) return 0;
    span[0] = c->at - block;
    while (c->at < c->end && *c->at != '"') {
        if (*c->at == '\\' || *c->at < 0x20) return 0;
        c->at++;
    }
    span[1] = c->at - block;
    return take(c, '"');
}

/* The number of strings in a list; -1 if it is anything else. */
static int64_t take_list(line_cursor *c, const uint8_t *block, int64_t *spans) {
    int64_t count = 0;
    if (!take(c, '[')) return -1;
    if (take(c, ']')) return 0;
    do {
        if (!take_string(c, block, spans + 2 * count)) return -1;
        count++;
    } while (take(c, ','));
    return take(c, ']') ? count : -1;
}

static int is_key(const uint8_t *block, const int64_t *span, const char *key, int64_t length) {
    return span[1] - span[0] == length && !memcmp(block + span[0], key, (size_t)length);
}

/* One line: the string under `text` and the strings under `labels`. Returns the number of labels, -1 if it is not plain. */
static int64_t scan_line(line_cursor c, const uint8_t *block, const char *text, const char *labels, int64_t *text_span,
                         int64_t *label_spans) {
    int64_t key[2], count = -1, texts = 0, text_size = (int64_t)strlen(text), labels_size = (int64_t)strlen(labels);
    if (!take(&c, '{')) return -1;
    do {
        if (!take_string(&c, block, key) || !take(&c, ':')) return -1;
        if (!texts && is_key(block, key, text, text_size)) {
            if (!take_string(&c, block, text_span)) return -1;
            texts = 1;
        } else if (count < 0 && is_key(block, key, labels, labels_size)) {
            if ((count = take_list(&c, block, label_spans)) < 0) return -1;
        } else
            return -1;
    } while (take(&c, ','));
    if (!take(&c, '}') || !texts) return -1;
    skip_blanks(&c);
    return c.at == c.end ? count : -1;
}

/* All lines of a block. `ends[i]` is where line i ends, at its line feed or the end of the block; `counts[i]` is the result of
 * scan_line; `texts` and `spans` get the start and end of each string. Returns the number of lines. */
int64_t manyhot_lines_scan(const uint8_t *block, int64_t size, const char *text, const char *labels, int64_t *ends, int64_t *texts,
                           int64_t *counts, int64_t *spans) {
    int64_t lines = 0, found = 0, start = 0;
    while (start < size) {
        const uint8_t *feed = memchr(block + start, '\n', (size_t)(size - start));
        int64_t stop = feed ? feed - block : size;
        line_cursor cursor = {block + start, block + stop};
        texts[2 * lines] = texts[2 * lines + 1] = start;
        counts[lines] = scan_line(cursor, block, text, labels, texts + 2 * lines, spans + 2 * found);
        found += counts[lines] > 0 ? counts[lines] : 0;
        ends[lines++] = stop;
        start = stop + 1;
    }
    return lines;
}

/* A hash of bytes that depends on `seed`, so that a file cannot be made whose names all have the same one. */
static uint64_t name_hash(const uint8_t *name, int64_t length, uint64_t seed) {
    uint64_t h = seed;
    for (int64_t i = 0; i < length; i++) h = (h ^ name[i]) * 0xFF51AFD7ED558CCDu, h ^= h >> 32;
    return h;
}

typedef struct {
    const uint8_t *name;
    int32_t length, number;
} name_slot;

/* The slot of a name: its own, or an empty one. `size` is a power of two. */
static name_slot *slot_of(name_slot *slots, int64_t size, const uint8_t *name, int64_t length, uint64_t seed) {
    int64_t at = (int64_t)(name_hash(name, length, seed) & (uint64_t)(size - 1));
    while (slots[at].name && (slots[at].length != length || memcmp(slots[at].name, name, (size_t)length))) at = (at + 1) & (size - 1);
    return slots + at;
}

/* Number the strings `spans` of a block. Strings among the `known` names, which end at `known_ends`, have their place there; the
 * others get the next numbers in the order of first appearance, and `firsts[n]` is the first string with the n-th of these.
 * Returns how many there are, -1 if memory ran out. */
int64_t manyhot_lines_number(const uint8_t *block, const int64_t *spans, int64_t count, const uint8_t *known,
                             const int64_t *known_ends, int64_t known_count, uint64_t seed, int64_t *numbers, int64_t *firsts) {
    int64_t size = 2, fresh = 0;
    while (size < 2 * (known_count + count)) size *= 2;
    name_slot *slots = calloc((size_t)size, sizeof *slots);
    if (!slots) return -1;
    for (int64_t n = 0, start = 0; n < known_count; start = known_ends[n++]) {
        int64_t length = known_ends[n] - start;
        *slot_of(slots, size, known + start, length, seed) = (name_slot){known + start, (int32_t)length, (int32_t)n};
    }
    for (int64_t i = 0; i < count; i++) {
        const uint8_t *name = block + spans[2 * i];
        int64_t length = spans[2 * i + 1] - spans[2 * i];
        name_slot *slot = slot_of(slots, size, name, length, seed);
        if (!slot->name) {
            *slot = (name_slot){name, (int32_t)length, (int32_t)(known_count + fresh)};
            firsts[fresh++] = i;
        }
        numbers[i] = slot->number;
    }
    free(slots);
    return fresh;
}
